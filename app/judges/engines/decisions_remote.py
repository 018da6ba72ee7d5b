"""Decision servers over HTTP: finds their dialect, and asks for choices in both orders."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from app.core.errors import EngineUnavailableError, JudgmentFailedError, StartupError
from app.judges.engines.decisions_dialects import DIALECTS, DecisionDialect, Texts, decimals_of
from app.judges.engines.openai_dialects import tokens_of, without_control_tokens
from app.judges.engines.openai_servers import Endpoints, Server, ServerFailedError, ServerPool
from app.judges.engines.turns import run_all
from app.ports import (
    BothOrders,
    CallTimes,
    Choice,
    ChoiceQuestion,
    DecisionIdentity,
    OnStage,
    OptionProbabilities,
    PromptError,
    no_stage,
)

# The server does not have the route, or its model cannot answer it (vLLM: 501).
_NO_SUCH_ROUTE = (404, 405, 501)
# The server does not take this form of request.
_REFUSED = (400, 422)
_NAME = re.compile(r"[!-~]{1,100}")


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionOptions:
    """Options of the decision servers.

    Args:
        endpoints: The servers; all serve the same model.
        model: The model's name in requests.
    """

    endpoints: Endpoints
    model: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Form:
    """The form of requests that a server takes.

    Args:
        dialect: Dialect of requests and answers.
        together: Number of questions in one request, 1 or 2.
    """

    dialect: DecisionDialect
    together: int

    def __str__(self) -> str:
        return f"POST {self.dialect.path} in the dialect {self.dialect.name!r}"


# A start takes the first form that the server answers.
_FORMS = [_Form(dialect=dialect, together=n) for n in (2, 1) for dialect in DIALECTS]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Answered:
    """The answers to one choice, and the names of the models that gave them."""

    orders: BothOrders
    models: frozenset[str]


class RemoteDecisions:
    """A judge on decision servers; requests fail over if there are several.

    A choice is one request with both orders, or two requests if the servers take one question at a
    time. All answers must name the model that answered at the start: a host can put another version
    under the name in the requests at any time.

    Args:
        options: Servers and model.
    """

    def __init__(self, options: DecisionOptions) -> None:
        self._options = options
        self._servers = ServerPool(options.endpoints)
        # Set by start.
        self._question: ChoiceQuestion | None = None
        self._form = _FORMS[0]
        self._answered_as = ""
        # The other model that a server has answered as, until one answers as before.
        self._changed_to: str | None = None

    async def start(
        self, question: ChoiceQuestion, probes: Sequence[Choice], on_stage: OnStage = no_stage
    ) -> DecisionIdentity:
        options = self._options
        self._question = question
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
        answered = [
            one
            for of_server in await self._servers.on_each(
                lambda server: self._probed(server, probes)
            )
            for one in of_server
        ]
        self._answered_as = _one_model(answered)
        decimals = _decimals(answered)
        self._servers.start_probes(lambda server: self._rehearse(server, probes[0]))
        return DecisionIdentity(
            model=options.model,
            answered_as=self._answered_as,
            hosts=_hosts(options.endpoints.urls),
            dialect=self._form.dialect.name,
            questions_together=self._form.together,
            decimals=decimals,
        )

    async def _form_of(self, server: Server, probe: Choice) -> _Form:
        """Finds the form of requests that a server takes.

        Raises:
            ServerFailedError: It takes none, or fails in another way.
        """
        statuses: dict[str, int] = {}
        for form in _FORMS:
            path = form.dialect.path
            if statuses.get(path) in _NO_SUCH_ROUTE:
                continue
            status = await server.status(path, self._bodies(form, probe)[0])
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

    async def _probed(self, server: Server, probes: Sequence[Choice]) -> list[_Answered]:
        found = []
        for probe in probes:
            answered = await self._answered(server, probe)
            if isinstance(answered, PromptError):
                raise ServerFailedError(f"cannot judge at all: {answered.detail}")
            found.append(answered)
        return found

    async def _rehearse(self, server: Server, probe: Choice) -> None:
        orders = await self._orders(server, probe)
        if isinstance(orders, PromptError):
            raise ServerFailedError(f"cannot judge at all: {orders.detail}")
        self._changed_to = None

    async def stop(self) -> None:
        await self._servers.close()
        self._question = None

    async def choose(
        self, choices: Sequence[Choice], times: CallTimes | None = None
    ) -> list[BothOrders | PromptError]:
        if self._question is None:
            raise EngineUnavailableError("the judge is not running")
        times = times or CallTimes()
        with times.rendering():
            # Off the event loop: a search in a thousand long texts takes a while.
            safe = await asyncio.to_thread(lambda: [_without_control_tokens(c) for c in choices])

        async def ask(server: Server, places: Sequence[int]) -> list[BothOrders | PromptError]:
            return [await self._orders(server, safe[place], times) for place in places]

        try:
            answers = await self._servers.spread(
                ask, [_estimated_tokens(choice) for choice in safe], together=1, times=times
            )
            return [answers[place] for place in range(len(safe))]
        except EngineUnavailableError as exc:
            if self._changed_to is None:
                raise
            raise EngineUnavailableError(
                f"the judge's server answers as {_shown(self._changed_to)}, and the calibrations "
                f"of this service are for {_shown(self._answered_as)}: restart the service, and "
                "calibrate again",
                retry_after_s=exc.retry_after_s,
            ) from exc

    async def _orders(
        self, server: Server, choice: Choice, times: CallTimes | None = None
    ) -> BothOrders | PromptError:
        """Asks in both orders.

        Raises:
            ServerFailedError: Another model has answered than at the start.
        """
        answered = await self._answered(server, choice, times)
        if isinstance(answered, PromptError):
            return answered
        for model in answered.models - {self._answered_as}:
            self._changed_to = model
            raise ServerFailedError(
                f"answers as {_shown(model)}, and answered as {_shown(self._answered_as)} at the "
                "start"
            )
        return answered.orders

    async def _answered(
        self, server: Server, choice: Choice, times: CallTimes | None = None
    ) -> _Answered | PromptError:
        assert self._question is not None
        form, question, times = self._form, self._question, times or CallTimes()
        posts = (server.post(form.dialect.path, body) for body in self._bodies(form, choice))
        read: list[OptionProbabilities] = []
        models: set[str] = set()
        for answer in await run_all(posts):
            if isinstance(answer, PromptError):
                return answer
            model = answer.get("model")
            if not isinstance(model, str) or not model:
                return JudgmentFailedError("the judge's server does not say which model answered")
            found = form.dialect.read(answer, question, form.together)
            if isinstance(found, PromptError):
                return found
            times.prompt_tokens += tokens_of(answer, "input_tokens")
            models.add(model)
            read += found
        return _Answered(orders=BothOrders(*read), models=frozenset(models))

    def _bodies(self, form: _Form, choice: Choice) -> list[dict[str, Any]]:
        """The requests that ask for a choice in both orders."""
        assert self._question is not None
        orders: list[Texts] = [(choice.first, choice.second), (choice.second, choice.first)]
        return [
            form.dialect.body(
                self._options.model, self._question, choice.context, orders[i : i + form.together]
            )
            for i in range(0, len(orders), form.together)
        ]


def _without_control_tokens(choice: Choice) -> Choice:
    return Choice(*map(without_control_tokens, choice))


def _estimated_tokens(choice: Choice) -> int:
    """Tokens of both orders, at four characters a token."""
    return 2 * sum(map(len, choice)) // 4 + 1


def _one_model(answered: Sequence[_Answered]) -> str:
    models = sorted({model for one in answered for model in one.models})
    if len(models) > 1:
        raise StartupError(
            f"the judge's servers answer as {' and as '.join(map(_shown, models))}: a calibration "
            "is for one model, so name one version in SCOPE_MODEL"
        )
    return models[0]


def _decimals(answered: Sequence[_Answered]) -> int | None:
    orders = [order for one in answered for order in one.orders]
    try:
        return decimals_of(p for order in orders for p in (order.first, order.second))
    except ValueError:
        raise StartupError(
            f"the judge's servers answer {len(orders)} different questions with the probabilities "
            "0 and 1 only, which rank nothing: use another model"
        ) from None


def _hosts(urls: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({urlsplit(url).hostname or "" for url in urls}))


def _shown(model: str) -> str:
    """A model's name for people and logs; a server could send a judged text in its place."""
    return repr(model) if _NAME.fullmatch(model) else "a model without a plain name"
