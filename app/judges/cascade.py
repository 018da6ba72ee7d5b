"""A cascade: the judge of this process answers first, and a large one elsewhere what is left.

The large judge is another scope-judge service, which is asked for scores only. It may be of any
kind. What it alone could decide is an abstention while it does not answer: the small judge's
verdict never takes its place.
"""

import asyncio
import json
import logging
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import httpx

from app.core.comparison import Comparison
from app.core.errors import (
    ControlTokenError,
    EngineUnavailableError,
    JudgmentFailedError,
    OverloadedError,
    PromptTooLongError,
    StartupError,
    UnavailableError,
)
from app.core.fingerprint import JudgeIdentity, cascade_inputs
from app.core.score import NoScore, Score, Unscored, score_of_json
from app.fair_queue import CURRENT_FLOW
from app.judges.scorer import ScoreError, ScoreOutcome, Scorer
from app.observability.telemetry import Telemetry
from app.ports import OnStage, no_stage

logger = logging.getLogger("app.cascade")

# A request to the large judge: small enough that several run at once and none is refused.
_MOST_IN_REQUEST = 16
_MOST_BYTES = 2**20
_MOST_REQUESTS = 16
_LARGEST_ANSWER_BYTES = 2**22
# Requests that fail in a row until the circuit opens, and seconds between two probes.
_FAILURES = 3
_PROBE_EVERY_S = 2.0
_CONNECT_TIMEOUT_S = 5.0
# A start waits for the large judge, which may be loading.
_START_S = 120.0
_WINDOW_S = 60.0
# Below this number a minute, the largest share of escalations does not apply.
_FREE = 10

_PROBE = Comparison.of("Which is larger, 2 or 1?", "2", "1")
_ITEM_ERRORS: Mapping[str, type[ScoreError]] = {
    error.code: error for error in (PromptTooLongError, ControlTokenError)
}
_UNSCORED: tuple[Unscored, ...] = ("thought_unfinished",)


class LargeJudgeInfo(NamedTuple):
    """What the large judge's service says of itself.

    Args:
        name: Name of the judge.
        fingerprint: Its fingerprint.
        kind: Its kind.
        max_prompt_tokens: Longest prompt that it accepts.
        max_batch: Most comparisons of a request.
        max_body_bytes: Largest body of a request.
    """

    name: str
    fingerprint: str
    kind: str
    max_prompt_tokens: int
    max_batch: int
    max_body_bytes: int


class _RefusedError(Exception):
    """The service answers, and says that it cannot be asked like this. Internal."""


