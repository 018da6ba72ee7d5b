"""Measures the time of 64 groups of 8 responses by every way to ask for rewards.

Usage: python -m docs.tools.make_reward_times             measures, and writes the table
       python -m docs.tools.make_reward_times --drawn     only writes the table again

Each way asks for 512 comparisons of the demo judge, whose service runs beside it: within a group
each response meets two others, and with a reference each meets the reference. The texts are new
each time, so that no cache helps. The ways take turns.
"""

import argparse
import asyncio
import itertools
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import aiohttp

from docs.tools.running_service import running_service
from scope_judge import AsyncScopeClient, ScopeClient
from scope_judge.comparisons import Group
from scope_judge.gathering import Gathering
from scope_judge.records import GroupRewards
from scope_judge.reward_source import shared_source
from scope_judge.slime import custom_rm
from scope_judge.trl import ScopeReward
from scope_judge.verl import compute_score
from tests.demo_judge.gating import groups
from tests.drills.running import MEASURED
from tests.markdown import put_between_markers, table

NUMBERS, PAGE = MEASURED / "reward-times.json", MEASURED / "speed.md"
REPEATS, GROUPS = 5, 64
RULE: Mapping[str, Any] = {"alpha": 0.1, "opponents": 2}
REFERENCE_RULE: Mapping[str, Any] = {"alpha": 0.1}


class Times(NamedTuple):
    """The seconds of a way, with the calls gathered and without."""

    seconds: list[float]
    ungathered: list[float]


class Asked(NamedTuple):
    """A group of responses with a reference that is none of them."""

    question: str
    responses: Sequence[str]
    reference: str

    @property
    def rendered(self) -> str:
        """The question in the format of a chat template."""
        return f"<|im_start|>user\n{self.question}<|im_end|>\n<|im_start|>assistant\n"


class Way(NamedTuple):
    """A way to ask for rewards.

    Args:
        ask: Asks the service with this URL for the rewards of groups.
        calls: The calls that it makes, in words.
        is_gathered: Whether the client gathers these calls into batches.
    """

    ask: Callable[[str, Sequence[Asked]], Awaitable[None]]
    calls: str
    is_gathered: bool = False


async def _post_groups(url: str, asked: Sequence[Asked]) -> None:
    body = [{"question": each.question, "responses": each.responses} for each in asked]
    await _posted(url, "/rewards/groups", [{"groups": body, **RULE}])


async def _rewards_many(url: str, asked: Sequence[Asked]) -> None:
    def called() -> None:
        with ScopeClient(url) as client:
            pairs = [(each.question, each.responses) for each in asked]
            _check(list(client.rewards_many(pairs, progress=False, **RULE)))

    await asyncio.to_thread(called)


async def _trl(url: str, asked: Sequence[Asked]) -> None:
    def called() -> None:
        reward = ScopeReward(url=url, check=False, **RULE)
        prompts = [each.question for each in asked for _ in each.responses]
        reward(prompts, [response for each in asked for response in each.responses])

    await asyncio.to_thread(called)


async def _slime(url: str, asked: Sequence[Asked]) -> None:
    arguments = _slime_arguments(url, RULE, group_rm=True)
    samples = [[_sample(each, response) for response in each.responses] for each in asked]
    await asyncio.gather(*(custom_rm(arguments, each) for each in samples))
    await shared_source(rendered=True, url=url, **RULE).aclose()


async def _verl(url: str, asked: Sequence[Asked]) -> None:
    options = {"url": url, **REFERENCE_RULE}
    calls = [
        compute_score("pairs", response, each.reference, {"question": each.question}, **options)
        for each in asked
        for response in each.responses
    ]
    await asyncio.gather(*calls)
    await shared_source(**options).aclose()


async def _verl_spread(url: str, asked: Sequence[Asked]) -> None:
    """Calls that begin at equal distances over four seconds, as when rollouts end one by one."""
    options = {"url": url, **REFERENCE_RULE}

    async def call(number: int, each: Asked, response: str) -> None:
        await asyncio.sleep(4 * number / 512)
        await compute_score(
            "pairs", response, each.reference, {"question": each.question}, **options
        )

    flat = [(each, response) for each in asked for response in each.responses]
    await asyncio.gather(*(call(number, *one) for number, one in enumerate(flat)))
    await shared_source(**options).aclose()


async def _reference_async(url: str, asked: Sequence[Asked]) -> None:
    async with AsyncScopeClient(url) as client:
        await asyncio.gather(
            *(
                client.reference_rewards(
                    each.question, [response], each.reference, **REFERENCE_RULE
                )
                for each in asked
                for response in each.responses
            )
        )


async def _reference_groups(url: str, asked: Sequence[Asked]) -> None:
    def called() -> None:
        with ScopeClient(url) as client:
            for each in asked:
                client.reference_rewards(*each, **REFERENCE_RULE)

    await asyncio.to_thread(called)


