"""Measures vLLM's prefix cache on questions with ten pairs each, in different orders."""

from collections.abc import Callable, Sequence

from tests.benchmarks.measurement import Figure, Sampling
from tests.benchmarks.processes import Worker
from tests.benchmarks.real_judge import real_judge
from tests.benchmarks.texts import TEXTS, Pair, pairs_by_question


def prefix_order(sampling: Sampling, _: Sequence[str]) -> list[Figure]:
    """Comparisons a second with common prefixes side by side, compared with no prefix cache.

    Raises:
        UnavailableJudgeError: This machine cannot make the real judge's checkpoint.
    """
    groups, asked = pairs_by_question(), 1 if sampling.small else 2
    if sampling.small:
        groups = [group[:2] for group in groups]
    model = str(real_judge())

    def questions(repeat: int) -> list[list[Pair]]:
        return [groups[(repeat * asked + i) % len(groups)] for i in range(asked)]

    options = {"engine": "vllm", "model": model}
    plain_options = {**options, "prefix_cache": False}
    with (
        Worker(sampling.folder, "prefix-cache", "tests.benchmarks.offline", options) as cached,
        Worker(
            sampling.folder, "no-prefix-cache", "tests.benchmarks.offline", plain_options
        ) as plain,
    ):
        contestants = [
            _sampler(cached, "prefix", questions),
            _sampler(plain, "random", questions),
            _sampler(cached, "random", questions),
        ]
        ordered, without, random_order = sampling.in_turns(contestants, warm_up=True)
    figure = Figure(
        "prefix-order",
        "comparisons/s",
        ordered,
        without,
        target=1.5,
        notes=(
            f"offline LLM.generate on {asked} questions of ten pairs a repeat; ordered by tokens, "
            f"cache on; theirs: random order, cache off; {TEXTS}",
        ),
        extra={"random order, cache on": random_order},
    )
    return [figure]


def _sampler(
    worker: Worker, order: str, questions: Callable[[int], list[list[Pair]]]
) -> Callable[[int], float]:
    def sample(repeat: int) -> float:
        pairs = [pair for group in questions(repeat) for pair in group]
        # Each sample begins with an empty cache, because two of the variants have the same prompts.
        answer = worker.ask(pairs=pairs, order=order, forget=True)
        return len(pairs) / float(answer["seconds"])

    return sample
