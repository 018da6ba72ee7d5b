"""The routes of cascades: scores of pairs without labels, and the plan of a set."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field

from app.api.answers.judgments import usage_of_request
from app.api.answers.sets import judge_score, small_score
from app.api.problems import PROBLEMS, problem_of
from app.api.requests.models import (
    Digest,
    DryRun,
    PairIn,
    PoolIn,
    PostedItems,
    Probability,
    Strict,
)
from app.api.requests.scored_examples import NumbersIn
from app.api.routing import JsonRequest, JsonRoute, SetName, as_json
from app.core.cascade import FEWEST_PAIRS, PlannedPairs, plan_cascade
from app.core.cascade import CascadePlan as Planned
from app.core.comparison import Comparison
from app.core.errors import CascadeError, JudgeMismatchError, RequestError, ScopeJudgeError
from app.core.fingerprint import cascade_inputs, digest_of_json
from app.core.preference import NoScore, Score
from app.flow import off_loop
from scope_judge.records import CascadePlan, PairScore, PairScores

# Computing their uncertainties and contradictions takes a few milliseconds.
_MOST_PAIRS = 20_000


class BothScoresIn(Strict):
    """The scores of both judges of a cascade on one pair."""

    small: NumbersIn = Field(description="The score of the small judge.")
    large: NumbersIn = Field(description="The score of the large judge.")


class CascadePlanIn(Strict):
    """Scores on pairs without labels, from which a cascade takes what it fixes in advance."""

    small: Digest = Field(description="Fingerprint of the small judge.")
    large: Digest = Field(description="Fingerprint of the large judge.")
    alpha: Probability = Field(description="The alpha that the cascade is for.")
    share: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="r, if you choose it; null for the rule."
    )
    dry_run: DryRun = False
    pairs: Annotated[list[BothScoresIn], Field(min_length=FEWEST_PAIRS, max_length=_MOST_PAIRS)] = (
        Field(description="The scores of at least 1,000 pairs, which are not the labeled ones.")
    )

    def planned(self, min_label_mass: float) -> PlannedPairs:
        """The pairs as the plan needs them."""
        small, large = (
            [(score.gap_fwd, score.gap_rev, score.label_mass) for score in scores]
            for scores in zip(*((pair.small, pair.large) for pair in self.pairs), strict=True)
        )
        return PlannedPairs.of(small, large, min_label_mass)


router = APIRouter(tags=["cascades"], route_class=JsonRoute, responses=PROBLEMS)


@router.post("/scores", response_model=PairScores)
async def score_pairs(body: PoolIn, request: JsonRequest) -> Response:
    """Scores pairs without labels, for a cascade's large judge and for `cascade plan`."""
    services = request.services
    request.check_comparisons(len(body.comparisons))
    pairs = await request.run(PostedItems[Comparison], PairIn, body.comparisons, PairIn.comparison)
    async with services.admission.admit(len(pairs.read)):
        outcomes = await services.calibrator.scores(pairs.read)
    found = iter(outcomes)
    answer = PairScores(
        judge=services.identity.name,
        fingerprint=services.identity.fingerprint,
        scores=tuple(
            _pair_score(pair if isinstance(pair, RequestError) else next(found))
            for pair in pairs.items
        ),
        usage=usage_of_request(),
    )
    return await request.run(as_json, lambda: answer)


def _pair_score(outcome: Score | NoScore | ScopeJudgeError) -> PairScore:
    if isinstance(outcome, ScopeJudgeError):
        return PairScore(gap_fwd=None, gap_rev=None, label_mass=None, error=problem_of(outcome))
    return judge_score(outcome, kind=PairScore, small=small_score(outcome.small))


@router.post("/calibrations/{name}/cascade", response_model=CascadePlan)
async def plan(name: SetName, body: CascadePlanIn, request: JsonRequest) -> Response:
    """Plans a cascade from scores of both judges, as the first version of its set."""
    services = request.services
    if not body.dry_run and services.identity.described.get("kind") != "cascade":
        raise CascadeError(
            "this service has one judge, and a cascade has two: name the large one's service in "
            "SCOPE_ESCALATE_URL, or send dry_run"
        )
    fingerprint = digest_of_json(cascade_inputs(body.small, body.large))
    if not body.dry_run and fingerprint != services.identity.fingerprint:
        raise JudgeMismatchError(
            "the scores are of other judges than this service's two: SCOPE_ESCALATE_URL names the "
            "large one"
        )
    pairs = await off_loop(body.planned, services.calibrations.min_label_mass)
    made = plan_cascade(*pairs, alpha=body.alpha, slack=services.cascade_slack, share=body.share)
    version = None
    if not body.dry_run:
        version = (await services.calibrator.plan(name, made, by=request.caller.name)).version
    return as_json(partial(_plan, name, version, pairs, made))


def _plan(name: str, version: int | None, pairs: PlannedPairs, made: Planned) -> CascadePlan:
    return CascadePlan(
        name=name,
        version=version,
        pairs=len(pairs.small),
        share=made.share,
        contradictions=float(pairs.contradicts.mean()),
        contradictions_within=pairs.contradictions_within(made),
        escalated=float((pairs.small > made.largest_first).mean()),
    )
