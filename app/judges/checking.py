"""Checks a started judge on bundled comparisons: distinct scores, and their noise."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from app.core.comparison import Comparison
from app.core.errors import JudgmentFailedError
from app.core.noise import Noise, Resolution
from app.core.preference import NoScore, Score
from app.judges.label_logits import LabelLogitScorer, score_of_orders
from app.judges.prompts import rendered_pairs
from app.judges.scorer import ScoreOutcome, Scorer
from app.ports import RecomputingEngine

# Comparisons of a check; each is two prompts, or two responses of a reward model.
CHECKED = 50
# Comparisons of which the noise is measured, the first ones.
NOISE_PAIRS = 32

Pause = Callable[[], Awaitable[None]]


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgeCheck:
    """The outcome of a check; comparisons with an unfinished thought are left out of the rest."""

    resolution: Resolution
    noise: Noise
    votes: bool = False
    unfinished: int = 0

    @property
    def warnings(self) -> list[str]:
        """Sentences about ties and flips, which somebody should repair; votes tie by design."""
        ties = None if self.votes else self.resolution.warning
        return [each for each in (ties, self.noise.warning) if each is not None]


async def no_pause() -> None:
    """Returns at once."""


async def check_judge(
    scorer: Scorer,
    comparisons: Sequence[Comparison],
    *,
    threshold: float | None,
    pause: Pause = no_pause,
) -> JudgeCheck:
    """Judges comparisons alone, all together, and from the engine's cache.

    "Alone" is one comparison at a time, both of its orders together, as a single request is judged.

    Args:
        scorer: The started judge.
        comparisons: Different comparisons, at least one. The noise is measured on the first 32.
        threshold: Uncertainty up to which a verdict is accepted, in nats; None for one that accepts
            half of them.
        pause: Awaited before each call of the engine, so that other work goes first.

    Raises:
        JudgmentFailedError: A comparison cannot be judged.
    """

    async def scored(pairs: Sequence[Comparison], *, recompute: bool) -> list[Score | NoScore]:
        await pause()
        if isinstance(scorer, LabelLogitScorer):
            scores = await _scored_by_chat_model(scorer, pairs, recompute=recompute)
        else:
            scores = await scorer.score(pairs)
        return [_whole(score) for score in scores]

    noisy = comparisons[:NOISE_PAIRS]
    alone = [score for each in noisy for score in await scored([each], recompute=True)]
    together = await scored(comparisons, recompute=True)
    # The calls before have filled the cache.
    cached = await scored(noisy, recompute=False)
    finished = [each for each in together if isinstance(each, Score)]
    runs = [
        [score for score in of_pair if isinstance(score, Score)]
        for of_pair in zip(alone, together, cached, strict=False)
    ]
    whole = [of_pair for of_pair in runs if len(of_pair) == 3]
    if not whole:
        raise JudgmentFailedError(
            "no thought of the judge about a bundled comparison ends: raise SCOPE_THINK_TOKENS"
        )
    return JudgeCheck(
        resolution=Resolution.of(finished),
        votes=scorer.identity.described.get("kind") == "chat model by votes",
        noise=Noise.of(list(zip(*whole, strict=True)), threshold=threshold),
        unfinished=len(together) - len(finished),
    )


async def _scored_by_chat_model(
    scorer: LabelLogitScorer, comparisons: Sequence[Comparison], *, recompute: bool
) -> Sequence[ScoreOutcome]:
    """Scores comparisons without the metrics of the service's work.

    `recompute` leaves out the engine's cache, where it has one.
    """
    engine = scorer.engine
    prompts = await rendered_pairs(scorer.template, comparisons)
    if recompute and isinstance(engine, RecomputingEngine):
        logits = await engine.recomputed_label_logits(prompts)
    else:
        logits = await engine.label_logits(prompts)
    pairs = zip(logits[::2], logits[1::2], strict=True)
    return [score_of_orders(forward, reverse) for forward, reverse in pairs]


def _whole(score: ScoreOutcome) -> Score | NoScore:
    if not isinstance(score, Score | NoScore):
        raise JudgmentFailedError("the judge cannot judge a bundled comparison")
    return score
