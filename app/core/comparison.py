"""Comparisons, the criteria by which they are judged, and their way to a judgment."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal

from app.core.errors import InvalidComparisonError, ScopeJudgeError

# The help of a command needs the labels only: scope_judge imports httpx, and preferences numpy.
if TYPE_CHECKING:
    from app.core.calibration import Calibration
    from app.core.preference import NoScore, Preference, Score
    from scope_judge.records import Judgment

Side = Literal["A", "B"]
# The number of orders of the responses in which a kind of judge sees a comparison.
Orders = Literal[1, 2]
# Reasons for which a judge gives a comparison no score: the service abstains, whatever alpha is.
Unscored = Literal["thought_unfinished", "escalation_unavailable"]
Label = Literal["A", "B", "tie"]
# Label -> the label of the same pair with the responses in the other order.
MIRRORED: Mapping[Label, Label] = {"A": "B", "B": "A", "tie": "tie"}
Guarantee = Literal["marginal", "pac"]
Role = Literal["user", "assistant", "system"]

# Every calibration set shows its thresholds for these.
STANDARD_ALPHAS = (0.05, 0.10, 0.15, 0.20, 0.25)
STANDARD_DELTA = 0.10


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of the conversation that the responses answer."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two responses to one question, in the caller's order.

    Args:
        question: The conversation so far; a single question is one user turn.
        response_a: One text, or one text per user turn of `question`.
        response_b: The same number of texts as `response_a`.

    Raises:
        InvalidComparisonError: A text is missing or blank, or the numbers of texts and turns
            differ.
    """

    question: tuple[Turn, ...]
    response_a: tuple[str, ...]
    response_b: tuple[str, ...]

    def __post_init__(self) -> None:
        user_turns = sum(turn.role == "user" for turn in self.question)
        if user_turns == 0:
            raise InvalidComparisonError("question needs at least one user turn")
        if any(not turn.content.strip() for turn in self.question):
            raise InvalidComparisonError("question is blank, or has a blank turn")
        for name, response in (("response_a", self.response_a), ("response_b", self.response_b)):
            if not response or any(not text.strip() for text in response):
                raise InvalidComparisonError(f"{name} is blank")
        if len(self.response_a) != len(self.response_b):
            raise InvalidComparisonError(
                f"response_a has {len(self.response_a)} texts and response_b "
                f"{len(self.response_b)}: both need the same number"
            )
        if len(self.response_a) not in (1, user_turns):
            raise InvalidComparisonError(
                f"a list of responses needs one text per user turn: question has {user_turns} "
                f"user turns, response_a {len(self.response_a)} texts"
            )

    @classmethod
    def of(cls, question: str, response_a: str, response_b: str) -> "Comparison":
        """A comparison of two texts that answer a single question."""
        return cls((Turn("user", question),), (response_a,), (response_b,))

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts of the comparison."""
        question = (turn.content for turn in self.question)
        return (*question, *self.response_a, *self.response_b)

    @property
    def is_reversed(self) -> bool:
        """Whether response A comes after response B by their code points."""
        return self.response_a > self.response_b

    @property
    def swapped(self) -> "Comparison":
        """The same comparison with the responses in the other order."""
        return Comparison(self.question, self.response_b, self.response_a)


@dataclass(frozen=True, kw_only=True, slots=True)
class LabeledComparison:
    """A comparison and the label that people gave it.

    Raises:
        InvalidComparisonError: One of two equal responses is labeled as the better one.
    """

    comparison: Comparison
    label: Label

    def __post_init__(self) -> None:
        if self.label != "tie" and self.comparison.response_a == self.comparison.response_b:
            raise InvalidComparisonError(
                f"the responses are equal, and the label {self.label} prefers one: label them tie"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Criterion:
    """The conditions under which a verdict is accepted.

    Args:
        alpha: Largest share of wrong verdicts among the accepted, in (0, 1); None accepts every
            verdict and guarantees nothing.
        guarantee: "marginal" is SCOPE's guarantee; "pac" holds with probability 1 - delta.
        delta: In (0, 1) with "pac", None with "marginal".
        calibration: Name of the calibration set.
    """

    alpha: float | None
    guarantee: Guarantee
    delta: float | None
    calibration: str

    @property
    def words(self) -> str:
        """The criterion for people, such as "alpha 0.1 (pac, delta 0.1)"."""
        alpha = "without alpha" if self.alpha is None else f"alpha {self.alpha:g}"
        delta = "" if self.delta is None else f", delta {self.delta:g}"
        return f"{alpha} ({self.guarantee}{delta})"


@dataclass(frozen=True, kw_only=True, slots=True)
class CriterionDefaults:
    """The parts of a criterion that apply where a caller leaves them out."""

    alpha: float
    guarantee: Guarantee
    delta: float


@dataclass(slots=True, eq=False)
class Case:
    """A comparison on its way through the judge: what decides it, and what came of it.

    Recent traffic and audits see it before its answer.

    Args:
        by: Name of the key that asked, or "service".
        calibration: The version of the set that decides; None without an alpha.
        age_s: Seconds since the store last confirmed the version; 0 while the store answers.
        threshold: Largest accepted uncertainty in nats; -inf if alpha is infeasible, None without
            an alpha. For a cascade, it is the large judge's.
        suspended: Whether nothing is accepted, because audits have raised an alarm.
        first: The preference of the judge of a cascade that is asked first; None for a judge alone.
        outcome: Its judgment, whose id the caller fills in, or its error; None until it has one.
    """

    comparison: Comparison
    criterion: Criterion
    _: KW_ONLY
    by: str = "service"
    calibration: "Calibration | None" = None
    age_s: float = 0.0
    threshold: float | None = None
    suspended: bool = False
    score: "Score | NoScore | None" = None
    preference: "Preference | None" = None
    first: "Preference | None" = None
    outcome: "Judgment | ScopeJudgeError | None" = None

    @property
    def judgment(self) -> "Judgment":
        """The judgment of a case that has one."""
        outcome = self.outcome
        assert outcome is not None, "each case has an outcome after the decision"
        assert not isinstance(outcome, ScopeJudgeError), (
            "this case has an error instead of a judgment"
        )
        return outcome
