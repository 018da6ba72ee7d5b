"""Renders a comparison as two prompts, one for each order, with the paper's template."""

import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from app.core.comparison import Comparison, Turn
from app.core.errors import StartupError
from app.core.fingerprint import digest_of_json
from app.flow import off_loop
from app.judges.quoting import Fence, quoted
from app.ports import Prompt

T = TypeVar("T")

# Most characters rendered on the event loop, which takes a few milliseconds. Each text adds a fixed
# cost, counted as _PER_TEXT characters.
_MOST_RENDERED_ON_LOOP = 2**16
_PER_TEXT = 64

# Verbatim from SCOPE, figure prompt_template.
PAPER_SYSTEM = (
    "Please act as an impartial judge and evaluate the quality of the responses provided by two AI "
    "assistants to the user question displayed below. You should choose the assistant that follows "
    "the user's instructions and answers the user's question better. Your evaluation should "
    "consider factors such as the helpfulness, relevance, accuracy, depth, creativity, and level "
    "of detail of their responses. Avoid any position biases and ensure that the order in which "
    "the responses were presented does not influence your decision. Do not allow the length of the "
    "responses to influence your evaluation. Do not favor certain names of the assistants. Be as "
    "objective as possible. Output your final verdict by strictly following this format: "
    '"[[A]]" if assistant A is better, "[[B]]" if assistant B is better.'
)
PAPER_USER = (
    "[User Question]\n{question}\n\n"
    "[Assistant A's Answer]\n{answer_a}\n\n"
    "[Assistant B's Answer]\n{answer_b}"
)

_PLACEHOLDER = re.compile(r"\{(question|answer_a|answer_b)\}")
# Headings of the turns and replies of a conversation, without punctuation.
_TURN_HEADINGS = ("System", "User", "Assistant", "Reply 1")


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """The prompt template of a judge; part of the judge's fingerprint.

    Args:
        system: The system message; empty for a model without one.
        user: The user message, with {question}, {answer_a} and {answer_b} once each.
        prefill: Beginning of the judge's own answer, e.g. "[["; empty as in the paper.

    Raises:
        StartupError: A placeholder is missing or occurs more than once.
    """

    system: str = PAPER_SYSTEM
    user: str = PAPER_USER
    prefill: str = ""
    # The template's own texts, and between them the names of the placeholders.
    _pieces: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _fences: "Fences" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        pieces = tuple(_PLACEHOLDER.split(self.user))
        literals, placeholders = pieces[::2], sorted(pieces[1::2])
        if placeholders != ["answer_a", "answer_b", "question"]:
            raise StartupError(
                "the user template needs {question}, {answer_a} and {answer_b}, each exactly once; "
                f"it has {placeholders or 'none of them'}"
            )
        # A frozen dataclass can set derived fields only like this.
        object.__setattr__(self, "_pieces", pieces)
        object.__setattr__(
            self, "_fences", Fences.made(lambda turns: Fence.of_literals(literals, turns=turns))
        )

    @property
    def digest(self) -> str:
        """64 hexadecimal digits of the template, which other judges may share."""
        return digest_of_json([self.system, self.user, self.prefill])

    def both_orders(self, comparison: Comparison) -> tuple[Prompt, Prompt]:
        """Renders the forward prompt and the reverse one (SCOPE, section on BPE)."""
        question, one, other = self._fences.parts(comparison)
        return self._filled(question, one, other), self._filled(question, other, one)

    def render(self, comparison: Comparison) -> Prompt:
        """Renders one prompt with response_a shown first; `Fences.parts` quotes its texts."""
        return self._filled(*self._fences.parts(comparison))

    def _filled(self, question: str, answer_a: str, answer_b: str) -> Prompt:
        """Fills the placeholders; "{answer_b}" in a text stays text."""
        texts = {"question": question, "answer_a": answer_a, "answer_b": answer_b}
        pieces = list(self._pieces)
        pieces[1::2] = [texts[name] for name in pieces[1::2]]
        return Prompt(self.system, "".join(pieces), self.prefill, question)


@dataclass(frozen=True, slots=True)
class Fences:
    """The fences of a prompt: around single questions, and around conversations."""

    single: Fence
    conversation: Fence

    @classmethod
    def made(cls, fence: Callable[[Sequence[str]], Fence]) -> "Fences":
        """Makes both fences, given a function of the headings of turns and replies."""
        return cls(single=fence(()), conversation=fence(_TURN_HEADINGS))

    def parts(self, comparison: Comparison) -> tuple[str, str, str]:
        """Returns the question, response_a and response_b, quoted where they imitate a heading.

        A turn of the question is quoted if one of its lines resembles a heading of the template, a
        turn or a reply. If a line of either response resembles a heading, both responses are
        quoted, so that they look alike. `quoting` defines which lines resemble a heading; a heading
        in other words is not recognized.
        """
        turns = comparison.question
        fence = self.single if len(turns) == 1 else self.conversation
        answers: Sequence[Sequence[str]] = (comparison.response_a, comparison.response_b)
        if any(map(fence.is_needed, chain.from_iterable(answers))):
            answers = [[quoted(text) for text in texts] for texts in answers]
        answer_a, answer_b = map(_response_text, answers)
        return _question_text(turns, fence), answer_a, answer_b


def _question_text(turns: tuple[Turn, ...], fence: Fence) -> str:
    if len(turns) == 1:
        return fence.around(turns[0].content)
    return "\n\n".join(
        f"### {turn.role.capitalize()}:\n{fence.around(turn.content)}" for turn in turns
    )


def _response_text(texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return texts[0]
    return "\n\n".join(f"### Reply {i}:\n{text}" for i, text in enumerate(texts, start=1))


def load_template(path: Path | None, *, prefill: str) -> PromptTemplate:
    """Reads the template that replaces the paper's.

    Args:
        path: A TOML file with the string `user` and, if the judge has a system message, `system`;
            None for the paper's template.
    """
    if path is None:
        return PromptTemplate(prefill=prefill)
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as exc:
        raise StartupError(f"SCOPE_PROMPT_FILE={path} cannot be read as TOML: {exc}") from exc
    unknown = sorted(content.keys() - {"system", "user"})
    texts = [content.get("system", ""), content.get("user")]
    if unknown or not all(isinstance(text, str) for text in texts):
        raise StartupError(
            f"SCOPE_PROMPT_FILE={path} needs the string `user`, may have the string `system`, and "
            "must contain nothing else"
            + (f"; it also contains {', '.join(unknown)}" if unknown else "")
        )
    try:
        return PromptTemplate(system=texts[0], user=str(texts[1]), prefill=prefill)
    except StartupError as exc:
        raise StartupError(f"SCOPE_PROMPT_FILE={path}: {exc}") from exc


async def rendered_pairs(
    template: PromptTemplate, comparisons: Sequence[Comparison]
) -> list[Prompt]:
    """Renders the prompts of both orders of each comparison; large texts in a thread."""
    return list(chain.from_iterable(await rendered(template.both_orders, comparisons)))


async def rendered(render: Callable[[Comparison], T], comparisons: Sequence[Comparison]) -> list[T]:
    """Renders each comparison; large texts in a thread."""
    texts = [text for comparison in comparisons for text in comparison.texts]
    if sum(map(len, texts)) + _PER_TEXT * len(texts) <= _MOST_RENDERED_ON_LOOP:
        return [render(comparison) for comparison in comparisons]
    return await off_loop(lambda: [render(comparison) for comparison in comparisons])
