"""The seam between judges of all kinds and what is done with their scores."""

import asyncio
from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

from app.core.comparison import Comparison, Side
from app.core.errors import JudgmentFailedError, RequestError
from app.core.fingerprint import JudgeIdentity
from app.core.preference import NoScore, Score
from app.ports import FailStop

# Errors of one comparison that do not affect the other comparisons of its batch.
ScoreError = RequestError | JudgmentFailedError
# The result of one comparison.
ScoreOutcome = Score | NoScore | ScoreError
# The kinds of judges that settings can name; `kind` of GET /info.
JudgeKind = Literal[
    "chat model",
    "chat model by votes",
    "chat model that thinks",
    "reward model",
    "decision server",
    "cascade",
]


class Scorer(Protocol):
    """A started judge: turns comparisons into scores, and describes itself.

    The scorer alone knows prompts, labels, engines and servers, and observes the time of their
    calls. Calibration sets and audits see its scores and its identity only; so do decisions, except
    that they tell a `CascadeScorer` which pairs its small judge decides.
    """

    @property
    def identity(self) -> JudgeIdentity:
        """The judge's name, its fingerprint and its description of itself."""

    async def score(self, comparisons: Sequence[Comparison]) -> Sequence[ScoreOutcome]:
        """Scores comparisons, all of them in one call of the model.

        Returns:
            For each comparison, in order, its score, the reason why it has none, or its own error.
            Both gaps of a score are finite: any other answer of the model is the error of its
            comparison.

        Raises:
            UnavailableError: The model is unavailable; nothing was scored.
            JudgmentFailedError: The model returned a wrong number of answers.
        """

    def weakness(self, score: Score) -> str | None:
        """Returns why a judge with this score of a plain comparison is unreliable, and what to try.

        None if nothing is wrong.
        """

    async def lost(self) -> str:
        """Waits until this scorer can never score again in this process, and returns the reason."""

    async def stop(self) -> None:
        """Frees all resources; safe to call twice."""


# A comparison, and the side that the judge prefers; None without a preference.
Judged = tuple[Comparison, Side | None]


@runtime_checkable
class ExplainingScorer(Protocol):
    """A scorer that can write a text after its verdict, which is not the reason for the verdict."""

    async def explain(self, judged: Sequence[Judged]) -> list[str | None]:
        """Returns texts about judged comparisons; nothing keeps them.

        Returns:
            For each comparison, in order, its text; None if the judge did not write it, or writes
            none without a preference.

        Raises:
            UnavailableError: The engine does not answer.
            JudgmentFailedError: The model returned a wrong number of texts.
        """


async def lost(model: object) -> str:
    """Waits until a model has failed for good; forever if it always recovers."""
    if isinstance(model, FailStop):
        return await model.lost()
    never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    return await never
