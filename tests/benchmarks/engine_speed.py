"""Compares our service on vLLM with the raw engine, a chat client and the paper's loop."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import httpx

from app.settings import DEMO_FOLDER
from tests.benchmarks.chat_client import chat_server, judge_pairs
from tests.benchmarks.figures import Figure, Sampling
from tests.benchmarks.real_judge import real_judge
from tests.benchmarks.service import AS_USERS_RUN_IT, HEADERS, calibrate, our_service
from tests.benchmarks.texts import TEXTS, Pair, demo_pairs, real_slices
from tests.benchmarks.worker import Worker
from tests.programs import HttpServer

# Largest accepted difference in p_fwd between a contestant and ours. Causes: 16-bit weights in
# batches of another size (docs/design/engine.md), and a 16-bit head where the chat client's top
# log-probabilities are rounded.
_SAME_P = 0.06
# A sample has fewer pairs on a slow machine, so that ours takes at most about so many seconds.
_SAMPLE_S = 10.0
_LEAST_PAIRS = 4
# Comparisons in one of our requests, and our requests in flight at a time.
_BATCH, _AT_ONCE = 500, 2
# A batch of a slow judge takes longer than the service's default.
_TIMEOUT_S = 3600


class Judged(NamedTuple):
    """A contestant's answers for some pairs; None if it could not compute a preference."""

    seconds: float
    p_fwd: list[float | None]


Contestant = Callable[[Sequence[Pair]], Judged]


@dataclass(frozen=True, slots=True)
class Field:
    """A model and the pairs that it judges.

    Args:
        name: Part of the figures' names.
        model_setting: SCOPE_MODEL for our service.
        pairs: Repeat -> its pairs. Repeats have different pairs, so that vLLM's prefix cache does
            not hold them.
        calibration: Pairs that our service is calibrated with; none for the demo judge, which
            calibrates itself. All are labeled A, because labels do not change the speed.
        shares: Contestant -> number of a repeat's pairs for a slow contestant.
        texts: Source of the pairs, for the notes.
        targets: Contestant -> smallest accepted ratio of ours to theirs.
    """

    name: str
    model: str
    model_setting: str
    pairs: Callable[[int], list[Pair]]
    calibration: Sequence[Pair]
    shares: dict[str, int]
    texts: str
    targets: dict[str, float]


class DisagreementError(Exception):
    """Two contestants gave different preferences, so they did not do the same work."""