class LargeJudge:
    """The judge of another scope-judge service, as a scorer.

    A circuit opens after three requests in a row that failed, or at once if the service has another
    judge than at the start. Nothing is asked then, but a probe every two seconds; the circuit
    closes when the judge of the start has answered one.

    Args:
        url: Base URL of the service.
        api_key: Key with the role `judge`; empty for none.
        timeout_s: Longest time of one request.
        telemetry: Counts the work of the judge, and shows the circuit.
        transport: HTTP transport, for tests.
        sleep: Waits some seconds, for tests.
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        timeout_s: float,
        telemetry: Telemetry,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._url = _checked(url)
        if not re.fullmatch(r"[!-~]*", api_key):
            raise StartupError("SCOPE_ESCALATE_API_KEY contains characters that a key cannot have")
        self._timeout_s = timeout_s
        self._telemetry = telemetry
        self._sleep = sleep
        self._client = httpx.AsyncClient(
            base_url=self._url,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(timeout_s, connect=_CONNECT_TIMEOUT_S, pool=None),
            transport=transport,
        )
        self._places = asyncio.Semaphore(_MOST_REQUESTS)
        self._info: LargeJudgeInfo | None = None
        self._failures = 0
        self._probing: asyncio.Task[None] | None = None

    @property
    def info(self) -> LargeJudgeInfo:
        """The judge of the start."""
        assert self._info is not None, "the large judge has been started"
        return self._info

    @property
    def identity(self) -> JudgeIdentity:
        """The judge's identity, as far as this process knows it."""
        info = self.info
        return JudgeIdentity(
            name=info.name,
            inputs={"fingerprint": info.fingerprint},
            described={"kind": info.kind},
            max_prompt_tokens=info.max_prompt_tokens,
        )

    async def start(self, on_stage: OnStage = no_stage) -> None:
        """Asks the service which judge it has, and waits for it for two minutes.

        Raises:
            StartupError: It does not answer, or cannot be the large judge; the message says why.
        """
        waited = 0.0
        while True:
            try:
                self._info = await self._asked_info()
                break
            except _RefusedError as exc:
                raise StartupError(f"SCOPE_ESCALATE_URL: {self._url} {exc}") from exc
            except UnavailableError as exc:
                if waited >= _START_S:
                    raise StartupError(f"SCOPE_ESCALATE_URL: {exc}") from exc
            on_stage(f"waiting for the large judge at {self._url}")
            await self._sleep(_PROBE_EVERY_S)
            waited += _PROBE_EVERY_S
        if self.info.kind == "cascade":
            raise StartupError(
                f"SCOPE_ESCALATE_URL: {self._url} is a cascade itself; name its large judge"
            )

    async def stop(self) -> None:
        """Ends the requests; the service keeps running."""
        if self._probing is not None:
            self._probing.cancel()
        await self._client.aclose()

    async def lost(self) -> str:
        """Waits forever: a service elsewhere can always come back."""
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never

    def weakness(self, score: Score) -> str | None:
        """Returns None: the other service says it."""
        return None

    @property
    def is_open(self) -> bool:
        """Whether the circuit is open, so that only probes are sent."""
        return self._probing is not None and not self._probing.done()

    async def score(self, comparisons: Sequence[Comparison]) -> list[ScoreOutcome]:
        """Asks for the scores of comparisons, in several requests if they are many.

        Raises:
            UnavailableError: One of the requests failed.
            JudgmentFailedError: The service answered with something else than scores.
        """
        asked = [asyncio.create_task(self._request(part)) for part in self._parts(comparisons)]
        try:
            return [outcome for part in asked for outcome in await part]
        finally:
            for part in asked:
                part.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    def _parts(self, comparisons: Sequence[Comparison]) -> list[list[Any]]:
        """Cuts comparisons into the lists of several requests."""
        parts: list[list[Any]] = []
        most = min(_MOST_IN_REQUEST, self.info.max_batch)
        most_bytes, size = min(_MOST_BYTES, self.info.max_body_bytes // 2), 0
        for comparison in comparisons:
            own = sum(map(len, comparison.texts))
            if not parts or len(parts[-1]) >= most or size + own > most_bytes:
                parts.append([])
                size = 0
            parts[-1].append(_written(comparison))
            size += own
        return parts

    async def _request(self, part: list[Any]) -> list[ScoreOutcome]:
        """Sends one request, and counts it for the circuit."""
        async with self._places:
            if self.is_open:
                raise EngineUnavailableError(f"the large judge {self.info.name!r} does not answer")
            try:
                answer = await self._send("POST", "/scores", {"comparisons": part})
                outcomes = self._read(answer, len(part))
            except OverloadedError:
                # It works, and has too much to do.
                raise
            except UnavailableError as exc:
                self._failures += 1
                if self._failures >= _FAILURES:
                    self._open(str(exc))
                raise
            except _RefusedError as exc:
                self._open(f"the large judge's service {exc}")
                raise EngineUnavailableError(f"the large judge's service {exc}") from exc
        self._failures = 0
        usage = answer.get("usage") or {}
        prompts, tokens = int(usage.get("engine_prompts", 0)), int(usage.get("prompt_tokens", 0))
        self._telemetry.count_large_prompts(prompts)
        own = CURRENT_FLOW.get().usage
        own.escalated += len(part)
        own.large_prompts += prompts
        own.large_prompt_tokens += tokens
        return outcomes

    def _read(self, answer: Mapping[str, Any], asked: int) -> list[ScoreOutcome]:
        fingerprint = answer.get("fingerprint")
        if fingerprint != self.info.fingerprint:
            raise _RefusedError(
                f"has another judge ({str(fingerprint)[:12]}) than at the start "
                f"({self.info.name!r}, {self.info.fingerprint[:12]})"
            )
        scores = answer.get("scores")
        if not isinstance(scores, list) or len(scores) != asked:
            raise JudgmentFailedError("the large judge's service returned a wrong number of scores")
        return [_outcome(each) for each in scores]

    async def _asked_info(self) -> LargeJudgeInfo:
        answer = await self._send("GET", "/info", None)
        try:
            limits = answer["limits"]
            return LargeJudgeInfo(
                name=str(answer["judge"]),
                fingerprint=str(answer["fingerprint"]),
                kind=str(answer["kind"]),
                max_prompt_tokens=int(limits["max_prompt_tokens"]),
                max_batch=max(1, int(limits["max_batch"])),
                max_body_bytes=max(1, int(limits["max_body_bytes"])),
            )
        except (KeyError, TypeError, ValueError) as exc:
            raise _RefusedError("is not a scope-judge service") from exc

    async def _send(self, method: str, path: str, body: Any) -> dict[str, Any]:
        """Returns the JSON of one answer.

        Raises:
            UnavailableError: There is no answer, or one that says nothing about this request.
            _RefusedError: The service refuses requests like this.
        """
        # ASCII, because UTF-8 cannot encode half of a surrogate pair.
        content = None if body is None else json.dumps(body).encode("ascii")
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            # The timeouts of httpx are for each read.
            async with asyncio.timeout(self._timeout_s):
                reply = await self._client.request(method, path, content=content, headers=headers)
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL) as exc:
            reason = type(exc).__name__
            raise EngineUnavailableError(
                f"the large judge at {self._url} does not answer ({reason})"
            ) from exc
        if reply.status_code == 429:
            raise OverloadedError("the large judge is overloaded")
        if reply.status_code in (401, 403):
            raise _RefusedError("refuses SCOPE_ESCALATE_API_KEY")
        if reply.status_code in (404, 405):
            raise _RefusedError("is not a scope-judge service that answers with scores")
        if reply.status_code != 200 or len(reply.content) > _LARGEST_ANSWER_BYTES:
            raise EngineUnavailableError(
                f"the large judge's service answers with status {reply.status_code}"
            )
        try:
            answer = json.loads(reply.content)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise _RefusedError("does not answer with a JSON object")
        return answer

    def _open(self, reason: str) -> None:
        if not self.is_open:
            logger.warning("%s; nothing is escalated until a probe succeeds", reason)
            self._telemetry.show_escalation(is_open=True)
            self._probing = asyncio.create_task(self._probe())

    async def _probe(self) -> None:
        """Asks for the score of one pair until the judge of the start gives it."""
        while True:
            await self._sleep(_PROBE_EVERY_S)
            try:
                answer = await self._send("POST", "/scores", {"comparisons": [_written(_PROBE)]})
                self._read(answer, 1)
                break
            except (_RefusedError, UnavailableError, JudgmentFailedError):
                continue
        self._failures = 0
        self._telemetry.show_escalation(is_open=False)
        logger.info("the large judge %r answers again", self.info.name)


