"""Battles in files: two models that answer one question, and the judged rows of a leaderboard."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from app.core.comparison import Label
from app.core.errors import InvalidComparisonError, InvalidRequestError
from app.core.messages import Fields
from app.files.shapes import (
    CALIBRATION,
    LABEL,
    REQUIRED,
    ComparisonShape,
    is_empty,
    label_of,
    listed,
    named_columns,
    shape_of_columns,
    suggested_map,
)

# The help of `battles` loads no client.
if TYPE_CHECKING:
    from scope_judge.records import Info

Winner = Literal["model_a", "model_b", "tie"]

MODELS = ("model_a", "model_b")
_MORE = (
    "id",
    "question_id",
    "group",
    "category",
    "human",
    "human_probability",
)
_WINNER = "winner"
_WINNERS: Mapping[Label, Winner] = {"A": "model_a", "B": "model_b", "tie": "tie"}
# Hexadecimal digits of a digest that serves as an id.
_SHORT = 16
_VERDICTS = {"A": "model_a", "B": "model_b", "abstain": "abstain"}
# Hexadecimal digits of a digest in a signature.
_DIGITS = 12
_PROBABILITIES = ("p_bar", "p_fwd", "p_rev")
_CRITERION = ("threshold", "alpha", "guarantee", "delta", "risk_level", "label_mass")


@dataclass(frozen=True, kw_only=True, slots=True)
class Battle:
    """Two models that answer one question.

    Args:
        id: Name of the battle; a digest of its content where the row has none.
        content: Digest of models, question and responses.
        question_id: Name of the question; a digest of it where the row has none.
        group: Unit of the bootstrap instead of the question, if the row has one.
        category: Kind of the question, if the row has one.
        model_a: Name of the first model.
        model_b: Name of the second model.
        fields: The comparison, with the response of model_a first.
        human: The label of a person, if there is one.
        human_probability: Probability with which the row was drawn for labeling, if it is known.
    """

    id: str
    content: str
    question_id: str
    group: str | None
    category: str | None
    model_a: str
    model_b: str
    fields: Fields
    human: Winner | None
    human_probability: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class BattleShape:
    """One way to keep battles in columns.

    Args:
        comparison: The columns of the question and of the responses.
        columns: Other field of a battle -> its column.
    """

    comparison: ComparisonShape
    columns: Mapping[str, str]

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

    def _human(self, row: Mapping[str, Any]) -> Winner | None:
        label = self._value(row, "human")
        if label is None and self.comparison.label:
            label = row.get(self.comparison.label)
        if is_empty(label):
            return None
        try:
            return _WINNERS[label_of(label, self.comparison.words)]
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
                "probability with which the row was drawn for labeling"
            )
        return probability


def battle_shape(row: Mapping[str, Any], columns: str | None = None) -> BattleShape:
    """Finds how the rows of a file hold battles.

    Args:
        row: The first row.
        columns: Map of columns, FIELD=COLUMN, separated by commas; None if there is none.

    Raises:
        InvalidRequestError: The columns do not hold battles. The message has a map that may fit.
    """
    fields = (*REQUIRED, LABEL, CALIBRATION, *MODELS, *_MORE)
    named = named_columns(columns, fields)
    others = {field: named.columns[field] for field in (*MODELS, *_MORE)}
    shape = shape_of_columns(named)
    if "signature" in row and "p_bar" in row:
        raise InvalidRequestError(
            "these are rows of `scope-judge battles`: their battles have been judged"
        )
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


def signature(info: "Info", result: Mapping[str, Any]) -> str:
    """One line that a paper can cite: everything that a judgment depends on.

    Args:
        info: The service that judged.
        result: The judgment, or an error, which has neither criterion nor calibration.
    """
    parts = [
        f"scope-judge {info.version}",
        f"judge {info.judge} (fingerprint {info.fingerprint[:_DIGITS]})",
    ]
    if info.template is not None:
        parts.append(f"template {info.template[:_DIGITS]}")
    if "error" not in result:
        parts += [_calibration(result), _criterion(result)]
    return "; ".join(parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedBattle:
    """A row of the input and what became of it.

    Args:
        place: File and line of the row.
        battle: The battle; None if the row has none.
        result: The judgment, or its error; A is model_a.
    """

    place: str
    battle: Battle | None
    result: Mapping[str, Any]


def battle_rows(judged: Sequence[JudgedBattle], info: "Info") -> list[dict[str, Any]]:
    """The rows of all battles, in order.

    A row without a judgment has the signature that most rows have, because rows of one signature
    belong together.
    """
    counts = Counter(signature(info, row.result) for row in judged if "error" not in row.result)
    usual = counts.most_common(1)[0][0] if counts else signature(info, {"error": None})
    battles = [row.battle for row in judged if row.battle is not None]
    columns = [
        name
        for name in ("group", "category")
        if any(getattr(battle, name) is not None for battle in battles)
    ]
    return [_row(row, info, usual, columns) for row in judged]


def _row(judged: JudgedBattle, info: "Info", usual: str, columns: Iterable[str]) -> dict[str, Any]:
    battle, result = judged.battle, judged.result
    error = result.get("error")
    reference = result.get("calibration") or {}
    known = _of_battle(battle, columns) if battle else {"id": judged.place}
    return {
        **known,
        "winner": None if error else _VERDICTS[result["verdict"]],
        "accepted": None if error else result["verdict"] != "abstain",
        "reason": result.get("reason"),
        **_columns(result, (*_PROBABILITIES, "uncertainty", *_CRITERION)),
        **_columns(result, ("temperature", "orders")),
        "judge": info.judge,
        "calibration": reference.get("name"),
        "version": reference.get("version"),
        "timestamp": result.get("timestamp"),
        **(_label(battle) if battle else {}),
        "audit": (result.get("audit") or {}).get("id"),
        "signature": usual if error else signature(info, result),
        "error": error["code"] if error else None,
        "error_detail": error["detail"] if error else None,
    }


def _columns(result: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: result.get(name) for name in names}


def _of_battle(battle: Battle, columns: Iterable[str]) -> dict[str, Any]:
    return {
        "id": battle.id,
        "question_id": battle.question_id,
        **{name: getattr(battle, name) for name in columns},
        "model_a": battle.model_a,
        "model_b": battle.model_b,
    }


def _label(battle: Battle) -> dict[str, Any]:
    return {"human": battle.human, "human_probability": battle.human_probability}


def _calibration(result: Mapping[str, Any]) -> str:
    reference = result["calibration"]
    if reference is None:
        return "no calibration"
    return f"calibration {reference['name']}, version {reference['version']}, n {reference['n']}"


def _criterion(result: Mapping[str, Any]) -> str:
    if result["alpha"] is None:
        return "no alpha"
    delta = "" if result["delta"] is None else f", delta {result['delta']:g}"
    return f"{result['guarantee']}, alpha {result['alpha']:g}{delta}"
