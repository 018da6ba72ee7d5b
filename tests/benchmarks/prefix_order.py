"""Measures vLLM's prefix cache on questions with ten pairs each, in different orders."""

from collections.abc import Callable

from tests.benchmarks.measurement import Figure, Sampling
from tests.benchmarks.processes import Worker
from tests.benchmarks.texts import Pair, names_of_texts


def prefix_order(
    sampling: Sampling, model: str, questions: Callable[[int], list[list[Pair]]]
) -> Figure:
    """Comparisons a second with common prefixes side by side, compared with no prefix cache.

    Args:
        sampling: Folder and number of the samples of each variant.
        model: Folder of the model.
        questions: Repeat -> the pairs of some questions.
    """
    options = {"engine": "vllm", "model": model}
    plain_options = {**options, "prefix_cache": False}
    with (
        Worker(sampling.folder, "prefix-cache", "offline", options) as cached,
        Worker(sampling.folder, "no-prefix-cache", "offline", plain_options) as plain,
    ):
        contestants = [
            _sampler(cached, "prefix", questions),
            _sampler(plain, "random", questions),
            _sampler(cached, "random", questions),
        ]
        ordered, without, random_order = sampling.in_turns(contestants, warm_up=True)
    asked = len(questions(0))
    return Figure(
        "prefix-order",
        "comparisons/s",
        ordered,
        without,
        target=1.5,
        notes=(
            f"offline LLM.generate on {asked} questions of ten pairs a repeat; ordered by tokens, "
            f"cache on; theirs: random order, cache off; {names_of_texts()}",
        ),
        extra={"random order, cache on": random_order},
    )


def _sampler(
    worker: Worker, order: str, questions: Callable[[int], list[list[Pair]]]
) -> Callable[[int], float]:
    def sample(repeat: int) -> float:
        pairs = [pair for group in questions(repeat) for pair in group]
        # Each sample begins with an empty cache, because two of the variants have the same prompts.
        answer = worker.ask(pairs=pairs, order=order, forget=True)
        return len(pairs) / float(answer["seconds"])

    return sample
