"""Two people label the pairs of a set through two replicas, on every store."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from app.service.auditing.entries import OpinionEntry, parse_entry
from app.service.labelling.queue import PairAnswer
from app.service.services import Services
from tests.integration.stores.backends import audit_log
from tests.integration.stores.conftest import Connect
from tests.serving import services_of
from tests.unit.service.auditing.drawing import EXAMPLES, audits, ids, traffic

PAIRS = 4


@pytest.fixture
async def replicas(connect: Connect) -> AsyncIterator[tuple[Services, Services]]:
    """Two services on one store, with open audits."""
    async with (
        services_of(store=await connect(), audit_rate=1.0, audit_texts=True) as one,
        services_of(store=await connect(), audit_rate=1.0, audit_texts=True) as other,
    ):
        await one.calibrator.add("default", EXAMPLES)
        await ids(one, traffic(range(PAIRS)))
        yield one, other


async def taken(services: Services, reviewer: str) -> list[str]:
    """The tickets of the pairs that a person has."""
    found = await services.queue.take("default", reviewer=reviewer, most=5, reviewers=2)
    return [pair.ticket for pair in found.pairs]


async def answer(services: Services, reviewer: str, tickets: list[str]) -> tuple[int, int, int]:
    """Finds pairs equally good; returns the numbers of new, repeated and refused answers."""
    answers = [PairAnswer(ticket=ticket, choice="tie") for ticket in tickets]
    report = await services.queue.answer("default", answers, reviewer=reviewer, reviewers=2)
    return report.labelled, report.again, len(report.errors)


async def test_a_pair_has_two_leases_and_never_two_of_one_person(
    replicas: tuple[Services, Services],
) -> None:
    one, other = replicas
    people = {"anna": one, "ben": other, "cem": one, "dana": other}
    got = await asyncio.gather(*(taken(services, name) for name, services in people.items()))
    assert all(len(set(tickets)) == len(tickets) for tickets in got)
    # Nobody is left with nothing while there is a place; the last ones to come get no pair.
    again = [await taken(services, name) for name, services in people.items()]
    assert set(Counter(ticket for tickets in again for ticket in tickets).values()) == {2}


async def test_opinions_of_two_people_at_once_are_one_label(
    replicas: tuple[Services, Services],
) -> None:
    one, other = replicas
    anna, ben = await taken(one, "anna"), await taken(other, "ben")
    assert anna == ben
    assert len(anna) == PAIRS
    both = await asyncio.gather(answer(one, "anna", anna), answer(other, "ben", ben))
    assert set(both) == {(PAIRS, 0, 0)}
    assert await answer(other, "anna", anna) == (0, PAIRS, 0)
    assert await answer(one, "cem", anna) == (0, 0, PAIRS)
    store = one.store
    entries = [parse_entry(text) for text in await audit_log(store)]
    assert sum(isinstance(entry, OpinionEntry) for entry in entries) == 2 * PAIRS
    for services in replicas:
        await services.auditor.catch_up()
        assert [audit.label for audit in audits(services.auditor)] == ["tie"] * PAIRS
    assert await store.leases("default") == {}
    # A second opinion from another replica leaves texts to the next round.
    await one.text_keeper.remove_others()
    assert await store.audit_text_keys() == set()