class Arena:
    """Our service and the chosen contestants, all loaded, one working at a time."""

    def __init__(self, sampling: Sampling, field: Field, names: Sequence[str]) -> None:
        self._sampling = sampling
        self._field = field
        self._stack = ExitStack()
        # Set by the warm-up.
        self._most_pairs = 0
        try:
            # Two starts at a time: a start is mostly imports, which use one core.
            with ThreadPoolExecutor(2) as starters:
                ours = starters.submit(self._ours)
                theirs = {name: starters.submit(self._started, name) for name in names}
            self._contestants = {"ours": ours.result()}
            self._contestants |= {name: started.result() for name, started in theirs.items()}
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        """Ends all processes."""
        self._stack.close()

    def measure(self) -> list[Figure]:
        """Measures one figure for each contestant; every figure has the same samples of ours."""
        agreement = self._warm_up(self._field.pairs(self._sampling.repeats))
        taken = self._sampling.in_turns([self._sampler(name) for name in self._contestants])
        samples = dict(zip(self._contestants, taken, strict=True))
        n = len(self._pairs(0))
        return [
            Figure(
                f"{name}-{self._field.name}",
                "comparisons/s",
                samples["ours"],
                samples[name],
                target=self._field.targets[name],
                notes=(
                    f"{n} pairs a repeat, {self._field.shares.get(name, n)} of them for theirs; "
                    f"ours in batches of {_BATCH}, {_AT_ONCE} at once; "
                    f"{self._field.texts}",
                    f"p_fwd compared with ours: {agreement[name]}",
                    AS_USERS_RUN_IT,
                ),
            )
            for name in samples
            if name != "ours"
        ]

    def _sampler(self, name: str) -> Callable[[int], float]:
        def sample(repeat: int) -> float:
            pairs = self._pairs(repeat)
            pairs = pairs[: self._field.shares.get(name, len(pairs))]
            return len(pairs) / self._contestants[name](pairs).seconds

        return sample

    def _pairs(self, repeat: int) -> list[Pair]:
        """The pairs of a repeat: as many as the judge's speed allows."""
        return self._field.pairs(repeat)[: self._most_pairs]

    def _warm_up(self, pairs: list[Pair]) -> dict[str, str]:
        """Makes every contestant judge some pairs, and compares its preferences with ours."""
        some = pairs[:24]
        answers = {name: judge(some) for name, judge in self._contestants.items()}
        judged = {name: answer.p_fwd for name, answer in answers.items()}
        speed = len(some) / answers["ours"].seconds
        self._most_pairs = max(_LEAST_PAIRS, int(_SAMPLE_S * speed))
        found = {}
        for name, theirs in judged.items():
            differences = [
                abs(p - q)
                for p, q in zip(judged["ours"], theirs, strict=True)
                if p is not None and q is not None
            ]
            if max(differences, default=0.0) > _SAME_P:
                raise DisagreementError(
                    f"{name} differs from ours by {max(differences):.3f} in p_fwd"
                )
            found[name] = (
                f"at most {max(differences):.1e} apart"
                if differences
                else "no pair could be compared"
            )
            if len(differences) < len(some):
                lacking = len(some) - len(differences)
                found[name] += f", {lacking} of {len(some)} had a label outside the top 20"
        return found

    def _started(self, name: str) -> Contestant:
        folder, model = self._sampling.folder, self._field.model
        if name == "chat-client":
            return _chat(self._stack.enter_context(chat_server(folder, model)))
        engine = {"engine": "vllm", "transformers-loop": "transformers"}[name]
        worker = Worker(
            folder, name, "tests.benchmarks.offline", {"engine": engine, "model": model}
        )
        return _offline(self._stack.enter_context(worker))

    def _ours(self) -> Contestant:
        settings = {
            "SCOPE_MODEL": self._field.model_setting,
            "SCOPE_TIMEOUT_S": str(_TIMEOUT_S),
        }
        server = self._stack.enter_context(our_service(self._sampling.folder, settings))
        if self._field.calibration:
            calibrate(server, [pair._asdict() | {"label": "A"} for pair in self._field.calibration])
        client = self._stack.enter_context(
            httpx.Client(base_url=server.url, headers=HEADERS, timeout=_TIMEOUT_S)
        )

        def post(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
            body = {"comparisons": [pair._asdict() for pair in pairs]}
            answer = client.post("/judge/batch", json=body)
            answer.raise_for_status()
            results: list[dict[str, Any]] = answer.json()["results"]
            return results

        def judge(pairs: Sequence[Pair]) -> Judged:
            size = _BATCH
            batches = [pairs[first : first + size] for first in range(0, len(pairs), size)]
            began = time.perf_counter()
            with ThreadPoolExecutor(_AT_ONCE) as senders:
                results = [result for batch in senders.map(post, batches) for result in batch]
            seconds = time.perf_counter() - began
            return Judged(seconds, [result["p_fwd"] for result in results])

        return judge


def _offline(worker: Worker) -> Contestant:
    def judge(pairs: Sequence[Pair]) -> Judged:
        answer = worker.ask(pairs=pairs)
        return Judged(answer["seconds"], answer["p_fwd"])

    return judge


def _chat(server: HttpServer) -> Contestant:
    def judge(pairs: Sequence[Pair]) -> Judged:
        began = time.perf_counter()
        p_fwd = asyncio.run(judge_pairs(server, pairs))
        return Judged(time.perf_counter() - began, p_fwd)

    return judge


_CONTESTANTS = ("engine", "chat-client", "transformers-loop")
DEMO = tuple(f"{name}-demo" for name in _CONTESTANTS)
REAL = tuple(f"{name}-smollm2" for name in _CONTESTANTS)


def with_the_demo_judge(sampling: Sampling, names: Sequence[str]) -> list[Figure]:
    """The rows of the bundled judge."""
    count = 100 if sampling.small else 1000
    field = Field(
        name="demo",
        model=str(DEMO_FOLDER / "model"),
        model_setting="demo",
        pairs=lambda repeat: demo_pairs(repeat, count),
        calibration=(),
        # Both contestants work in batches of a fixed size: more pairs do not make them faster.
        shares={"chat-client": count // 2, "transformers-loop": count // 4},
        texts="pairs of the demo judge's families",
        targets={"engine": 0.95, "chat-client": 1.5, "transformers-loop": 1.3},
    )
    return _measured(sampling, field, names)


def with_a_real_judge(sampling: Sampling, names: Sequence[str]) -> list[Figure]:
    """The rows of SmolLM2.

    Raises:
        UnavailableJudgeError: This machine cannot make its checkpoint.
    """
    model = str(real_judge())
    *slices, calibration = real_slices(2 if sampling.small else 32)
    field = Field(
        name="smollm2",
        model=model,
        model_setting=model,
        pairs=lambda repeat: slices[repeat % len(slices)],
        calibration=calibration,
        shares={},
        texts=TEXTS,
        targets={"engine": 0.95, "chat-client": 1.0, "transformers-loop": 1.3},
    )
    return _measured(sampling, field, names)


def _measured(sampling: Sampling, field: Field, names: Sequence[str]) -> list[Figure]:
    arena = Arena(sampling, field, [name.removesuffix(f"-{field.name}") for name in names])
    try:
        return arena.measure()
    finally:
        arena.close()
