"""Decision servers as a judge: a choice between the two responses, asked in both orders."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from app.core.comparison import Comparison
from app.core.errors import JudgmentFailedError, StartupError
from app.core.fingerprint import JudgeIdentity, digest_of_json
from app.core.preference import Score
from app.judges.engines.decision_dialects import (
    DIALECTS,
    INSTRUCTIONS,
    OPTIONS,
    DecisionDialect,
    OptionProbabilities,
    decimals_of,
)
from app.judges.engines.openai_dialects import tokens_of, without_control_tokens
from app.judges.engines.openai_servers import Endpoints, Server, ServerFailedError, ServerPool
from app.judges.engines.turns import run_all
from app.judges.label_logits import LEAST_LABEL_MASS
from app.judges.prompts import Fences, rendered
from app.judges.quoting import FENCE_VERSION, Fence
from app.judges.scorer import ScoreError, lost
from app.observability.telemetry import Telemetry
from app.ports import CallTimes, OnStage, PromptError, no_stage

_HEADING = "[User Question]"
# Beginnings of lines that servers put around the texts, so that no text looks like a part of the
# request: vLLM 0.32.0 and SGLang (the options are lettered), and Clef-Omni on vLLM.
_SERVERS_LINES = (
    "Question",
    "A: Response 1",
    "B: Response 2",
    "Answer with the letter of one option only",
    "Answer with one label only",
    "State",
    "Schema Fields",
    "Allowed Options",
    "Option 1",
    "End Field",
)
_FENCES = Fences.made(
    lambda turns: Fence.against((_HEADING, *OPTIONS, *_SERVERS_LINES), turns=turns)
)
# No model is certain which of these is better, so their probabilities show how they are rounded.
PROBES = tuple(
    Comparison.of(*texts)
    for texts in (
        ("Name a color.", "Red.", "Blue."),
        ("Name a fruit.", "An apple.", "A pear."),
        ("Name a number below ten.", "Four.", "Seven."),
        ("Name an animal.", "A horse.", "A cow."),
        ("Name a town in France.", "Lyon.", "Nantes."),
        ("Name a day of the week.", "Tuesday.", "Thursday."),
        ("Name a musical instrument.", "A violin.", "A cello."),
        ("Name a metal.", "Copper.", "Iron."),
    )
)
# The server does not have the route, or its model cannot answer it (vLLM: 501).
_NO_SUCH_ROUTE = (404, 405, 501)
# The server does not take this form of request.
_REFUSED = (400, 422)
_NAME = re.compile(r"[!-~]{1,100}")


class Choice(NamedTuple):
    """Two texts, one of which answers the context better."""

    context: str
    first: str
    second: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Form:
    """The form of requests that a server takes, with one question in each or both."""

    dialect: DecisionDialect
    together: int

    def __str__(self) -> str:
        return f"POST {self.dialect.path} in the dialect {self.dialect.name!r}"

    def bodies(self, model: str, choice: Choice) -> list[dict[str, Any]]:
        """The requests that ask for a choice in both orders."""
        orders = [(choice.first, choice.second), (choice.second, choice.first)]
        return [
            self.dialect.body(model, choice.context, orders[i : i + self.together])
            for i in range(0, len(orders), self.together)
        ]


# A start takes the first form that the server answers.
_FORMS = [_Form(dialect=dialect, together=n) for n in (2, 1) for dialect in DIALECTS]


# The answers to a choice in both orders.
Answered = tuple[OptionProbabilities, OptionProbabilities]


class DecisionScorer:
    """Decision servers of one model; requests fail over if there are several.

    A choice is one request with both orders, or two requests if the servers take one question at a
    time. All answers must name the model that answered at the start: a host can put another version
    under the name in the requests at any time.
    """

    # Set by `start`.
    identity: JudgeIdentity

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        model: str,
        judge: str,
        max_prompt_tokens: int,
        telemetry: Telemetry,
    ) -> None:
        self._urls = endpoints.urls
        self._servers = ServerPool(endpoints)
        self._model = model
        self._judge = judge
        self._max_prompt_tokens = max_prompt_tokens
        self._telemetry = telemetry
        self._form = _FORMS[0]
        # The name in the first answer of all; empty before.
        self._answered_as = ""

    async def start(self, on_stage: OnStage = no_stage) -> None:
        """Finds out what the servers take, and asks the probes; see `Engine.start`."""
        probes = [choice_of(probe) for probe in PROBES]
        self._servers.connect()
        on_stage("finding the dialect of its servers")
        forms = await self._servers.on_each(lambda server: self._form_of(server, probes[0]))
        if len(set(forms)) > 1:
            raise StartupError(
                "the servers of SCOPE_OPENAI_URLS take different requests: "
                + "; ".join(str(form) for form in dict.fromkeys(forms))
            )
        self._form = forms[0]
        on_stage("asking its servers the first questions")

        async def probed(server: Server) -> list[Answered]:
            return [await self._rehearsed(server, probe) for probe in probes]

        answered = [one for each in await self._servers.on_each(probed) for one in each]
        self._servers.start_probes(lambda server: self._rehearsed(server, probes[0]))
        served = {
            "hosts": sorted({urlsplit(url).hostname or "" for url in self._urls}),
            "answered_as": self._answered_as,
            "dialect": self._form.dialect.name,
            "questions_together": self._form.together,
            "decimals": _decimals(answered),
        }
        self.identity = decision_identity(
            served,
            model=self._model,
            judge=self._judge,
            max_prompt_tokens=self._max_prompt_tokens,
        )

    async def stop(self) -> None:
        await self._servers.close()

    async def lost(self) -> str:
        return await lost(self._servers)

    async def score(self, comparisons: Sequence[Comparison]) -> list[Score | ScoreError]:
        if not comparisons:
            return []
        times = CallTimes()
        with times.rendering():
            choices = await rendered(_safe_choice_of, comparisons)

        async def ask(server: Server, places: Sequence[int]) -> list[Answered | PromptError]:
            return [await self._answered(server, choices[place], times) for place in places]

        with self._telemetry.calling(times, comparisons=len(choices), prompts=2 * len(choices)):
            answers = await self._servers.spread(
                ask, [_estimated_tokens(choice) for choice in choices], together=1, times=times
            )
        largest = self.identity.largest_gap
        return [
            one if isinstance(one, PromptError) else score_of_orders(*one, largest=largest)
            for one in (answers[place] for place in range(len(choices)))
        ]

    def weakness(self, score: Score) -> str | None:
        if score.label_mass is None or score.label_mass >= LEAST_LABEL_MASS:
            return None
        return (
            f"the two options together have a probability of only {score.label_mass:.1e} in this "
            "judge's answer, so its preferences are unreliable; try another model"
        )

    async def _form_of(self, server: Server, probe: Choice) -> _Form:
        """Finds the form of requests that a server takes."""
        statuses: dict[str, int] = {}
        for form in _FORMS:
            path = form.dialect.path
            if statuses.get(path) in _NO_SUCH_ROUTE:
                continue
            body = form.bodies(self._model, probe)[0]
            status = (await server.send("POST", path, body=body)).status
            if status == 200:
                return form
            if status not in _NO_SUCH_ROUTE + _REFUSED:
                # A fault that may pass must not decide the dialect.
                raise ServerFailedError(f"answers POST {path} with status {status}")
            statuses[path] = status
        tried = ", ".join(f"POST {path} with status {status}" for path, status in statuses.items())
        raise ServerFailedError(
            f"answers {tried}: it serves no decisions, or not with the model that SCOPE_MODEL names"
        )

    async def _rehearsed(self, server: Server, probe: Choice) -> Answered:
        answered = await self._answered(server, probe, CallTimes())
        if isinstance(answered, PromptError):
            raise ServerFailedError(f"cannot judge at all: {answered.detail}")
        return answered

    async def _answered(
        self, server: Server, choice: Choice, times: CallTimes
    ) -> Answered | PromptError:
        """Asks for a choice in both orders; fails if another model answers than the first time."""
        dialect, together = self._form.dialect, self._form.together
        posts = (server.post(dialect.path, body) for body in self._form.bodies(self._model, choice))
        orders: list[OptionProbabilities] = []
        for answer in await run_all(posts):
            if isinstance(answer, PromptError):
                return answer
            model = answer.get("model")
            if not isinstance(model, str) or not model:
                return JudgmentFailedError("the judge's server does not say which model answered")
            read = dialect.read(answer, together)
            if isinstance(read, PromptError):
                return read
            times.prompt_tokens += tokens_of(answer, "input_tokens")
            orders += read
            self._answered_as = self._answered_as or model
            if model != self._answered_as:
                raise ServerFailedError(
                    f"answers as {_shown(model)}, and the first answer was from "
                    f"{_shown(self._answered_as)}: a calibration is for one model, so name one "
                    "version in SCOPE_MODEL, restart the service, and calibrate again"
                )
        forward, reverse = orders
        return forward, reverse


def choice_of(comparison: Comparison) -> Choice:
    """Renders a comparison: the question is the context, and the responses are the options."""
    question, first, second = _FENCES.parts(comparison)
    return Choice(context=f"{_HEADING}\n{question}", first=first, second=second)


def _safe_choice_of(comparison: Comparison) -> Choice:
    return Choice(*map(without_control_tokens, choice_of(comparison)))


def _estimated_tokens(choice: Choice) -> int:
    """Tokens of both orders, at four characters a token."""
    return 2 * sum(map(len, choice)) // 4 + 1


def _decimals(answered: Sequence[Answered]) -> int | None:
    orders = [order for one in answered for order in one]
    try:
        return decimals_of(p for order in orders for p in (order.first, order.second))
    except ValueError:
        raise StartupError(
            f"the judge's servers answer {len(orders)} different questions with the probabilities "
            "0 and 1 only, which rank nothing: use another model"
        ) from None


def _shown(model: str) -> str:
    """A model's name for people and logs; a server could send a judged text in its place."""
    return repr(model) if _NAME.fullmatch(model) else "a model without a plain name"


