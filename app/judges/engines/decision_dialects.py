"""Two dialects of decision servers: request bodies to send, and answers to read.

- System One, `POST /systemone`: read in vLLM 0.32.0 (`entrypoints/generate/structured_decisions`)
  and in SGLang's page "Decision models" of November 2026. Hosted servers and gateways have it, too;
  some of them at the path `/decisions`.
- OpenAI's public beta, `POST /decisions`: read in the package openai 3.52.0 (`types/decision.py`,
  `types/decision_create_params.py`).

SGLang has a third form at `/decisions`. It is not spoken here, because SGLang answers `/systemone`
with the same probabilities.

Probabilities are read by the names of their options, so their order in an answer has no meaning.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from app.core.errors import JudgmentFailedError

# The criteria of SCOPE's prompt, without its labels and its format of the answer.
INSTRUCTIONS = (
    "Which of the two responses follows the user's instructions and answers the user's question "
    "better? Consider the helpfulness, relevance, accuracy, depth, creativity and level of detail "
    "of the responses. The order in which they are shown, their names and their length do not "
    "matter."
)
# In the order in which they are shown, which is alphabetical: a server may sort them.
OPTIONS = ("Response 1", "Response 2")
# Two probabilities that are rounded to two decimals may miss the sum of one by 0.01, and values of
# 16 bits by less.
_ROUNDING = 0.02
# A probability with more decimals is not rounded for people: float32 has eight or nine.
_MOST_DECIMALS = 7

# The texts of the two options, in the order in which they are shown.
Texts = tuple[str, str]


class OptionProbabilities(NamedTuple):
    """The probabilities of the options shown first and second; 0 and 1 may be rounded.

    Args:
        label_mass: Share of the whole vocabulary's probability on the options' labels, in [0, 1];
            None if the server does not say it.
    """

    first: float
    second: float
    label_mass: float | None


@dataclass(frozen=True, slots=True)
class SystemOneDialect:
    """Questions and answers are objects by the names of the questions."""

    path: str = "/systemone"

    @property
    def name(self) -> str:
        """Name of the dialect, part of the judge's fingerprint."""
        return "systemone" if self.path == "/systemone" else f"systemone at {self.path}"

    def body(self, model: str, context: str, orders: Sequence[Texts]) -> dict[str, Any]:
        """Request body that asks the question about each pair of texts."""
        questions = {
            name: {
                "type": "choice",
                "instructions": INSTRUCTIONS,
                "criteria": dict(zip(OPTIONS, texts, strict=True)),
            }
            for name, texts in zip(_names(len(orders)), orders, strict=True)
        }
        return {"model": model, "state": context, "questions": questions}

    def read(
        self, answer: Mapping[str, Any], asked: int
    ) -> list[OptionProbabilities] | JudgmentFailedError:
        """Reads the answers to all questions of a request, in the order in which they were asked.

        Returns an error if any of them is not exactly what was asked for.
        """
        answers, diagnostics = answer.get("answers"), answer.get("diagnostics")
        if not isinstance(answers, dict) or answers.keys() != set(_names(asked)):
            return _not_answered()
        return _all_read(
            _read(
                answers[name],
                probabilities=_field(answers[name], "probabilities"),
                label_mass=_label_mass(answers[name], _field(diagnostics, name)),
            )
            for name in _names(asked)
        )


@dataclass(frozen=True, slots=True)
class OpenAiDialect:
    """Questions and answers are lists of objects with names."""

    name: str = "openai"
    path: str = "/decisions"

    def body(self, model: str, context: str, orders: Sequence[Texts]) -> dict[str, Any]:
        questions = [
            {
                "type": "choice",
                "name": name,
                "instructions": INSTRUCTIONS,
                "choices": [
                    {"value": option, "description": text}
                    for option, text in zip(OPTIONS, texts, strict=True)
                ],
            }
            for name, texts in zip(_names(len(orders)), orders, strict=True)
        ]
        return {"model": model, "input": context, "questions": questions}

    def read(
        self, answer: Mapping[str, Any], asked: int
    ) -> list[OptionProbabilities] | JudgmentFailedError:
        answers = _by(answer.get("answers"), "name")
        if answers is None or answers.keys() != set(_names(asked)):
            return _not_answered()
        return _all_read(
            _read(
                answers[name],
                probabilities=_values(_field(answers[name], "probabilities")),
                label_mass=None,
            )
            for name in _names(asked)
        )


