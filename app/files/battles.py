"""Battles in files: two models that answer one question, and the judged rows of a leaderboard."""

import hashlib
import json
import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from app.core.comparison import Label
from app.core.errors import InvalidComparisonError, InvalidRequestError
from app.core.messages import Fields
from app.files.labeled import check_words
from app.files.reading import FileRow
from app.files.shapes import (
    CALIBRATION,
    LABEL,
    MODELS,
    NONE,
    OF_BATTLE,
    REQUIRED,
    ComparisonShape,
    is_empty,
    label_of,
    listed,
    named,
    named_columns,
    shape_of_columns,
    suggested_map,
    words_of_map,
)

# The help of `battles` loads no client.
if TYPE_CHECKING:
    from scope_judge.records import Info

_WINNER = "winner"
# Labels and verdicts as the rows of a leaderboard name them; a tie and an abstention stay.
_SIDES = {"A": "model_a", "B": "model_b"}
# Hexadecimal digits of a digest that serves as an id.
_SHORT = 16
# Hexadecimal digits of a digest in a signature.
_DIGITS = 12
# Fields of a judgment that its row has.
_JUDGED = (
    *("p_bar", "p_fwd", "p_rev", "uncertainty", "threshold", "alpha", "guarantee", "delta"),
    *("risk_level", "label_mass", "temperature", "orders"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Battle:
    """Two models that answer one question; the response of model_a is the first.

    Args:
        id: Name of the battle; a digest of its content where the row has none.
        content: Digest of models, question and responses.
        group: Unit of the bootstrap instead of the question.
        human_probability: Probability with which the row was drawn for labeling.
    """

    id: str
    content: str
    question_id: str
    group: str | None
    category: str | None
    model_a: str
    model_b: str
    fields: Fields
    human: Label | None
    human_probability: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class BattleShape:
    """One way to keep battles in columns: those of the comparison, and of each other field."""

    comparison: ComparisonShape
    columns: Mapping[str, str]

    def check_words(self, rows: Sequence[FileRow]) -> None:
        """Raises InvalidRequestError for labels that are unknown words."""
        human, given = self.columns["human"], {LABEL: self.comparison.label, **self.columns}
        label = human if any(human in row.fields for row in rows) else self.comparison.label
        texts = zip(REQUIRED, self.comparison.texts, strict=True)
        parts = [f"{field}={c}" for field, c in (*texts, *given.items()) if c != field]
        whole = ",".join([*parts, *words_of_map(self.comparison.words)])
        check_words(rows, replace(self.comparison, label=label), whole=shlex.quote(whole))

    def leaves_out_winner(self, row: Mapping[str, Any]) -> bool:
        """Whether a row may have its labels in a column `winner` that is not read."""
        read = (self.comparison.label, self.columns["human"])
        return not is_empty(row.get(_WINNER)) and _WINNER not in read and read[1] not in row

    def battle(self, row: Mapping[str, Any]) -> Battle:
        """The battle of a row.

        Raises:
            InvalidComparisonError: The row has no battle, or a value of it cannot be used.
        """
        model_a, model_b = (self._name(row, field) for field in MODELS)
        if model_a == model_b:
            raise InvalidComparisonError("model_a and model_b are the same model")
        fields = self.comparison.fields(row)
        content = _digest([model_a, model_b, *(fields[name] for name in REQUIRED)])
        return Battle(
            id=self._text(row, "id") or content[:_SHORT],
            content=content,
            question_id=self._text(row, "question_id") or _digest(fields["question"])[:_SHORT],
            group=self._text(row, "group"),
            category=self._text(row, "category"),
            model_a=model_a,
            model_b=model_b,
            fields=fields,
            human=self._human(row),
            human_probability=self._probability(row),
        )

    def _value(self, row: Mapping[str, Any], field: str) -> Any:
        value = row.get(self.columns[field])
        return None if is_empty(value) else value

    def _text(self, row: Mapping[str, Any], field: str) -> str | None:
        value = self._value(row, field)
        return None if value is None else str(value)

    def _name(self, row: Mapping[str, Any], field: str) -> str:
        column = self.columns[field]
        value = row.get(column)
        if value is None:
            raise InvalidComparisonError(f"{column} is missing; there is {listed(row)}")
        if not isinstance(value, str) or not value.strip():
            raise InvalidComparisonError(f"{column} is not the name of a model: it must be a text")
        return value

    def _human(self, row: Mapping[str, Any]) -> Label | None:
        label = self._value(row, "human")
        if label is None and self.comparison.label:
            label = row.get(self.comparison.label)
        if is_empty(label):
            return None
        try:
            return label_of(label, self.comparison.words)
        except InvalidComparisonError:
            raise InvalidComparisonError(
                f"the human label {str(label)[:40]!r} is not model_a, model_b or tie"
            ) from None

    def _probability(self, row: Mapping[str, Any]) -> float | None:
        value = self._value(row, "human_probability")
        if value is None:
            return None
        try:
            probability = float(value)
        except (TypeError, ValueError):
            probability = math.nan
        if not 0.0 < probability <= 1.0:
            raise InvalidComparisonError(
                f"human_probability is {str(value)[:40]!r}, and must be above 0 and at most 1: the "
                "probability of the draw for labeling, the same in rows that were not drawn"
            )
        return probability


def battle_shape(row: Mapping[str, Any], columns: str | None = None) -> BattleShape:
    """Finds how the rows of a file hold battles.

    Args:
        row: Has the columns of the file.
        columns: A map as `--map` has it.

    Raises:
        InvalidRequestError: The columns do not hold battles. The message has a map that may fit.
    """
    fields = (*REQUIRED, LABEL, CALIBRATION, *OF_BATTLE)
    read = named_columns(columns, fields)
    others = {field: read.columns[field] for field in OF_BATTLE}
    shape = shape_of_columns(read)
    if "signature" in row and "p_bar" in row:
        raise InvalidRequestError(
            "these are rows of `scope-judge battles`: their battles have been judged"
        )
    if absent := [c for f, c in read.columns.items() if c not in (f, NONE, *row)]:
        raise InvalidRequestError(f"{named(absent)} missing; there is {listed(row)}: correct --map")
    if any(column not in row for column in (*shape.columns, *(others[m] for m in MODELS))):
        raise InvalidRequestError(
            f"the columns are {listed(row)}, and a battle needs question, response_a, response_b, "
            f"model_a and model_b: name the columns with --map {suggested_map([row], more=MODELS)}"
        )
    return BattleShape(comparison=shape, columns=others)


def _digest(value: Any) -> str:
    # With NaN and dates: the service reports them.
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _signature(info: "Info", result: Mapping[str, Any]) -> str:
    """One line that a paper can cite: everything that a judgment depends on.

    An error has neither criterion nor calibration.
    """
    parts = [
        f"scope-judge {info.version}",
        f"judge {info.judge} (fingerprint {info.fingerprint[:_DIGITS]})",
    ]
    if info.template is not None:
        parts.append(f"template {info.template[:_DIGITS]}")
    if "error" not in result:
        used, alpha = result["calibration"], result["alpha"]
        delta = "" if result["delta"] is None else f", delta {result['delta']:g}"
        parts += [
            "no calibration"
            if used is None
            else f"calibration {used['name']}, version {used['version']}, n {used['n']}",
            "no alpha" if alpha is None else f"{result['guarantee']}, alpha {alpha:g}{delta}",
        ]
    return "; ".join(parts)


def battle_rows(
    judged: Sequence[tuple[str, Battle | None, Mapping[str, Any]]], info: "Info"
) -> list[dict[str, Any]]:
    """The rows of all battles: of each, its place, the battle if there is one, and its result.

    A row without a judgment has the signature that most rows have, because rows of one signature
    belong together.
    """
    counts = Counter(_signature(info, result) for *_, result in judged if "error" not in result)
    usual = counts.most_common(1)[0][0] if counts else _signature(info, {"error": None})
    battles = [battle for _, battle, _ in judged if battle is not None]
    more = [n for n in ("group", "category") if any(getattr(b, n) is not None for b in battles)]
    rows = []
    for place, battle, result in judged:
        error, used = result.get("error"), result.get("calibration") or {}
        row: dict[str, Any] = {"id": place}
        if battle:
            row = {n: getattr(battle, n) for n in ("id", "question_id", *more, *MODELS)}
        row |= {
            "winner": None if error else _SIDES.get(result["verdict"], result["verdict"]),
            "accepted": None if error else result["verdict"] != "abstain",
            "reason": result.get("reason"),
            **{name: result.get(name) for name in _JUDGED},
            "judge": info.judge,
            "calibration": used.get("name"),
            "version": used.get("version"),
            "timestamp": result.get("timestamp"),
        }
        if battle:
            row["human"] = _SIDES.get(battle.human, battle.human) if battle.human else None
            row["human_probability"] = battle.human_probability
        row["audit"] = (result.get("audit") or {}).get("id")
        row["signature"] = usual if error else _signature(info, result)
        row["error"] = error["code"] if error else None
        row["error_detail"] = error["detail"] if error else None
        rows.append(row)
    return rows
