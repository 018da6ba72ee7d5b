"""A cascade: the judge of this process answers first, and a large one elsewhere what is left.

The large judge is another scope-judge service, which is asked for scores only. It may be of any
kind. What it alone could decide is an abstention while it does not answer: the small judge's
verdict never takes its place.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import httpx

from app.core.comparison import Comparison, Unscored
from app.core.errors import (
    ControlTokenError,
    EngineUnavailableError,
    JudgmentFailedError,
    PromptTooLongError,
    StartupError,
    UnavailableError,
)
from app.core.fingerprint import JudgeIdentity, cascade_inputs
from app.core.preference import NoScore, Score, score_of_json
from app.flow import CURRENT_FLOW
from app.judges.engines.openai_servers import (
    Endpoints,
    Server,
    ServerBusyError,
    ServerFailedError,
    ServerPool,
    parts_of,
)
from app.judges.engines.turns import Pace, run_all
from app.judges.scorer import ScoreError, ScoreOutcome, Scorer, lost
from app.observability.telemetry import Telemetry
from app.ports import OnStage, no_stage

# Pairs of one request, and their characters as a share of the service's largest body. The gate of
# the service counts brackets up to the same share, so it refuses no request of several pairs.
_TOGETHER = 16
_SHARE_OF_BODY = 20
# A start waits for the large judge, which may be loading.
_START_S = 120.0
# A pair that waits for longer than a request may take is an abstention: answers are in time.
_WAITS = 1.1
_WINDOW_S = 60.0
# Below this number a minute, the largest share of escalations does not apply.
_FREE = 10

_AWAY = NoScore(reason="escalation_unavailable")
_PROBE = Comparison.of("Which is larger, 2 or 1?", "2", "1")
_ITEM_ERRORS: Mapping[str, type[ScoreError]] = {
    error.code: error for error in (PromptTooLongError, ControlTokenError)
}
_UNSCORED: tuple[Unscored, ...] = ("thought_unfinished",)


class LargeJudge:
    """The judge of another scope-judge service, as a scorer.

    A pair that the service does not score in time is `escalation_unavailable`. After a request that
    failed, and if the service has another judge than at the start, nothing is asked until the judge
    of the start scores a probe. A service that is busy (429 or 503) is asked again.
    """

    identity: JudgeIdentity

    def __init__(
        self, endpoints: Endpoints, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._endpoints = endpoints
        # Most pairs and most characters of a request.
        self._most, self._most_characters = 1, 0
        self._servers = ServerPool(endpoints, transport)
        self._pace = Pace()

    async def start(self, on_stage: OnStage = no_stage) -> None:
        """Asks the service which judge it has, and waits for it for two minutes."""
        self._servers.connect()
        try:
            (self.identity,) = await self._servers.on_each(
                lambda server: self._met(server, on_stage)
            )
        except StartupError as exc:
            raise StartupError(f"SCOPE_ESCALATE_URL: {exc}") from exc
        self._servers.start_probes(self._rehearse)

    async def _met(self, server: Server, on_stage: OnStage) -> JudgeIdentity:
        """The judge's identity, as far as this process knows it."""
        until = time.monotonic() + _START_S
        while True:
            try:
                info = await server.get("/info")
                break
            except ServerBusyError as exc:
                if time.monotonic() > until:
                    raise ServerFailedError("is busy") from exc
            except ServerFailedError as exc:
                # A proxy answers with 5xx for a service that is loading.
                if (exc.status or 500) < 500 or time.monotonic() > until:
                    raise
            on_stage(f"waiting for the large judge at {server.url}")
            await asyncio.sleep(self._endpoints.probe_every_s)
        try:
            if not isinstance(info, dict):
                raise TypeError
            name, fingerprint, kind = (str(info[key]) for key in ("judge", "fingerprint", "kind"))
            limits = info["limits"]
            longest = int(limits["max_prompt_tokens"])
            self._most = max(1, min(_TOGETHER, int(limits["max_batch"])))
            self._most_characters = int(limits["max_body_bytes"]) // _SHARE_OF_BODY
        except (KeyError, TypeError, ValueError) as exc:
            raise ServerFailedError("is not a scope-judge service") from exc
        if kind == "cascade":
            raise ServerFailedError("is a cascade itself: name its large judge")
        return JudgeIdentity(
            name=name,
            inputs={"fingerprint": fingerprint},
            described={"kind": kind},
            max_prompt_tokens=longest,
        )

    async def stop(self) -> None:
        await self._servers.close()

    async def lost(self) -> str:
        return await lost(self._servers)

    def weakness(self, score: Score) -> str | None:
        # The other service says it.
        return None

    async def score(self, comparisons: Sequence[Comparison]) -> list[ScoreOutcome]:
        with self._pace.call(len(comparisons)) as turns:
            sizes = [sum(map(len, comparison.texts)) for comparison in comparisons]
            answers = await run_all(
                self._score([comparisons[place] for place in part], turns[part[0]])
                for part in parts_of(sizes, most=self._most, largest=self._most_characters)
            )
        return [outcome for answer in answers for outcome in answer]

    async def _score(self, part: Sequence[Comparison], turn: int) -> list[ScoreOutcome]:
        try:
            async with asyncio.timeout(_WAITS * self._endpoints.timeout_s):
                outcomes, usage = await self._servers.run(
                    lambda server: self._asked(server, part),
                    # At four characters a token, in both orders.
                    tokens=sum(len(text) for one in part for text in one.texts) // 2,
                    turn=turn,
                )
        except (TimeoutError, UnavailableError):
            return [_AWAY] * len(part)
        finally:
            self._pace.note_done(len(part))
        CURRENT_FLOW.get().usage.update(escalated=len(part), **usage)
        return outcomes

    async def _rehearse(self, server: Server) -> None:
        (outcome,), _ = await self._asked(server, [_PROBE])
        if isinstance(outcome, JudgmentFailedError):
            raise ServerFailedError("does not score a probe")

    async def _asked(
        self, server: Server, part: Sequence[Comparison]
    ) -> tuple[list[ScoreOutcome], dict[str, int]]:
        """Returns the scores of one request, and the work of the large judge for it."""
        body = {"comparisons": list(map(_written, part))}
        reply = await server.send("POST", "/scores", body=body)
        if reply.status == 413 and len(part) == 1:
            too_long = PromptTooLongError("the pair is too long for the large judge's service")
            return [too_long], {}
        if reply.status != 200:
            raise ServerFailedError(f"answers with status {reply.status}", status=reply.status)
        answer = reply.fields or {}
        expected, found = self.identity.inputs["fingerprint"], answer.get("fingerprint")
        if found != expected:
            raise ServerFailedError(
                f"has another judge ({str(found)[:12]}) than at the start "
                f"({self.identity.name!r}, {str(expected)[:12]})"
            )
        try:
            usage = answer["usage"]
            used = {
                "large_prompts": int(usage["engine_prompts"]),
                "large_prompt_tokens": int(usage["prompt_tokens"]),
            }
            scores = [_outcome(row) for _, row in zip(part, answer["scores"], strict=True)]
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as exc:
            raise ServerFailedError("answers with something other than scores") from exc
        return scores, used


