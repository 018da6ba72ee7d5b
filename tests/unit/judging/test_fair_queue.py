"""Properties of the queue in which callers compete for places."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from app.flow import Flow, Kind
from app.judging.admission import Claim, FairQueue

KINDS: tuple[Kind, ...] = get_args(Kind)
FLOWS = st.builds(Flow, caller=st.sampled_from("abc"), kind=st.sampled_from(KINDS[:3]))


@dataclass
class Shop:
    """Serves a queue with a number of places."""

    places: int
    queue: FairQueue = field(default_factory=FairQueue)
    arrivals: list[Claim] = field(default_factory=list)
    served: list[Claim] = field(default_factory=list)
    inside: list[Claim] = field(default_factory=list)
    on_turn: Callable[[Sequence[Claim]], None] = lambda waiting: None

    def arrive(self, flow: Flow, size: int = 1) -> Claim:
        claim = Claim(flow=flow, size=size)
        self.arrivals.append(claim)
        self.queue.add(claim)
        self.serve()
        return claim

    def serve(self) -> None:
        while waiting := self.queue.in_turn():
            if sum(claim.size for claim in self.inside) + waiting[0].size > self.places:
                return
            self.on_turn(waiting)
            self.queue.hold(waiting[0])
            self.inside.append(waiting[0])
            self.served.append(waiting[0])

    def leave(self, claim: Claim) -> None:
        if claim.holds:
            self.inside.remove(claim)
        self.queue.remove(claim)
        self.serve()

    def held_by(self, caller: str) -> int:
        return sum(claim.size for claim in self.inside if claim.flow.caller == caller)


# Arrivals of a flow with a size, and departures: a number picks among those who are there.
EVENTS = st.lists(st.tuples(FLOWS, st.integers(1, 4)) | st.integers(0, 50), max_size=60)


@given(places=st.integers(4, 8), events=EVENTS)
def test_a_turn_goes_to_the_caller_who_holds_least_and_a_flow_keeps_its_order(
    places: int, events: list[tuple[Flow, int] | int]
) -> None:
    shop = Shop(places)

    def check(waiting: Sequence[Claim]) -> None:
        least = min(shop.held_by(claim.flow.caller) for claim in waiting)
        assert shop.held_by(waiting[0].flow.caller) == least

    shop.on_turn = check
    there: list[Claim] = []
    for event in events:
        if isinstance(event, tuple):
            there.append(shop.arrive(*event))
        elif there:
            gone = there.pop(event % len(there))
            shop.leave(gone)
        assert sum(claim.size for claim in shop.inside) <= places
    while shop.inside:
        shop.leave(shop.inside[0])
    # Everybody who stayed was served, and nothing is remembered of anybody.
    assert all(claim in shop.served for claim in there)
    assert not shop.queue.in_turn()
    assert not shop.queue._callers
    assert not shop.queue._flows
    assert not shop.queue._lines
    for flow in {claim.flow for claim in shop.served}:
        order = [shop.arrivals.index(claim) for claim in shop.served if claim.flow == flow]
        assert order == sorted(order)


def test_the_kinds_of_one_caller_alternate() -> None:
    shop = Shop(1)
    first = shop.arrive(Flow(caller="a", kind="rewards"))
    for kind in KINDS:
        for _ in range(3):
            shop.arrive(Flow(caller="a", kind=kind))
    while shop.inside:
        shop.leave(shop.inside[0])
    kinds = [claim.flow.kind for claim in shop.served if claim is not first]
    assert all(sorted(kinds[at : at + 4]) == sorted(KINDS) for at in (0, 4, 8))
    assert all(one != other for one, other in pairwise(kinds))


def test_a_large_request_is_not_passed_for_ever_by_small_ones_of_other_callers() -> None:
    shop = Shop(4)
    current = shop.arrive(Flow(caller="b", kind="batch"))
    large = shop.arrive(Flow(caller="a", kind="batch"), size=4)
    for turn in range(20):
        following = shop.arrive(Flow(caller="bc"[turn % 2], kind="batch"))
        shop.leave(current)
        if large.holds:
            break
        current = following
    assert large.holds
