"""Builds the answers that `scope_judge.records` declares, and their JSON."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import TypeAdapter

from app import __version__
from app.api.answers.problems import problem_of
from app.api.answers.words import in_words
from app.api.requests.models import BatchItem
from app.core.assessment import advice_on_unanimous
from app.core.comparison import Judgment, Rung
from app.core.errors import InternalError, RequestError, ScopeJudgeError
from app.fair_queue import CURRENT_FLOW
from app.judging.judge import Outcome
from app.judging.rewarder import GroupRewards
from app.judging.services import Services
from app.release import COMMIT
from scope_judge import records

# Both guarantees bound this share.
PROMISE = (
    "the share of wrong verdicts among the accepted ones, of pairs of which people prefer one side"
)


# Pairs from which on the share of unanimous ones leads to advice.
_FEWEST_PAIRS = 50

# Making one takes a few milliseconds.
_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}


def to_json(record: Any) -> bytes:
    """The JSON of a record.

    Raises:
        InternalError: A number is NaN or infinite. pydantic's own writer makes it null, which has
            a meaning in answers.
    """
    value = _adapter(type(record)).dump_python(record, mode="json")
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except ValueError as exc:
        raise InternalError(f"a {type(record).__name__} has a number that is not finite") from exc
    return text.encode()


def to_python(record: Any) -> Any:
    """The lists and dicts that the JSON of a record has; raises what `to_json` raises."""
    return json.loads(to_json(record))


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def judgment(
    judged: Judgment, identifier: str | int | None, *, kind: type[records.Judgment], **more: Any
) -> records.Judgment:
    """The record of a judgment; `guarantee` is None without an alpha, which promises nothing.

    Args:
        judged: The judgment.
        identifier: The caller's id of the pair.
        kind: The record.
        **more: Fields that the record has besides those of a judgment.
    """
    criterion, preference = judged.criterion, judged.preference
    promised = criterion.alpha is not None
    calibration, audit = judged.calibration, judged.audit
    return kind(
        id=identifier,
        verdict=judged.verdict,
        preferred=None if preference is None else preference.side,
        reason=judged.reason,
        p_fwd=None if preference is None else preference.p_fwd,
        p_rev=None if preference is None else preference.p_rev,
        p_bar=None if preference is None else preference.p_bar,
        uncertainty=None if preference is None else preference.uncertainty,
        confidence=None if preference is None else preference.confidence,
        threshold=judged.threshold,
        alpha=criterion.alpha,
        guarantee=criterion.guarantee if promised else None,
        delta=criterion.delta if promised else None,
        risk_level=judged.risk_level,
        label_mass=judged.label_mass,
        orders=judged.orders,
        temperature=judged.temperature if judged.orders == 1 else None,
        calibration=None
        if calibration is None
        else records.CalibrationReference(
            name=calibration.name, version=calibration.version, n=calibration.n
        ),
        judge=judged.judge,
        audit=None if audit is None else records.AuditReference(id=audit.id, rate=audit.rate),
        cached=judged.cached,
        bounded=judged.bounded,
        decided_by=judged.decided_by,
        rungs=tuple(map(_rung, judged.rungs)) or None,
        **more,
    )


def _rung(rung: Rung) -> records.Rung:
    preference = rung.preference
    return records.Rung(
        judge=rung.judge,
        p_bar=None if preference is None else preference.p_bar,
        uncertainty=None if preference is None else preference.uncertainty,
        threshold=rung.threshold,
    )


def single_judgment(
    judged: Judgment, identifier: str | int | None, *, explanation: str | None = None
) -> records.Judgment:
    """The judgment of the request that is being answered."""
    more = {
        "words": in_words(judged),
        "explanation": explanation,
        "usage": usage_of_request(),
    }
    return judgment(judged, identifier, kind=records.SingleJudgment, **more)


def judgment_batch(
    items: Sequence[BatchItem], outcomes: Sequence[Outcome]
) -> records.JudgmentBatch:
    """The outcomes of the batch of the request that is being answered."""
    both = zip(items, outcomes, strict=True)
    results = tuple(_result(item.id, outcome) for item, outcome in both)
    return records.JudgmentBatch(results=results, usage=usage_of_request())


def _result(identifier: str | int | None, outcome: Outcome) -> records.Judgment | records.ItemError:
    if isinstance(outcome, ScopeJudgeError):
        return records.ItemError(id=identifier, error=problem_of(outcome))
    return judgment(outcome, identifier, kind=records.Judgment)


def usage_of_request() -> records.RequestUsage:
    """The usage of the request that is being answered."""
    usage = CURRENT_FLOW.get().usage
    large = records.LargeUsage(
        comparisons=usage.escalated,
        engine_prompts=usage.large_prompts,
        prompt_tokens=usage.large_prompt_tokens,
    )
    return records.RequestUsage(
        engine_prompts=usage.engine_prompts,
        prompt_tokens=usage.prompt_tokens,
        large=large if usage.escalated else None,
    )


def rewards(
    group: GroupRewards, *, comparisons: bool, kind: type[records.Rewards], **more: Any
) -> records.Rewards:
    """The rewards of a group; `comparisons` includes each judgment."""
    rows = group.standings

    def other(place: int) -> int | None:
        # The index of the reference is the number of responses.
        return place if place < len(rows) else None

    pairs = [(*one.pair, one.outcome) for one in group.compared]
    judged = tuple(
        records.Comparison(a=a, b=other(b), judgment=judgment(outcome, None, kind=records.Judgment))
        for a, b, outcome in pairs
        if comparisons and isinstance(outcome, Judgment)
    )
    return kind(
        rewards=tuple(row.reward for row in rows),
        reasons=tuple(row.reason for row in rows),
        accepted=tuple(row.accepted for row in rows),
        compared=tuple(row.compared for row in rows),
        ties=tuple(row.ties for row in rows),
        errors=tuple(
            records.ComparisonError(a=a, b=other(b), error=problem_of(outcome))
            for a, b, outcome in pairs
            if isinstance(outcome, ScopeJudgeError)
        ),
        comparisons=judged if comparisons else None,
        **more,
    )


def single_rewards(group: GroupRewards, *, comparisons: bool) -> records.Rewards:
    """The rewards of the request that is being answered, which has one group."""
    return rewards(
        group,
        comparisons=comparisons,
        kind=records.SingleRewards,
        basis=_basis([group]),
        usage=usage_of_request(),
    )


def rewards_batch(
    groups: Sequence[GroupRewards | RequestError], *, comparisons: bool
) -> records.RewardsBatch:
    """The outcomes of several groups."""
    return records.RewardsBatch(
        groups=tuple(
            records.GroupError(error=problem_of(group))
            if isinstance(group, RequestError)
            else rewards(group, comparisons=comparisons, kind=records.Rewards)
            for group in groups
        ),
        basis=_basis([group for group in groups if isinstance(group, GroupRewards)]),
        usage=usage_of_request(),
    )


def _basis(groups: Sequence[GroupRewards]) -> records.Basis | None:
    """What the judgments have in common; those of one request use one version of the set."""
    outcomes = (pair.outcome for group in groups for pair in group.compared)
    judged = next((outcome for outcome in outcomes if isinstance(outcome, Judgment)), None)
    if judged is None:
        return None
    shown = judgment(judged, None, kind=records.Judgment)
    names = (field.name for field in dataclasses.fields(records.Basis))
    return records.Basis(**{name: getattr(shown, name) for name in names})


def _scoring(services: Services) -> records.Scoring | None:
    scoring: Any = services.identity.described.get("scoring")
    if scoring is None:
        return None
    if scoring["kind"] != "votes":
        return records.Scoring(**{**scoring, "left_out": tuple(scoring["left_out"])})
    pairs = services.telemetry.voted_pairs
    share = services.telemetry.unanimous_pairs / pairs if pairs else None
    return records.Scoring(
        **{**scoring, "left_out": tuple(scoring["left_out"])},
        pairs=pairs,
        unanimous=share,
        # A few pairs say nothing about a share.
        advice=advice_on_unanimous(share) if pairs >= _FEWEST_PAIRS else None,
    )


def info(services: Services, *, caller: str) -> records.Info:
    """Describes a running service to a caller of that name."""
    identity, defaults, limits = services.identity, services.defaults, services.limits
    # A kind of judge describes itself with its own fields.
    described: Callable[[str], Any] = identity.described.get
    server = described("decision_server")
    return records.Info(
        version=__version__,
        commit=COMMIT,
        judge=identity.name,
        fingerprint=identity.fingerprint,
        kind=described("kind"),
        model=described("model"),
        dtype=described("dtype"),
        label_tokens=described("label_tokens"),
        prefill=described("prefill"),
        template=described("template"),
        head_dtype=described("head_dtype"),
        scoring=_scoring(services),
        decision_server=server
        and records.DecisionServer(**{**server, "hosts": tuple(server["hosts"])}),
        rungs=tuple(records.JudgeOfCascade(**rung) for rung in described("rungs") or ()) or None,
        runtime=identity.runtime,
        alpha_bounds=PROMISE,
        default_alpha=defaults.alpha,
        default_guarantee=defaults.guarantee,
        default_delta=defaults.delta,
        min_label_mass=services.calibrations.min_label_mass,
        on_alarm=services.monitor.on_alarm,
        audit_rate=services.auditor.rate,
        limits=records.Limits(
            max_batch=limits.max_batch,
            max_body_bytes=limits.max_body_bytes,
            max_prompt_tokens=limits.max_prompt_tokens,
        ),
        caller=caller,
    )
