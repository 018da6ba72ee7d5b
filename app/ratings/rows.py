"""Reads rows of battles, and refuses those that would silently make a wrong rating."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from app.core.errors import InvalidComparisonError, InvalidRequestError
from app.core.printable import encodable
from app.files.reading import files_of, read_rows
from app.files.shapes import is_empty, label_of
from app.ratings.battles import PEOPLE, UNNAMED, Battles
from app.ratings.bootstrap import Keys
from app.ratings.bradley_terry import Bools, Floats, Ints

_NAMES = (
    *("id", "question_id", "group", "model_a", "model_b", "winner", "accepted", "error"),
    *("judge", "signature", "guarantee", "alpha", "p_bar"),
    *("human", "human_probability"),
)
_ABSTAIN = "abstain"
_OUTCOMES = {"A": 1.0, "B": 0.0, "tie": 0.5}
# Rows of a judge have one of these.
_OF_JUDGE = ("judge", "signature", "p_bar", "accepted")
# The part of a signature on which no judgment depends.
_RELEASE = "scope-judge "


def _number(value: Any) -> float | None:
    """A number, also as a text; NaN for no value, and None for a value that is not a number."""
    try:
        return np.nan if value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        return None


class Columns:
    """The columns of one or several files, one after the other.

    Raises:
        InvalidRequestError: A file cannot be read, or there is no row.
    """

    def __init__(self, inputs: Sequence[Path], encoding: str | None = None) -> None:
        files = files_of(inputs)
        self._columns: dict[str, list[Any]] = {name: [] for name in _NAMES}
        self._places: list[str] = []
        for row in (row for file in files for row in read_rows(file, encoding)):
            self._places.append(row.place)
            for name, column in self._columns.items():
                column.append(row.fields.get(name))
        self.n = len(self._places)
        if not self.n:
            raise InvalidRequestError(f"{', '.join(map(str, files))}: there is no row")

    def __contains__(self, name: str) -> bool:
        return any(value is not None for value in self._columns[name])

    def is_null(self, name: str) -> Bools:
        """Shape (n,). Whether a row has no value."""
        return np.array([value is None for value in self._columns[name]])

    def numbers(self, name: str) -> Floats:
        """Shape (n,). A column of numbers; NaN where a row has none.

        Raises:
            InvalidRequestError: A value is not a finite number.
        """
        parsed = [_number(value) for value in self._columns[name]]
        self.check(np.array([n is not None for n in parsed]), f"{name} is not a number")
        values = np.array(parsed, dtype=np.float64)
        self.check(np.isfinite(values) | self.is_null(name), f"{name} is not a finite number")
        return values

    def flags(self, name: str) -> tuple[Bools, Bools]:
        """Shape (n,) each. The rows where a flag is true, and those where it is false."""
        texts = [str(value).lower() for value in self._columns[name]]
        true = np.array([text in ("true", "1") for text in texts])
        false = np.array([text in ("false", "0") for text in texts])
        self.check(true | false | self.is_null(name), f"{name} is not true or false")
        return true, false

    def codes(self, name: str) -> tuple[Ints, list[str]]:
        """A column of words as numbers, -1 where a row has none; and the words in their order."""
        codes: dict[str, int] = {}
        column = self._columns[name]
        numbers = [
            -1 if v is None else codes.setdefault(encodable(str(v)), len(codes)) for v in column
        ]
        return np.array(numbers, dtype=np.int64), list(codes)

    def check(self, fine: Bools, message: str) -> None:
        """Refuses the files if a row is not fine; the message names the first such row."""
        if not fine.all():
            self.refuse(~fine, message)

    def refuse(self, wrong: Bools, message: str) -> NoReturn:
        """Raises InvalidRequestError with the first of the wrong rows and their number."""
        first, count = int(np.argmax(wrong)), int(wrong.sum())
        more = f" (and {count - 1} more such rows)" if count > 1 else ""
        raise InvalidRequestError(f"{self.place(first)}: {message}{more}")

    def place(self, index: int) -> str:
        """File, and line or row number of a row."""
        return self._places[index]


def read_battles(
    inputs: Sequence[Path],
    *,
    human_probability: float | None = None,
    label_noise: float = 0.0,
    encoding: str | None = None,
) -> Battles:
    """Reads the battles of one judge.

    Args:
        human_probability: Probability of a label in the rows that do not say it.
        label_noise: Share of wrong labels among those of people, in [0, 0.5).

    Raises:
        InvalidRequestError: A file cannot be read, the rows are of several judges or sets, or a row
            cannot be believed. The message names the file, the first such row, and the reason.
    """
    columns = Columns(inputs, encoding)
    judge, signature = _judge(columns)
    battles = _battles(columns, human_probability)
    copy = _copies(columns, battles)
    placeless = (battles.first == battles.second) & ~copy
    battles = replace(
        battles.where(~copy & ~placeless & (battles.judged | (judge != PEOPLE))),
        judge=judge,
        signature=signature,
        label_noise=label_noise,
        repeated=int(copy.sum()),
        placeless=int(placeless.sum()),
    )
    if not battles.judged.any():
        raise InvalidRequestError(
            "no row has a judgment: every battle failed, or `scope-judge battles` has not run"
        )
    return battles


def _judge(columns: Columns) -> tuple[str, str | None]:
    """Name and signature of the one judge."""
    codes, signatures = columns.codes("signature")
    same = {tuple(p for p in text.split("; ") if not p.startswith(_RELEASE)) for text in signatures}
    if len(same) > 1:
        one, other = sorted(same)[:2]
        raise InvalidRequestError(
            f"the rows have {len(same)} signatures, and a board is of one judge, calibration and "
            f"criterion. Some have {_differing(one, other)}, others have {_differing(other, one)}: "
            "give the rows of one, or judge all battles again with one version of the set "
            "(nothing is scored twice with SCOPE_SCORE_CACHE)"
        )
    _, judges = columns.codes("judge")
    if len(judges) > 1:
        raise InvalidRequestError(
            f"the rows are of {len(judges)} judges, {judges[0]!r} and {judges[1]!r}, and a board "
            "is of one: give the rows of one"
        )
    usual = Counter(codes[codes >= 0].tolist()).most_common(1)
    unnamed = PEOPLE if _by_people(columns) else "judge"
    return judges[0] if judges else unnamed, signatures[usual[0][0]] if usual else None


def _by_people(columns: Columns) -> bool:
    """Whether people decided the battles, and no judge was asked."""
    if any(name in columns for name in _OF_JUDGE):
        return False
    if "winner" in columns:
        raise InvalidRequestError(
            "the rows do not say who decided: name the judge in a column `judge`, or call the "
            "column `human` instead of `winner` if people did"
        )
    return "human" in columns


def _differing(parts: tuple[str, ...], others: tuple[str, ...]) -> str:
    return "; ".join(part for part in parts if part not in others) or "nothing of it"


def _battles(columns: Columns, human_probability: float | None) -> Battles:
    """All rows as battles of a judge without a name."""
    failed = ~columns.is_null("error")
    first, second, models = _sides(columns, failed)
    unit, units, key = _units(columns)
    if _by_people(columns):
        human = _outcomes(columns, "human", failed)
        probability = np.ones(columns.n)
        judged, verdict = ~np.isnan(human), np.full(columns.n, np.nan)
    else:
        judged, verdict = _verdicts(columns, failed)
        human, probability = _labels(columns, human_probability, first == second)
    alphas = np.unique(columns.numbers("alpha"))
    alphas = alphas[~np.isnan(alphas)]
    _, guarantees = columns.codes("guarantee")
    return Battles(
        judge="",
        signature=None,
        alpha=float(alphas[0]) if len(alphas) == 1 else None,
        guarantee=guarantees[0] if len(guarantees) == 1 else None,
        models=models,
        first=first,
        second=second,
        unit=unit,
        units=units,
        key=key,
        judged=judged,
        verdict=verdict,
        p_bar=_preference(columns, judged, verdict),
        human=human,
        human_probability=probability,
    )


def _sides(columns: Columns, failed: Bools) -> tuple[Ints, Ints, tuple[str, ...]]:
    """Indexes of both models; a row that failed because it has no battle has one model twice."""
    sides = []
    for name in ("model_a", "model_b"):
        columns.check(~columns.is_null(name) | failed, f"{name} is missing")
        sides.append(columns.codes(name))
    models = sorted({*sides[0][1], *sides[1][1]})
    number = {model: place for place, model in enumerate(models)}
    first, second = (np.array([*map(number.get, words), 0])[codes] for codes, words in sides)
    missing = columns.is_null("model_a") | columns.is_null("model_b")
    columns.check((first != second) | failed, "model_a and model_b are the same model")
    return first, np.where(missing, first, second), tuple(models)


def _units(columns: Columns) -> tuple[Ints, int, Keys]:
    """The units of the bootstrap: groups, else questions, else single battles; and their keys."""
    # Copies of one battle must be in one unit.
    key = np.arange(UNNAMED, UNNAMED + columns.n, dtype=np.uint64)
    for name in ("id", "question_id", "group"):
        codes, words = columns.codes(name)
        digests = np.array([*(_digest(name, word) for word in words), 0], dtype=np.uint64)
        key = np.where(codes >= 0, digests[codes], key)
    units, unit = np.unique(key, return_inverse=True)
    return unit, len(units), key


def _digest(kind: str, name: str) -> int:
    """A number below UNNAMED; another kind of unit of the same name has another one."""
    text = f"{kind} {name}".encode(errors="surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest()) >> 1


def _verdicts(columns: Columns, failed: Bools) -> tuple[Bools, Floats]:
    """Whether each battle was judged, and its verdict."""
    winner, words = columns.codes("winner")
    if "winner" not in columns:
        judged = ~failed & ~columns.is_null("p_bar")
        return judged, np.full(columns.n, np.nan)
    failed = failed | (columns.is_null("winner") & columns.is_null("p_bar"))
    outcome = _outcomes_of(columns, "winner", words, "model_a, model_b, tie or abstain", failed)
    columns.check(failed | (winner >= 0), "winner is missing, but p_bar is present")
    verdict = np.where(failed, np.nan, outcome[winner])
    true, false = columns.flags("accepted")
    columns.check(
        failed | ~false | np.isnan(verdict),
        "accepted is false, but winner is a verdict: if a judgment was not accepted, its winner "
        "must be `abstain`",
    )
    columns.check(failed | ~true | ~np.isnan(verdict), "accepted is true, but winner is `abstain`")
    return ~failed, verdict


def _outcomes_of(
    columns: Columns, name: str, words: Sequence[str], known: str, exempt: Bools
) -> Floats:
    """Outcome of each word, and NaN at the end for rows without one."""
    outcomes = []
    for code, word in enumerate(words):
        try:
            abstained = name == "winner" and word.strip().lower() == _ABSTAIN
            unlabeled = name == "human" and is_empty(word)
            outcomes.append(np.nan if abstained or unlabeled else _OUTCOMES[label_of(word)])
        except InvalidComparisonError:
            outcomes.append(np.nan)
            wrong = (columns.codes(name)[0] == code) & ~exempt
            columns.check(~wrong, f"{name} is {word[:40]!r}, and must be {known}")
    return np.array([*outcomes, np.nan])


def _outcomes(columns: Columns, name: str, exempt: Bools) -> Floats:
    """Outcomes by people; NaN where a row has none."""
    label, words = columns.codes(name)
    return _outcomes_of(columns, name, words, "model_a, model_b or tie", exempt)[label]


def _preference(columns: Columns, judged: Bools, verdict: Floats) -> Floats:
    p_bar = _probability(columns, "p_bar")
    if "p_bar" not in columns:
        return p_bar
    # A judge abstains without a preference if its thought did not end.
    has_verdict = judged & ~np.isnan(verdict) if "winner" in columns else judged
    columns.check(~has_verdict | ~np.isnan(p_bar), "p_bar is missing, but there is a verdict")
    sides = {1.0: ("model_a", p_bar < 0.5), 0.0: ("model_b", p_bar > 0.5)}
    for outcome, (side, contrary) in sides.items():
        columns.check(
            ~judged | (verdict != outcome) | ~contrary,
            f"winner is {side}, and p_bar prefers the other model: p_bar must be the probability "
            "that model_a is preferred",
        )
    return np.where(judged, p_bar, np.nan)


def _probability(columns: Columns, name: str) -> Floats:
    values = columns.numbers(name)
    columns.check(
        np.isnan(values) | ((values >= 0) & (values <= 1)), f"{name} is not between 0 and 1"
    )
    return values


def _labels(columns: Columns, default: float | None, placeless: Bools) -> tuple[Floats, Floats]:
    human = _outcomes(columns, "human", placeless)
    probability = columns.numbers("human_probability")
    columns.check(
        np.isnan(probability) | ((probability > 0) & (probability <= 1)),
        "human_probability is not above 0 and at most 1: it is the probability with which the "
        "row was drawn for labeling",
    )
    if default is not None:
        probability = np.where(np.isnan(probability), default, probability)
    columns.check(
        placeless | np.isnan(human) | ~np.isnan(probability),
        "there is a human label without human_probability, the probability with which the row was "
        "drawn for labeling: add the column, or give --human-probability if it was the same for "
        "all rows",
    )
    return human, probability


def _copies(columns: Columns, battles: Battles) -> Bools:
    """The rows that are copies of an earlier row."""
    battle, words = columns.codes("id")
    key = np.where(battle >= 0, battle, len(words) + np.arange(columns.n))
    _, original, inverse = np.unique(key, return_index=True, return_inverse=True)
    earlier = original[inverse]
    for content in vars(battles).values():
        if isinstance(content, np.ndarray):
            same = (content == content[earlier]) | _both_nan(content, content[earlier])
            columns.check(
                same,
                "the id occurs twice with other content: give each battle its own id, or remove "
                "the older row",
            )
    return np.asarray(earlier != np.arange(columns.n))


def _both_nan(content: Floats, other: Floats) -> Bools:
    if content.dtype.kind != "f":
        return np.zeros(content.shape, dtype=bool)
    return np.asarray(np.isnan(content) & np.isnan(other))
