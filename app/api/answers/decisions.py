"""Answers of POST /v1/systemone and POST /v1/decisions, in the formats of vLLM and OpenAI."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from app.api.answers.judgments import judgment, usage_of_request
from app.api.requests.decisions import Decision, Value
from app.core.comparison import Judgment
from app.core.errors import JudgmentFailedError
from scope_judge import records


@dataclass(frozen=True, kw_only=True, slots=True)
class Decided:
    """A question and its judgment."""

    decision: Decision
    judgment: Judgment

    @classmethod
    def of(cls, decision: Decision, judgment: Judgment) -> "Decided":
        """Joins them.

        Raises:
            JudgmentFailedError: The judge has no preference, and without `abstain_as` the answer
                would have to be one of the options.
        """
        if judgment.preference is None and decision.abstain_as is None:
            place = f"question {decision.name!r}" if decision.name else "a question"
            raise JudgmentFailedError(
                f"{place}: the judge abstains ({judgment.reason}) and prefers neither option: send "
                "`abstain_as`, the choice for an abstention"
            )
        return cls(decision=decision, judgment=judgment)

    @property
    def choice(self) -> Value:
        """The likelier option, the first one of equals; or `abstain_as` for an abstention."""
        if self.judgment.verdict == "abstain" and self.decision.abstain_as is not None:
            return self.decision.abstain_as
        preference = self.judgment.preference
        assert preference is not None, "`of` refuses an abstention without a preference"
        prefers_b = preference.side == "B"
        return self.decision.second if prefers_b else self.decision.first

    @property
    def probabilities(self) -> dict[Value, float]:
        """The probability of each option; 0 for an option that only stands for an abstention.

        If the judge has no preference, such an option has 1, and the others have 0.
        """
        preference, decision = self.judgment.preference, self.decision
        if preference is None:
            judged = dict.fromkeys((decision.first, decision.second), 0.0)
            return judged | dict.fromkeys(decision.others, 1.0)
        judged = {decision.first: preference.p_bar, decision.second: 1.0 - preference.p_bar}
        return judged | dict.fromkeys(decision.others, 0.0)

    @property
    def confidence(self) -> float:
        """The larger probability times the label mass, which is vLLM's definition."""
        preference, mass = self.judgment.preference, self.judgment.label_mass
        if preference is None:
            return 0.0
        return preference.confidence * (1.0 if mass is None else mass)

    @property
    def scope(self) -> records.Judgment:
        """The judgment as POST /judge answers it."""
        return judgment(self.judgment, self.decision.name, kind=records.Judgment)


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemOneChoice:
    """The answer to one question.

    Args:
        type: `choice`.
        choice: The likelier option; or `abstain_as` if the judge abstains.
        probabilities: The probability of each option; 0 for one that stands for an abstention.
        confidence: Probability of the likelier option, times `label_mass` if known. It guarantees
            nothing; see `scope`.
        scope: The judgment: A is the first compared option, B the second.
    """

    type: Literal["choice"] = "choice"
    choice: str
    probabilities: dict[str, float]
    confidence: float
    scope: records.Judgment


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemOneUsage:
    """Tokens of the request; a judge writes none.

    Args:
        input_tokens: Tokens of all prompts of the request; 0 if the engine does not count them.
        output_tokens: 0: a judge writes no text.
    """

    input_tokens: int
    output_tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemOneAnswer:
    """The answers by the names of the questions.

    Args:
        id: A new id.
        model: Name of the judge.
        answers: The answer to each question, by its name.
        usage: Tokens of the request.
        diagnostics: `label_mass` of the questions for which it is known: the probability of the
            two labels together, in the worse order.
    """

    id: str
    model: str
    answers: dict[str, SystemOneChoice]
    usage: SystemOneUsage
    diagnostics: dict[str, dict[str, float]]


def system_one_answer(decided: Sequence[Decided], judge: str) -> SystemOneAnswer:
    """Converts the judgments of a request, in the order of the questions."""
    masses = {str(one.decision.name): one.judgment.label_mass for one in decided}
    return SystemOneAnswer(
        id=f"decision-{uuid.uuid4().hex}",
        model=judge,
        answers={
            str(one.decision.name): SystemOneChoice(
                choice=str(one.choice),
                probabilities={str(value): p for value, p in one.probabilities.items()},
                confidence=one.confidence,
                scope=one.scope,
            )
            for one in decided
        },
        usage=SystemOneUsage(input_tokens=usage_of_request().prompt_tokens),
        diagnostics={
            name: {"label_mass": mass} for name, mass in masses.items() if mass is not None
        },
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class OptionProbability:
    """The probability of one option.

    Args:
        value: The option.
        probability: `p_bar` or `1 - p_bar`; 0 for an option that stands for an abstention.
    """

    value: Value
    probability: float


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenAiChoice:
    """The answer to one question.

    Args:
        name: Name of the question, or None.
        type: `choice`.
        choice: The likelier option; or `abstain_as` if the judge abstains.
        probabilities: The probability of each option, in the order of the compared ones.
        confidence: Probability of the likelier option, times `label_mass` if known. It guarantees
            nothing; see `scope`.
        scope: The judgment: A is the first compared option, B the second.
    """

    name: str | None
    type: Literal["choice"] = "choice"
    choice: Value
    probabilities: tuple[OptionProbability, ...]
    confidence: float
    scope: records.Judgment


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenAiUsage(SystemOneUsage):
    """Tokens of the request; a judge writes none.

    Args:
        total_tokens: The same as `input_tokens`.
        input_tokens_details: Zeros: a prompt cache is not counted.
        output_tokens_details: Zeros: a judge writes no thoughts.
    """

    total_tokens: int
    input_tokens_details: dict[str, int]
    output_tokens_details: dict[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenAiAnswer:
    """The answers in the order of the questions.

    Args:
        model: Name of the judge.
        answers: The answer to each question, in order.
        usage: Tokens of the request.
    """

    model: str
    answers: tuple[OpenAiChoice, ...]
    usage: OpenAiUsage


def open_ai_answer(decided: Sequence[Decided], judge: str) -> OpenAiAnswer:
    """Converts the judgments of a request, in the order of the questions."""
    tokens = usage_of_request().prompt_tokens
    return OpenAiAnswer(
        model=judge,
        answers=tuple(
            OpenAiChoice(
                name=one.decision.name,
                choice=one.choice,
                probabilities=tuple(
                    OptionProbability(value=value, probability=probability)
                    for value, probability in one.probabilities.items()
                ),
                confidence=one.confidence,
                scope=one.scope,
            )
            for one in decided
        ),
        usage=OpenAiUsage(
            input_tokens=tokens,
            total_tokens=tokens,
            input_tokens_details={"cached_tokens": 0, "cache_write_tokens": 0},
            output_tokens_details={"reasoning_tokens": 0},
        ),
    )
