"""Two dialects of the OpenAI API: request bodies to send, and answers to read."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from app.core.errors import JudgmentFailedError, PromptTooLongError, RequestError
from app.judges.engines.chat_template import no_room
from app.judges.engines.rendering import PromptRenderer
from app.judges.engines.thinking import PLAIN, UseOfTemplate
from app.ports import Generated, LabelLogits, Prompt, PromptError, Sampling

# The most top log-probabilities that OpenAI's API returns, and vLLM by default.
TOP = 20
# vLLM writes this for the logarithm of zero, which JSON cannot express.
_LOG_ZERO = -9999.0
# A probability computed in 16 bits may be slightly above one.
_ROUNDING = 1e-2
# Without these, vLLM uses the model's generation_config.json, and a judge would answer differently
# on different servers.
_PLAIN_SAMPLING = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
# The end of a thought in the content of a message, where the server does not keep them apart.
_USUAL_END = "</think>"
# Spellings of the control tokens of common models: all that begin with "<|", and these names.
_CONTROL = re.compile(
    r"<(?=[|｜])"
    r"|<(?=/?(?:s|bos|eos|pad|unk|think|start_of_turn|end_of_turn|tool_call|tool_response)>)"
    r"|<(?=</?SYS>>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|THINK)\])"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """One prompt, ready to be sent: token ids or messages, and their (estimated) length."""

    content: list[Any]
    tokens: int


class WrittenThought(NamedTuple):
    """A thought as a server has written it; the token ids contain those of its end."""

    text: str
    ids: tuple[int, ...]
    ended: bool


class TokenDialect:
    """Sends token ids to /completions and reads the two labels by token id.

    This process renders the prompts. Control tokens inside texts therefore stay text, and the
    length of a prompt is known before it is sent.

    Args:
        prompt: Any prompt of the judge.
        context: Context in tokens, prompt and answer together.
    """

    path = "/completions"
    # Prompts of a request. 16 comparisons are enough to amortise the HTTP overhead, and few enough
    # that another server can quickly repeat the request of a server that dies.
    together = 32

    def __init__(
        self, model: str, renderer: PromptRenderer, prompt: Prompt, *, context: int
    ) -> None:
        self._model = model
        self._renderer = renderer
        self._context = context
        self.label_tokens = renderer.label_tokens(prompt)
        self.label_params = by_id_params(self.label_tokens)
        self.think_end = None if renderer.end is None else renderer.end.text
        self._after_thought = renderer.tokens_after_thought(prompt)

    def asks_of_thoughts(
        self, prompts: Sequence[Prompt], *, answer_tokens: int
    ) -> list[Ask | PromptError]:
        """Prepares prompts that end where the thought begins; see `asks`."""
        more = len(self._after_thought) + 1
        return [
            ids if isinstance(ids, RequestError) else self._fitting(ids, answer_tokens + more)
            for ids in self._renderer.token_ids(prompts, thinks_next=True)
        ]

    def thought_params(self, sampling: Sampling, place: int) -> dict[str, Any]:
        """Request parameters for thoughts, each up to its end."""
        end = self._renderer.end
        assert end is not None
        return {**self.text_params(sampling, place), **end.stops, "return_token_ids": True}

    def written_thought(self, choice: Any) -> WrittenThought | JudgmentFailedError:
        """Reads a thought from one choice of an answer."""
        end = self._renderer.end
        assert end is not None
        try:
            text, ids = choice["text"], tuple(choice["token_ids"])
            reason, at = choice["finish_reason"], choice["stop_reason"]
        except (TypeError, KeyError):
            return JudgmentFailedError(
                "the judge's server answered without the tokens of a thought"
            )
        if not isinstance(text, str) or reason not in ("stop", "length") or not _are_ids(ids):
            return _no_text()
        return WrittenThought(text, ids, end.is_reached(reason, at))

    def behind(self, ask: Ask | PromptError, thought: WrittenThought) -> Ask:
        """The prompt that reads the labels behind a thought."""
        assert isinstance(ask, Ask), "only a prompt that was sent has a thought"
        content = [*ask.content, *thought.ids, *self._after_thought]
        return Ask(content=content, tokens=len(content))

    def chat_frame(self, prompt: Prompt) -> str:
        """Text around every user message, as part of the judge's identity."""
        return self._renderer.chat_frame(prompt.system)

    def asks(self, prompts: Sequence[Prompt], *, answer_tokens: int) -> list[Ask | PromptError]:
        return [
            ids if isinstance(ids, RequestError) else self._fitting(ids, answer_tokens)
            for ids in self._renderer.token_ids(prompts)
        ]

    def _fitting(self, ids: list[int], answer_tokens: int) -> Ask | PromptTooLongError:
        return no_room(ids, answer_tokens, self._context) or Ask(content=ids, tokens=len(ids))

    def body(self, asks: Sequence[Ask]) -> dict[str, Any]:
        """Request body with the prompts, at most `together`, but without parameters."""
        return {"model": self._model, "prompt": [ask.content for ask in asks]}

    def text_params(self, sampling: Sampling, place: int) -> dict[str, Any]:
        """Request parameters for the answers to the prompt at a place."""
        return _params_of(sampling, place) | _PLAIN_SAMPLING

    def label_logits(self, choice: Any) -> LabelLogits | JudgmentFailedError:
        try:
            top = choice["logprobs"]["top_logprobs"][0]
            a, b = (top[f"token_id:{i}"] for i in self.label_tokens)
        except (TypeError, KeyError, IndexError):
            return JudgmentFailedError("the judge's server answered without the labels by id")
        return _checked(a, b)

    def text(self, choice: Any) -> Generated | JudgmentFailedError:
        try:
            return _generated(choice["text"], choice["finish_reason"])
        except (TypeError, KeyError):
            return _no_text()


