"""Scores of decision servers: a choice between the two responses, asked in both orders."""

import math
from collections.abc import Sequence

from app.core.comparison import Comparison
from app.core.errors import JudgmentFailedError
from app.core.fingerprint import JudgeIdentity, digest_of_json
from app.core.score import Score
from app.judges.calls import lost, observed_call
from app.judges.label_logits import LEAST_LABEL_MASS
from app.judges.prompts import Fences, rendered
from app.judges.quoting import FENCE_VERSION, Fence
from app.judges.scorer import ScoreError
from app.observability.telemetry import Telemetry
from app.ports import (
    BothOrders,
    CallTimes,
    Choice,
    ChoiceQuestion,
    DecisionIdentity,
    DecisionServers,
    OnStage,
    OptionProbabilities,
    no_stage,
)

# The criteria of SCOPE's prompt, without its labels and its format of the answer.
QUESTION = ChoiceQuestion(
    instructions=(
        "Which of the two responses follows the user's instructions and answers the user's "
        "question better? Consider the helpfulness, relevance, accuracy, depth, creativity and "
        "level of detail of the responses. The order in which they are shown, their names and "
        "their length do not matter."
    ),
    options=("Response 1", "Response 2"),
)
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
    lambda turns: Fence.against((_HEADING, *QUESTION.options, *_SERVERS_LINES), turns=turns)
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


class DecisionScorer:
    """Decision servers as a judge: both orders of a comparison are two questions about one state.

    Args:
        servers: The started servers.
        found: The outcome of their start.
        judge: The judge's name in answers.
        max_prompt_tokens: Longest prompt that the servers accept.
        telemetry: Observes the calls.
    """

    def __init__(
        self,
        servers: DecisionServers,
        found: DecisionIdentity,
        *,
        judge: str,
        max_prompt_tokens: int,
        telemetry: Telemetry,
    ) -> None:
        self._servers = servers
        self._found = found
        self._telemetry = telemetry
        self.identity = decision_identity(found, judge=judge, max_prompt_tokens=max_prompt_tokens)

    @classmethod
    async def start(
        cls,
        servers: DecisionServers,
        *,
        judge: str,
        max_prompt_tokens: int,
        telemetry: Telemetry,
        on_stage: OnStage = no_stage,
    ) -> "DecisionScorer":
        """Finds out how the servers answer. The arguments are those of the class.

        Raises:
            StartupError: The servers cannot be a judge; the message says why.
        """
        found = await servers.start(QUESTION, [choice_of(probe) for probe in PROBES], on_stage)
        return cls(
            servers,
            found,
            judge=judge,
            max_prompt_tokens=max_prompt_tokens,
            telemetry=telemetry,
        )

    @property
    def in_words(self) -> str:
        """The outcome of the start, in a sentence for people."""
        found = self._found
        together = "one request" if found.questions_together == 2 else "a request each"
        decimals = found.decimals
        rounded = "not rounded" if decimals is None else f"rounded to {decimals} decimals"
        return (
            f"The judge is the decision server {', '.join(found.hosts)}, which answers as "
            f"{found.answered_as!r}. Its dialect is {found.dialect!r}, both orders have "
            f"{together}, and probabilities are {rounded}"
        )

    async def stop(self) -> None:
        await self._servers.stop()

    async def lost(self) -> str:
        return await lost(self._servers)

    async def score(self, comparisons: Sequence[Comparison]) -> list[Score | ScoreError]:
        if not comparisons:
            return []
        times = CallTimes()
        with times.rendering():
            choices = await rendered(choice_of, comparisons)
        with observed_call(
            self._telemetry,
            times,
            comparisons=len(choices),
            prompts=2 * len(choices),
        ):
            answers = await self._servers.choose(choices, times)
        if len(answers) != len(choices):
            raise JudgmentFailedError(
                f"the judge's servers returned {len(answers)} answers to {len(choices)} choices"
            )
        return [
            score_of_orders(one, largest=self.identity.largest_gap)
            if isinstance(one, BothOrders)
            else one
            for one in answers
        ]

    def weakness(self, score: Score) -> str | None:
        if score.label_mass is None or score.label_mass >= LEAST_LABEL_MASS:
            return None
        return (
            f"the two options together have a probability of only {score.label_mass:.1e} in this "
            "judge's answer, so its preferences are unreliable; try another model"
        )


def choice_of(comparison: Comparison) -> Choice:
    """Renders a comparison: the question is the context, and the responses are the options."""
    parts = _FENCES.parts(comparison)
    return Choice(
        context=f"{_HEADING}\n{parts.question}", first=parts.answer_a, second=parts.answer_b
    )


def decision_identity(
    found: DecisionIdentity, *, judge: str, max_prompt_tokens: int
) -> JudgeIdentity:
    """Returns the identity of decision servers with the question that they are asked."""
    served = {
        "hosts": list(found.hosts),
        "answered_as": found.answered_as,
        "dialect": found.dialect,
        "questions_together": found.questions_together,
        "decimals": found.decimals,
    }
    template = {
        "heading": _HEADING,
        "instructions": QUESTION.instructions,
        "options": list(QUESTION.options),
        "lines": list(_SERVERS_LINES),
    }
    return JudgeIdentity(
        name=judge,
        inputs={
            "kind": "decision server",
            "model": found.model,
            **served,
            **template,
            "fence": FENCE_VERSION,
        },
        described={
            "kind": "decision server",
            "model": found.model,
            "template": digest_of_json(template),
            "decision_server": served,
        },
        max_prompt_tokens=max_prompt_tokens,
        largest_gap=largest_gap(found.decimals),
    )


def largest_gap(decimals: int | None) -> float:
    """Returns the gap that stands for the probabilities 0 and 1.

    A rounded 1 is at least half a step from the next smaller number. Without rounding, half a step
    is that of a float64 at 1.

    Args:
        decimals: Decimals to which the server rounds; None if it does not.
    """
    half_a_step = 2.0**-54 if decimals is None else 0.5 * 10.0**-decimals
    return math.log1p(-half_a_step) - math.log(half_a_step)


def score_of_orders(orders: BothOrders, *, largest: float) -> Score:
    """The score of a comparison from its answers in both orders.

    Args:
        orders: The answers.
        largest: Bound of both gaps; see `largest_gap`.
    """
    masses = [order.label_mass for order in orders if order.label_mass is not None]
    return Score(
        gap_fwd=_gap(orders.forward, largest),
        # In the reverse order response_a is the second option. `0.0 - x`, because `-x` makes -0.0
        # of a tie.
        gap_rev=0.0 - _gap(orders.reverse, largest),
        label_mass=min(masses) if len(masses) == len(orders) else None,
    )


def _gap(order: OptionProbabilities, largest: float) -> float:
    """Log-odds of the option shown first, within [-largest, largest]."""
    if order.first == 0.0 or order.second == 0.0:
        return math.copysign(largest, order.first - order.second)
    return max(-largest, min(largest, math.log(order.first) - math.log(order.second)))