def _written(comparison: Comparison) -> dict[str, Any]:
    """The comparison as the other service reads it."""
    question = [{"role": turn.role, "content": turn.content} for turn in comparison.question]
    return {
        "question": question,
        "response_a": list(comparison.response_a),
        "response_b": list(comparison.response_b),
    }


def _outcome(row: Any) -> ScoreOutcome:
    """Reads the score of an answer; raises if it is none."""
    if row.get("error") is not None:
        kind = _ITEM_ERRORS.get(row["error"]["code"], JudgmentFailedError)
        return kind("the large judge cannot judge this pair: " + str(row["error"]["title"]))
    if row.get("reason") in _UNSCORED:
        return NoScore(reason=row["reason"])
    return score_of_json(row["gap_fwd"], row["gap_rev"], row["label_mass"])


class EscalationShare:
    """Bounds the share of comparisons that reach the large judge, within the last minute.

    Args:
        most: Largest share, in [0, 1]; ten comparisons a minute are free.
        now: Returns a time in seconds that never goes back.
    """

    def __init__(self, most: float, now: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._now = now
        self._recent: deque[tuple[float, int, int]] = deque()

    def take(self, asked: int, wanted: int) -> int:
        """Returns how many of the wanted ones, of the comparisons that came, may be escalated."""
        now = self._now()
        while self._recent and self._recent[0][0] <= now - _WINDOW_S:
            self._recent.popleft()
        all_asked = asked + sum(each[1] for each in self._recent)
        taken = sum(each[2] for each in self._recent)
        allowed = max(_FREE, int(self._most * all_asked)) if self._most < 1.0 else all_asked
        given = max(0, min(wanted, allowed - taken))
        self._recent.append((now, asked, given))
        return given


# Whether the small judge's scores decide their comparisons, which are named by their places.
Decides = Callable[[Sequence[int], Sequence[Score]], Sequence[bool]]


@dataclass(frozen=True, kw_only=True)
class CascadeScorer:
    """Two judges as one. `score` asks both about every comparison, as sets need it."""

    small: Scorer
    large: Scorer
    share: EscalationShare
    telemetry: Telemetry

    @cached_property
    def names(self) -> tuple[str, str]:
        """The names of the small and of the large judge, which differ."""
        small, large = self.small.identity.name, self.large.identity.name
        return (small, large) if small != large else (f"{small} (small)", f"{large} (large)")

    @cached_property
    def identity(self) -> JudgeIdentity:
        """The identity of both together."""
        small, large = self.small.identity, self.large.identity
        # The large judge's own, as its service says it.
        both = small.fingerprint, str(large.inputs["fingerprint"])
        rungs = zip(self.names, both, strict=True)
        return JudgeIdentity(
            name=", then ".join(self.names)[:256],
            inputs=cascade_inputs(*both),
            described={
                **small.described,
                "kind": "cascade",
                "rungs": [{"judge": name, "fingerprint": own} for name, own in rungs],
            },
            max_prompt_tokens=min(small.max_prompt_tokens, large.max_prompt_tokens),
            runtime=small.runtime,
        )

    async def score(self, comparisons: Sequence[Comparison]) -> list[ScoreOutcome]:
        """Scores each comparison with both judges; the error of either is the comparison's."""
        outcomes = list(await self.small.score(comparisons))
        wanted = [place for place, one in enumerate(outcomes) if isinstance(one, Score | NoScore)]
        if await self._escalate(comparisons, outcomes, wanted, most=len(wanted)):
            raise EngineUnavailableError(f"the large judge {self.names[1]!r} does not answer")
        return outcomes

    async def score_in_turn(
        self, comparisons: Sequence[Comparison], decides: Decides
    ) -> list[ScoreOutcome]:
        """Asks the large judge only about what the small one does not decide.

        Returns:
            For each comparison, in order, the score of the judge that decides; with the small
            judge's score in it where the large one was asked, or could not be.
        """
        outcomes = list(await self.small.score(comparisons))
        scored = {place: one for place, one in enumerate(outcomes) if isinstance(one, Score)}
        decided = dict(zip(scored, decides(list(scored), list(scored.values())), strict=True))
        wanted = [
            place
            for place, one in enumerate(outcomes)
            if isinstance(one, Score | NoScore) and not decided.get(place)
        ]
        most = self.share.take(len(comparisons), len(wanted))
        away = await self._escalate(comparisons, outcomes, wanted, most=most)
        outcome = self.telemetry.escalations.labels
        outcome("answered").inc(most - away)
        outcome("unavailable").inc(away)
        outcome("over_share").inc(len(wanted) - most)
        return outcomes

    async def _escalate(
        self,
        comparisons: Sequence[Comparison],
        outcomes: list[ScoreOutcome],
        wanted: Sequence[int],
        *,
        most: int,
    ) -> int:
        """Asks the large judge about the first of some places; returns how many it left out."""
        asked = [comparisons[place] for place in wanted[:most]]
        answers = list(await self.large.score(asked)) if asked else []
        for place, large in zip(wanted, answers + [_AWAY] * (len(wanted) - most), strict=True):
            small = outcomes[place]
            if isinstance(large, Score | NoScore) and isinstance(small, Score | NoScore):
                outcomes[place] = replace(large, small=small)
            else:
                outcomes[place] = large
        return answers.count(_AWAY)

    def weakness(self, score: Score) -> str | None:
        return self.small.weakness(score.small) if isinstance(score.small, Score) else None

    async def lost(self) -> str:
        # The large one can come back.
        return await self.small.lost()

    async def stop(self) -> None:
        await self.small.stop()
        await self.large.stop()