class ChatDialect:
    """Sends messages to /chat/completions and finds the labels among the top first tokens.

    The server renders the chat template and may read control tokens inside texts as such. A
    zero-width space breaks their usual spellings; other spellings are unknown in this process.
    """

    path = "/chat/completions"
    # The API takes one conversation in a request.
    together = 1
    label_tokens = (-1, -1)
    # A message cannot be continued, so a thought ends with the message.
    think_end = None

    def __init__(self, model: str, *, is_vllm: bool, use: UseOfTemplate = PLAIN) -> None:
        self._model = model
        self.is_vllm = is_vllm
        self._use = use
        # Newer models of OpenAI take the other name only.
        self.tokens_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"

    @property
    def label_params(self) -> dict[str, Any]:
        return {self.tokens_name: 1, "temperature": 0, "logprobs": True, "top_logprobs": TOP}

    def chat_frame(self, prompt: Prompt) -> str:
        return "chat"

    def asks(self, prompts: Sequence[Prompt], *, answer_tokens: int) -> list[Ask | PromptError]:
        return [
            Ask(
                content=_messages(prompt),
                tokens=(len(prompt.system) + len(prompt.user)) // 4 + answer_tokens,
            )
            for prompt in prompts
        ]

    def body(self, asks: Sequence[Ask]) -> dict[str, Any]:
        (ask,) = asks
        body: dict[str, Any] = {"model": self._model, "messages": ask.content}
        # Other servers get only what somebody has set, because some refuse the field.
        if self.is_vllm or self._use.given:
            body["chat_template_kwargs"] = (
                self._use.variables if self.is_vllm else dict(self._use.given)
            )
        if self.is_vllm and ask.content[-1]["role"] == "assistant":
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        return body

    def text_params(self, sampling: Sampling, place: int) -> dict[str, Any]:
        plain = _PLAIN_SAMPLING if self.is_vllm else {"top_p": 1.0}
        params = _params_of(sampling, place) | plain
        return {
            self.tokens_name if name == "max_tokens" else name: value
            for name, value in params.items()
        }

    def label_logits(self, choice: Any) -> LabelLogits | JudgmentFailedError:
        try:
            top = choice["logprobs"]["content"][0]["top_logprobs"]
            label_values = [
                [e["logprob"] for e in top if e["token"] == label] for label in ("A", "B")
            ]
        except (TypeError, KeyError, IndexError):
            return JudgmentFailedError("the judge's server answered without log-probabilities")
        if not all(label_values):
            return JudgmentFailedError(
                f"a label is not among the judge's {TOP} most probable tokens, so its probability "
                "is unknown; servers with vLLM 0.26 or later return it"
            )
        if not all(is_log_probability(x) for values in label_values for x in values):
            return _no_numbers()
        return _checked(*(_log_sum(values) for values in label_values))

    def text(self, choice: Any) -> Generated | JudgmentFailedError:
        try:
            message, reason = choice["message"], choice["finish_reason"]
            content = message["content"]
        except (TypeError, KeyError):
            return _no_text()
        if not self._use.thinks:
            return _generated(content, reason)
        # A message that was cut within its thought has no content.
        text = content if isinstance(content, str) or content is not None else ""
        thought = message.get("reasoning_content") or message.get("reasoning") or ""
        if isinstance(text, str) and not thought:
            thought, _, text = text.rpartition(self._use.think_end.strip() or _USUAL_END)
        answer = _generated(text, reason)
        if isinstance(answer, Generated):
            return answer._replace(thought=str(thought))
        return answer