def _checked(url: str) -> str:
    """The base URL without a slash at its end; raises StartupError if it cannot be one."""
    try:
        parts = httpx.URL(url)
        usable = parts.scheme in ("http", "https") and bool(parts.host)
    except httpx.InvalidURL:
        usable = False
    if "@" in url:
        raise StartupError("SCOPE_ESCALATE_URL contains credentials: use SCOPE_ESCALATE_API_KEY")
    if not usable or "?" in url or "#" in url:
        raise StartupError(f"SCOPE_ESCALATE_URL: {url!r} is not a URL such as http://host:8000")
    return url.rstrip("/")


def _written(comparison: Comparison) -> dict[str, Any]:
    """The comparison as the other service reads it."""
    question = [{"role": turn.role, "content": turn.content} for turn in comparison.question]
    return {
        "question": question,
        "response_a": list(comparison.response_a),
        "response_b": list(comparison.response_b),
    }


def _outcome(row: Any) -> ScoreOutcome:
    """Reads one score of an answer."""
    try:
        if row.get("error") is not None:
            kind = _ITEM_ERRORS.get(row["error"]["code"], JudgmentFailedError)
            return kind("the large judge cannot judge this pair: " + str(row["error"]["title"]))
        if row.get("reason") in _UNSCORED:
            return NoScore(reason=row["reason"])
        return score_of_json(row["gap_fwd"], row["gap_rev"], row["label_mass"])
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return JudgmentFailedError("the large judge's service answered with something else")


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
    """Two judges as one. `score` asks both about every comparison, as sets need it.

    Args:
        small: The judge that is asked first.
        large: The judge that is asked about the rest.
        large_fingerprint: Its fingerprint.
        share: Bounds the use of the large judge.
        telemetry: Counts escalations.
    """

    small: Scorer
    large: Scorer
    large_fingerprint: str
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
        return JudgeIdentity(
            name=", then ".join(self.names)[:256],
            inputs=cascade_inputs(small.fingerprint, self.large_fingerprint),
            described={
                **small.described,
                "kind": "cascade",
                "rungs": [
                    {"judge": self.names[0], "fingerprint": small.fingerprint},
                    {"judge": self.names[1], "fingerprint": self.large_fingerprint},
                ],
            },
            max_prompt_tokens=min(small.max_prompt_tokens, large.max_prompt_tokens),
            runtime=small.runtime,
        )

    async def score(self, comparisons: Sequence[Comparison]) -> list[ScoreOutcome]:
        """Scores each comparison with both judges; the error of either is the comparison's."""
        outcomes = list(await self.small.score(comparisons))
        places = [place for place, one in enumerate(outcomes) if isinstance(one, Score | NoScore)]
        large = await self.large.score([comparisons[place] for place in places])
        for place, one in zip(places, large, strict=True):
            outcomes[place] = _joined(outcomes[place], one)
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
        scored = [place for place, one in enumerate(outcomes) if isinstance(one, Score)]
        decided = decides(scored, [one for one in outcomes if isinstance(one, Score)])
        settled = {place for place, is_decided in zip(scored, decided, strict=True) if is_decided}
        wanted = [
            place
            for place, one in enumerate(outcomes)
            if place not in settled and isinstance(one, Score | NoScore)
        ]
        given = wanted[: self.share.take(len(comparisons), len(wanted))]
        large = await self._asked([comparisons[place] for place in given])
        away = NoScore(reason="escalation_unavailable")
        for i, place in enumerate(wanted):
            outcomes[place] = _joined(outcomes[place], large[i] if i < len(given) else away)
        self.telemetry.count_escalations(over_share=len(wanted) - len(given))
        return outcomes

    async def _asked(self, comparisons: Sequence[Comparison]) -> Sequence[ScoreOutcome]:
        if not comparisons:
            return []
        try:
            scores = await self.large.score(comparisons)
        except (UnavailableError, JudgmentFailedError):
            self.telemetry.count_escalations(unavailable=len(comparisons))
            return [NoScore(reason="escalation_unavailable")] * len(comparisons)
        self.telemetry.count_escalations(answered=len(comparisons))
        return scores

    def weakness(self, score: Score) -> str | None:
        """Returns what the small judge says of its score."""
        return self.small.weakness(score.small) if isinstance(score.small, Score) else None

    async def lost(self) -> str:
        """Waits until the small judge can never score again; the large one can come back."""
        return await self.small.lost()

    async def stop(self) -> None:
        """Stops both."""
        await self.small.stop()
        await self.large.stop()


def _joined(small: ScoreOutcome, large: ScoreOutcome) -> ScoreOutcome:
    if isinstance(large, Score | NoScore) and isinstance(small, Score | NoScore):
        return replace(large, small=small)
    return large
