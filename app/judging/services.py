"""The parts of a running service."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from app.audits.auditor import Auditor
from app.audits.changes import Changes
from app.audits.drift import Drift
from app.audits.monitor import Monitor
from app.core.comparison import Case, CriterionDefaults
from app.core.errors import JudgmentFailedError, UnavailableError
from app.core.fingerprint import JudgeIdentity
from app.judges.scorer import ExplainingScorer, Scorer
from app.judging.admission import Admission
from app.judging.judge import Judge
from app.judging.readiness import Readiness
from app.judging.rewards import Rewarder
from app.observability.telemetry import Telemetry
from app.ports import Store
from app.sets.cache import Calibrations
from app.sets.calibrator import Calibrator
from scope_judge.records import Limits


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of one running service, which routes and workers use."""

    scorer: Scorer
    judge: Judge
    rewarder: Rewarder
    calibrator: Calibrator
    calibrations: Calibrations
    drift: Drift
    auditor: Auditor
    monitor: Monitor
    changes: Changes
    store: Store
    admission: Admission
    readiness: Readiness
    telemetry: Telemetry
    limits: Limits
    defaults: CriterionDefaults
    cascade_slack: float = 0.05

    @property
    def votes(self) -> bool:
        """Whether the scores of the judge are shares of votes."""
        return self.identity.described.get("kind") == "chat model by votes"

    @property
    def explains(self) -> bool:
        """Whether the judge can explain a judgment."""
        return isinstance(self.scorer, ExplainingScorer)

    async def explanations(self, judged: Sequence[Case]) -> Sequence[str | None]:
        """Returns the judge's text about each judgment, or None; a judgment stands without it."""
        sides = [(case.comparison, case.judgment.preferred) for case in judged]
        if sides and isinstance(self.scorer, ExplainingScorer):
            with suppress(UnavailableError, JudgmentFailedError):
                return await self.scorer.explain(sides)
        return [None] * len(sides)

    @property
    def identity(self) -> JudgeIdentity:
        """The judge's name, its fingerprint and its description of itself."""
        return self.scorer.identity