async def _reference_singles(url: str, asked: Sequence[Asked]) -> None:
    def called() -> None:
        with ScopeClient(url) as client:
            for each in asked:
                for response in each.responses:
                    client.reference_rewards(
                        each.question, [response], each.reference, **REFERENCE_RULE
                    )

    await asyncio.to_thread(called)


async def _openrlhf(url: str, asked: Sequence[Asked]) -> None:
    bodies = [
        {
            "query": [f"{each.rendered}{response}<|im_end|>"],
            "prompts": [each.rendered],
            "labels": [each.reference],
        }
        for each in asked
        for response in each.responses
    ]
    await _posted(url, "/rewards/openrlhf?alpha=0.1", bodies)


WAYS: dict[str, Way] = {
    "`POST /rewards/groups`": Way(_post_groups, "1 request"),
    "`rewards_many`": Way(_rewards_many, "1 call"),
    "TRL": Way(_trl, "1 call"),
    "slime with `--group-rm`": Way(_slime, "64 calls at once", is_gathered=True),
    "verl": Way(_verl, "512 calls at once", is_gathered=True),
    "verl, rollouts that end one by one": Way(_verl_spread, "512 calls over 4 s", is_gathered=True),
    "`AsyncScopeClient.reference_rewards`": Way(
        _reference_async, "512 calls at once", is_gathered=True
    ),
    "`ScopeClient.reference_rewards`": Way(_reference_groups, "64 calls in turn"),
    "`ScopeClient.reference_rewards`, one response a call": Way(
        _reference_singles, "512 calls in turn"
    ),
    "OpenRLHF": Way(_openrlhf, "512 requests at once"),
}


def _check(rewards: Sequence[Any]) -> None:
    if any(getattr(each, "error", None) for each in rewards):
        raise SystemExit("a group has no rewards")


def _sample(each: Asked, response: str) -> SimpleNamespace:
    given = {"prompt": each.rendered, "response": f"{response}<|im_end|>", "label": each.reference}
    return SimpleNamespace(**given, remove_sample=False, reward=None, group_index=0)


def _slime_arguments(url: str, rule: Mapping[str, Any], *, group_rm: bool) -> SimpleNamespace:
    prefixed = {f"scope_{name}": value for name, value in rule.items()}
    return SimpleNamespace(reward_key="reward", group_rm=group_rm, scope_url=url, **prefixed)


async def _posted(url: str, path: str, bodies: Sequence[Mapping[str, Any]]) -> None:
    """Sends all requests at once with aiohttp, as these frameworks do."""

    async def one(session: aiohttp.ClientSession, body: Mapping[str, Any]) -> None:
        async with session.post(f"{url}{path}", json=body) as answer:
            answer.raise_for_status()
            await answer.json()

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(one(session, body) for body in bodies))


def drawn() -> Iterator[list[Asked]]:
    """Yields new groups; the reference of a group is the right answer to another task."""
    stream = groups(seed=77)
    while True:
        # The families take turns, so that the task after four others is of the same one.
        some = [*itertools.islice(stream, GROUPS + 4)]
        yield [
            Asked(group.question, group.answers, other.answers[0])
            for group, other in zip(some, some[4:], strict=False)
        ]


async def _single(self: Gathering, group: Group, rule: Mapping[str, Any]) -> GroupRewards:
    """Asks for a group in a request of its own."""
    return await self._one(group, rule)


async def measure(url: str) -> dict[str, Times]:
    """The seconds of each way, once a repeat; the first round is not timed."""
    some, times = drawn(), {name: Times([], []) for name in WAYS}
    for repeat in range(REPEATS + 1):
        for name, way in WAYS.items():
            gathering = [True, False] if way.is_gathered else [True]
            for is_gathered in gathering[:: 1 if repeat % 2 else -1]:
                asked = next(some)
                with nullcontext() if is_gathered else patch.object(Gathering, "rewards", _single):
                    begun = time.perf_counter()
                    await way.ask(url, asked)
                    took = time.perf_counter() - begun
                seconds = times[name].seconds if is_gathered else times[name].ungathered
                if repeat:
                    seconds.append(round(took, 3))
    return times


def rows(times: Mapping[str, Times]) -> str:
    """The table."""
    return table(
        ("way", "calls", "s", "s without gathering"),
        [
            (name, WAYS[name].calls, _median(each.seconds), _median(each.ungathered))
            for name, each in times.items()
        ],
    )


def _median(seconds: Sequence[float]) -> str:
    if not seconds:
        return ""
    return f"{statistics.median(seconds):.1f} ({min(seconds):.1f}-{max(seconds):.1f})"


def main() -> None:
    """Measures, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--drawn", action="store_true", help="measure nothing; write the table")
    if not parser.parse_args().drawn:
        with TemporaryDirectory() as folder, running_service(Path(folder)) as url:
            times = asyncio.run(measure(url))
        written = {name: each._asdict() for name, each in times.items()}
        NUMBERS.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    found = json.loads(NUMBERS.read_text(encoding="utf-8"))
    put_between_markers("rewards", rows({k: Times(**v) for k, v in found.items()}), PAGE)


if __name__ == "__main__":
    main()