DecisionDialect = SystemOneDialect | OpenAiDialect
# In the order in which a start tries them.
DIALECTS: tuple[DecisionDialect, ...] = (
    SystemOneDialect(),
    OpenAiDialect(),
    SystemOneDialect("/decisions"),
)


def decimals_of(probabilities: Iterable[float]) -> int | None:
    """Returns the decimals to which a server rounds its probabilities; None if it does not.

    Raises:
        ValueError: All are 0 or 1, which shows nothing.
    """
    exponents = [Decimal(repr(p)).as_tuple().exponent for p in probabilities if 0.0 < p < 1.0]
    decimals = max(-int(exponent) for exponent in exponents)
    return decimals if decimals <= _MOST_DECIMALS else None


def _names(asked: int) -> list[str]:
    return [f"q{i}" for i in range(1, asked + 1)]


def _field(value: object, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _by(rows: object, key: str) -> dict[Any, dict[str, Any]] | None:
    """Objects by one of their fields, which must be a text; None if any is missing or repeated."""
    if not isinstance(rows, list):
        return None
    named: dict[Any, dict[str, Any]] = {
        row[key]: row for row in rows if isinstance(row, dict) and isinstance(row.get(key), str)
    }
    return named if len(named) == len(rows) else None


def _label_mass(answer: object, diagnostics: object) -> Any:
    said = _field(diagnostics, "label_mass")
    return _field(answer, "x_label_mass") if said is None else said


def _values(rows: object) -> dict[Any, Any] | None:
    options = _by(rows, "value")
    if options is None:
        return None
    return {value: option.get("probability") for value, option in options.items()}


def _all_read(
    read: Iterable[OptionProbabilities | JudgmentFailedError],
) -> list[OptionProbabilities] | JudgmentFailedError:
    """All answers, or the first error: half of a comparison is not a comparison."""
    found = []
    for one in read:
        if isinstance(one, JudgmentFailedError):
            return one
        found.append(one)
    return found


def _read(
    answer: object, *, probabilities: object, label_mass: Any
) -> OptionProbabilities | JudgmentFailedError:
    kind, chosen = _field(answer, "type"), _field(answer, "choice")
    if kind == "refusal":
        return JudgmentFailedError("the judge's server declines to answer about this comparison")
    if kind != "choice":
        return JudgmentFailedError("the judge's server answered another type of question")
    if not isinstance(probabilities, dict) or probabilities.keys() != set(OPTIONS):
        return JudgmentFailedError("the judge's server answered with other options than asked")
    first, second = (probabilities[option] for option in OPTIONS)
    if not (_is_share(first) and _is_share(second)) or abs(first + second - 1.0) > _ROUNDING:
        return JudgmentFailedError(
            "the judge's server answered with numbers that are not probabilities"
        )
    if chosen not in OPTIONS or max(first, second) - probabilities[chosen] > _ROUNDING:
        return JudgmentFailedError(
            "the judge's server chose another option than the one with the larger probability"
        )
    if label_mass is not None and not _is_share(label_mass):
        return JudgmentFailedError("the judge's server answered with an invalid label mass")
    return OptionProbabilities(
        first=min(1.0, first),
        second=min(1.0, second),
        label_mass=None if label_mass is None else min(1.0, label_mass),
    )


def _is_share(value: Any) -> bool:
    """Whether a value is a number in [0, 1], up to rounding; NaN and booleans are not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0.0 <= value <= 1.0 + _ROUNDING


def _not_answered() -> JudgmentFailedError:
    return JudgmentFailedError("the judge's server did not answer exactly the questions asked")