# The ways to ask a server.
Dialect = TokenDialect | ChatDialect


def without_control_tokens(text: str) -> str:
    """Breaks the usual spellings of control tokens with a zero-width space, so they stay text."""
    return _CONTROL.sub(lambda match: match[0] + "\u200b", text)


def by_id_params(label_tokens: tuple[int, int]) -> dict[str, Any]:
    """Request parameters with which vLLM returns the log-probabilities of two token ids."""
    return {
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": 0,
        "logprob_token_ids": list(label_tokens),
        "return_tokens_as_token_ids": True,
    }


def choices_of(answer: Any, n: int) -> list[Any] | JudgmentFailedError:
    """Reads n choices of an answer, in the order of the prompts.

    An answer that lacks a choice, or has one twice, is rejected as a whole.
    """
    try:
        choices = sorted(answer["choices"], key=lambda choice: choice["index"])
        places = [choice["index"] for choice in choices]
        if places == list(range(n)) and not any(isinstance(place, bool) for place in places):
            return choices
    except (TypeError, KeyError):
        pass
    return JudgmentFailedError("the judge's server did not answer with one choice for each prompt")


def tokens_of(answer: Any, field: str) -> int:
    """A number of tokens in the usage of an answer; 0 if its server does not say."""
    try:
        tokens = answer["usage"][field]
    except (TypeError, KeyError):
        return 0
    return tokens if isinstance(tokens, int) and tokens > 0 else 0


def has_ids(choice: Any, ids: Sequence[int]) -> bool:
    """Whether a choice has the log-probability of each of these token ids."""
    try:
        top = choice["logprobs"]["top_logprobs"][0]
        return all(f"token_id:{i}" in top for i in ids)
    except (TypeError, KeyError, IndexError):
        return False


def decodes_to_labels(choice: Any) -> bool:
    """Whether A and B are among the spelled-out tokens of a choice."""
    try:
        tokens = {token.strip() for token in choice["logprobs"]["top_logprobs"][0]}
    except (TypeError, KeyError, IndexError, AttributeError):
        return False
    return {"A", "B"} <= tokens


def _are_ids(ids: tuple[Any, ...]) -> bool:
    return all(type(each) is int and each >= 0 for each in ids)


def is_log_probability(value: object) -> bool:
    """Whether a value is the finite logarithm of a probability; NaN and booleans are not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return _LOG_ZERO < value <= _ROUNDING


def _checked(a: Any, b: Any) -> LabelLogits | JudgmentFailedError:
    if not (is_log_probability(a) and is_log_probability(b)):
        return _no_numbers()
    # Raw logits, which some servers return, nearly always exceed this.
    if math.exp(a) + math.exp(b) > 1.0 + _ROUNDING:
        return _no_numbers()
    return LabelLogits(float(a), float(b))


def _log_sum(values: Sequence[float]) -> float:
    largest = max(values)
    return largest + math.log(math.fsum(math.exp(x - largest) for x in values))


def _messages(prompt: Prompt) -> list[dict[str, str]]:
    user = without_control_tokens(prompt.user)
    messages = [
        {"role": "system", "content": prompt.system},
        {"role": "user", "content": user},
        {"role": "assistant", "content": prompt.prefill},
    ]
    return [message for message in messages if message["content"]]


def _params_of(sampling: Sampling, place: int) -> dict[str, Any]:
    """At temperature 0 there is no seed."""
    params = {"max_tokens": sampling.max_tokens, "temperature": sampling.temperature}
    params |= {} if sampling.temperature == 0 else {"seed": sampling.seeds[place]}
    return params if sampling.n == 1 else params | {"n": sampling.n}


def _generated(text: object, finish_reason: object) -> Generated | JudgmentFailedError:
    if not isinstance(text, str) or finish_reason not in ("stop", "length"):
        return _no_text()
    return Generated(text, complete=finish_reason == "stop")


def _no_text() -> JudgmentFailedError:
    return JudgmentFailedError("the judge's server answered without a finished text")


def _no_numbers() -> JudgmentFailedError:
    return JudgmentFailedError(
        "the judge's server answered with numbers that are not probabilities"
    )