def decision_identity(
    served: Mapping[str, Any], *, model: str, judge: str, max_prompt_tokens: int
) -> JudgeIdentity:
    """Returns the identity of decision servers with the question that they are asked.

    Args:
        served: `decision_server` of GET /info: the names of their hosts, the model's name in
            answers, their dialect, the number of questions in a request, and the decimals of
            probabilities, None if they are not rounded.
    """
    template = {
        "heading": _HEADING,
        "instructions": INSTRUCTIONS,
        "options": list(OPTIONS),
        "lines": list(_SERVERS_LINES),
    }
    return JudgeIdentity(
        name=judge,
        inputs={
            "kind": "decision server",
            "model": model,
            **served,
            **template,
            "fence": FENCE_VERSION,
        },
        described={
            "kind": "decision server",
            "model": model,
            "template": digest_of_json(template),
            "decision_server": served,
        },
        max_prompt_tokens=max_prompt_tokens,
        largest_gap=largest_gap(served["decimals"]),
    )


def largest_gap(decimals: int | None) -> float:
    """Returns the gap that stands for the probabilities 0 and 1.

    A rounded 1 is at least half a step from the next smaller number. Without rounding, half a step
    is that of a float64 at 1.
    """
    half_a_step = 2.0**-54 if decimals is None else 0.5 * 10.0**-decimals
    return math.log1p(-half_a_step) - math.log(half_a_step)


def score_of_orders(
    forward: OptionProbabilities, reverse: OptionProbabilities, *, largest: float
) -> Score:
    """The score of a comparison from its answers in both orders; see `largest_gap`."""
    masses = [order.label_mass for order in (forward, reverse) if order.label_mass is not None]
    return Score(
        gap_fwd=_gap(forward, largest),
        # In the reverse order response_a is the second option. `0.0 - x`, because `-x` makes -0.0
        # of a tie.
        gap_rev=0.0 - _gap(reverse, largest),
        label_mass=min(masses) if len(masses) == 2 else None,
    )


def _gap(order: OptionProbabilities, largest: float) -> float:
    """Log-odds of the option shown first, within [-largest, largest]."""
    if order.first == 0.0 or order.second == 0.0:
        return math.copysign(largest, order.first - order.second)
    return max(-largest, min(largest, math.log(order.first) - math.log(order.second)))
