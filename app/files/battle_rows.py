"""The rows that `scope-judge battles` writes: one judged battle each, for a leaderboard."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.files.battles import Battle

_WINNERS = {"A": "model_a", "B": "model_b", "abstain": "abstain"}
# Hexadecimal digits of a digest in a signature.
_DIGITS = 12
_PROBABILITIES = ("p_bar", "p_fwd", "p_rev")
_CRITERION = ("threshold", "alpha", "guarantee", "delta", "risk_level", "label_mass")


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """The facts that all rows of one run share.

    Args:
        judge: Name of the judge.
        fingerprint: Fingerprint of the judge.
        template: Digest of the prompt template; None if the service does not say.
        version: Version of scope-judge; None if the service does not say.
    """

    judge: str
    fingerprint: str
    template: str | None
    version: str | None

    def signature(self, result: Mapping[str, Any]) -> str:
        """One line that a paper can cite: everything that a judgment depends on.

        Args:
            result: The judgment, or an error, which has neither criterion nor calibration.
        """
        parts = [
            f"scope-judge {self.version or '(version unknown)'}",
            f"judge {self.judge} (fingerprint {self.fingerprint[:_DIGITS]})",
        ]
        if self.template is not None:
            parts.append(f"template {self.template[:_DIGITS]}")
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


def battle_rows(judged: Sequence[JudgedBattle], provenance: Provenance) -> list[dict[str, Any]]:
    """The rows of all battles, in order.

    A row without a judgment has the signature that most rows have, because rows of one signature
    belong together.
    """
    signatures = [provenance.signature(row.result) for row in judged]
    counts = Counter(
        signature
        for signature, row in zip(signatures, judged, strict=True)
        if "error" not in row.result
    )
    usual = counts.most_common(1)[0][0] if counts else provenance.signature({"error": None})
    battles = [row.battle for row in judged if row.battle is not None]
    columns = [
        name
        for name in ("group", "category")
        if any(getattr(battle, name) is not None for battle in battles)
    ]
    return [
        _row(row, provenance, usual if "error" in row.result else signature, columns)
        for signature, row in zip(signatures, judged, strict=True)
    ]


def _row(
    judged: JudgedBattle, provenance: Provenance, signature: str, columns: Iterable[str]
) -> dict[str, Any]:
    battle, result = judged.battle, judged.result
    error = result.get("error")
    reference = result.get("calibration") or {}
    known = _of_battle(battle, columns) if battle else {"id": judged.place}
    return {
        **known,
        "winner": None if error else _WINNERS[result["verdict"]],
        "accepted": None if error else result["verdict"] != "abstain",
        "reason": result.get("reason"),
        **_columns(result, (*_PROBABILITIES, "uncertainty", *_CRITERION)),
        **_columns(result, ("temperature", "orders")),
        "judge": provenance.judge,
        "calibration": reference.get("name"),
        "version": reference.get("version"),
        "timestamp": result.get("timestamp"),
        **(_label(battle) if battle else {}),
        "audit": (result.get("audit") or {}).get("id"),
        "signature": signature,
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
