"""Reads rows of battles, and refuses those that would make a wrong rating in silence."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import numpy as np

from app.core.errors import InvalidComparisonError, InvalidRequestError
from app.files.labels import is_empty, label_of
from app.ratings.battles import UNNAMED, Battles
from app.ratings.bootstrap import Keys
from app.ratings.bradley_terry import Bools, Floats, Ints
from app.ratings.columns import FEATURES, Columns

_ABSTAIN = "abstain"
_OUTCOMES = {"A": 1.0, "B": 0.0, "tie": 0.5}
_NO_REASON = "no reason given"


def read_battles(
    inputs: Sequence[Path],
    *,
    human_probability: float | None = None,
    label_noise: float = 0.0,
    encoding: str | None = None,
) -> list[Battles]:
    """Reads the battles of each judge, the judge with the most judgments first.

    Rows of one judge with several signatures are several judges, the newest first.

    Args:
        inputs: Files, folders or patterns.
        human_probability: Probability of a label in the rows that do not say it.
        label_noise: Share of wrong labels among those of people, in [0, 0.5).
        encoding: Encoding of text without a byte order mark; None for UTF-8.

    Raises:
        InvalidRequestError: A file cannot be read, or a row cannot be believed. The message names
            the file, the first such row, and the reason.
    """
    columns = Columns(inputs, encoding)
    judge, names = _judges(columns)
    battles = replace(_battles(columns, human_probability), label_noise=label_noise)
    copy = _copies(columns, battles, judge)
    placeless = battles.first == battles.second
    if len(names) > 1:
        battles = _with_shared_labels(columns, battles)
    by_judge = []
    for number, name in enumerate(names):
        inside = judge == number
        own = replace(
            battles.where(inside & ~copy & ~placeless),
            repeated=int((inside & copy).sum()),
            placeless=int((inside & placeless & ~copy).sum()),
        )
        by_judge.append(_described(columns, own, inside, name))
    for of_judge in by_judge:
        if not of_judge.judged.any():
            raise InvalidRequestError(
                f"no row of {of_judge.judge} has a judgment: every battle failed"
            )
    return _in_order(columns, judge, by_judge)


def _in_order(columns: Columns, judge: Ints, by_judge: list[Battles]) -> list[Battles]:
    """The judge with the most judgments first; of one judge the newest rows first."""
    codes, words = columns.codes("judge")
    times, stamps = columns.codes("timestamp")
    judged = [int(of_judge.judged.sum()) for of_judge in by_judge]
    name = [words[code] if code >= 0 else "" for code in _first_codes(codes, judge)]
    newest = [
        max((stamps[time] for time in set(times[judge == place].tolist()) if time >= 0), default="")
        for place in range(len(by_judge))
    ]
    total = Counter[str]()
    for word, count in zip(name, judged, strict=True):
        total[word] += count
    order = sorted(range(len(by_judge)), key=lambda place: judged[place], reverse=True)
    order.sort(key=lambda place: newest[place], reverse=True)
    order.sort(key=lambda place: (-total[name[place]], name[place]))
    return [by_judge[place] for place in order]


def _first_codes(codes: Ints, judge: Ints) -> list[int]:
    """The code of the first row of each judge."""
    return [int(codes[judge == place][0]) for place in range(int(judge.max()) + 1)]


def _battles(columns: Columns, human_probability: float | None) -> Battles:
    """All rows as the battles of one judge without a name."""
    failed = ~columns.is_null("error")
    first, second, models = _sides(columns, failed)
    unit, units, key = _units(columns)
    battle, names = _identifiers(columns)
    judged, verdict = _verdicts(columns, failed)
    reason, reasons = columns.codes("reason")
    reason = np.where(reason < 0, len(reasons), reason)
    human, probability = _labels(columns, human_probability, failed)
    category, categories = columns.codes("category")
    return Battles(
        judge="",
        signature=None,
        alpha=None,
        guarantee=None,
        models=models,
        names=names,
        battle=battle,
        first=first,
        second=second,
        unit=unit,
        units=units,
        key=key,
        category=category,
        categories=tuple(categories),
        judged=judged,
        verdict=verdict,
        has_verdicts="winner" in columns,
        reason=np.where(judged & np.isnan(verdict), reason, -1),
        reasons=(*reasons, _NO_REASON),
        p_bar=_preference(columns, judged, verdict),
        p_fwd=_probability(columns, "p_fwd"),
        p_rev=_probability(columns, "p_rev"),
        human=human,
        human_probability=probability,
        style=_style(columns, judged),
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


def _identifiers(columns: Columns) -> tuple[Ints, tuple[str, ...]]:
    battle, words = columns.codes("id")
    names = [
        words[code] if code >= 0 else f"row {row}"
        for row, code in enumerate(battle.tolist(), start=1)
    ]
    return battle, tuple(names)


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
            unlabelled = name == "human" and is_empty(word)
            outcomes.append(np.nan if abstained or unlabelled else _OUTCOMES[label_of(word)])
        except InvalidComparisonError:
            outcomes.append(np.nan)
            wrong = (columns.codes(name)[0] == code) & ~exempt
            columns.check(~wrong, f"{name} is {word[:40]!r}, and must be {known}")
    return np.array([*outcomes, np.nan])


def _preference(columns: Columns, judged: Bools, verdict: Floats) -> Floats:
    p_bar = _probability(columns, "p_bar")
    if "p_bar" not in columns:
        return p_bar
    columns.check(~judged | ~np.isnan(p_bar), "p_bar is missing, but there is a verdict")
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


def _labels(columns: Columns, default: float | None, failed: Bools) -> tuple[Floats, Floats]:
    label, words = columns.codes("human")
    human = _outcomes_of(columns, "human", words, "model_a, model_b or tie", failed)[label]
    probability = columns.numbers("human_probability")
    columns.check(
        np.isnan(probability) | ((probability > 0) & (probability <= 1)),
        "human_probability is not above 0 and at most 1: it is the probability with which the "
        "row was drawn for labelling",
    )
    if default is not None:
        probability = np.where(np.isnan(probability), default, probability)
    columns.check(
        failed | np.isnan(human) | ~np.isnan(probability),
        "there is a human label without human_probability, the probability with which the row was "
        "drawn for labelling: add the column, or give --human-probability if it was the same for "
        "all rows",
    )
    return human, probability


def _style(columns: Columns, judged: Bools) -> Floats | None:
    differences = []
    for name in FEATURES:
        a, b = columns.numbers(f"{name}_a"), columns.numbers(f"{name}_b")
        columns.check(~((a < 0) | (b < 0)), f"{name}_a or {name}_b is negative")
        if np.isnan((a + b)[judged]).any():
            return None
        differences.append((a - b) / np.maximum(a + b, 1.0))
    return np.stack(differences, axis=1)


def _judges(columns: Columns) -> tuple[Ints, list[str]]:
    """Number of each row's judge, and a name for each: rows of one signature are one judge."""
    signature, _ = columns.codes("signature")
    judge, judges = columns.codes("judge")
    key = np.where(signature >= 0, len(judges) + 1 + signature, judge + 1)
    keys, number = np.unique(key, return_inverse=True)
    names = []
    for place in range(len(keys)):
        row = int(np.argmax(number == place))
        names.append(judges[judge[row]] if judge[row] >= 0 else "judge")
    versions = [_version(columns, number == place) for place in range(len(keys))]
    return number, _unique(_unique(names, versions), [f"#{n + 1}" for n in range(len(names))])


def _version(columns: Columns, inside: Bools) -> str:
    parts = []
    for name in ("calibration", "version"):
        codes, words = columns.codes(name)
        code = int(codes[inside][0])
        parts.append(words[code] if code >= 0 else "?")
    return f"({parts[0]} v{parts[1]})"


def _unique(names: list[str], more: list[str]) -> list[str]:
    """The names; those that are there twice get an addition."""
    return [
        f"{name} {addition}" if names.count(name) > 1 else name
        for name, addition in zip(names, more, strict=True)
    ]


def _described(columns: Columns, battles: Battles, inside: Bools, name: str) -> Battles:
    """The battles of one judge with its name, signature and criterion."""
    signature, signatures = columns.codes("signature")
    alpha = np.unique(columns.numbers("alpha")[inside])
    alpha = alpha[~np.isnan(alpha)]
    guarantee, guarantees = columns.codes("guarantee")
    kinds = np.unique(guarantee[inside & (guarantee >= 0)])
    code = int(signature[inside][0])
    return replace(
        battles,
        judge=name,
        signature=signatures[code] if code >= 0 else None,
        alpha=float(alpha[0]) if len(alpha) == 1 else None,
        guarantee=guarantees[kinds[0]] if len(kinds) == 1 else None,
    )


def _copies(columns: Columns, battles: Battles, judge: Ints) -> Bools:
    """The rows that are copies of an earlier row of the same judge."""
    key = np.where(
        battles.battle >= 0, battles.battle, battles.battle.max() + 1 + np.arange(columns.n)
    )
    _, original, inverse = np.unique(
        judge * (key.max() + 1) + key, return_index=True, return_inverse=True
    )
    earlier = original[inverse]
    for content in vars(battles).values():
        if isinstance(content, np.ndarray):
            same = (content == content[earlier]) | _both_nan(content, content[earlier])
            columns.check(
                same.reshape(columns.n, -1).all(axis=1),
                "the id occurs twice with other content: give each battle its own id, or remove "
                "the older row",
            )
    return np.asarray(earlier != np.arange(columns.n))


def _both_nan(content: Floats, other: Floats) -> Bools:
    if content.dtype.kind != "f":
        return np.zeros(content.shape, dtype=bool)
    return np.asarray(np.isnan(content) & np.isnan(other))


def _with_shared_labels(columns: Columns, battles: Battles) -> Battles:
    """Gives each label to the rows of other judges about the same battle."""
    named = battles.battle >= 0
    if not named.any():
        return battles
    count = int(battles.battle.max()) + 1
    row = np.zeros(count, dtype=np.int64)
    row[battles.battle[named]] = np.flatnonzero(named)
    of_label = np.full(count, -1)
    labelled = named & ~np.isnan(battles.human)
    of_label[battles.battle[labelled]] = np.flatnonzero(labelled)
    source = np.where(named, of_label[battles.battle], -1)
    other = np.where(named, row[battles.battle], np.arange(columns.n))
    same = (battles.first == battles.first[other]) & (battles.second == battles.second[other])
    columns.check(same, "another judge's row with this id has other models")
    source = np.where(source < 0, np.arange(columns.n), source)
    human, probability = battles.human[source], battles.human_probability[source]
    agree = np.isnan(battles.human) | (
        (battles.human == human) & (battles.human_probability == probability)
    )
    columns.check(agree, "another judge's row with this id has another human label")
    return replace(battles, human=human, human_probability=probability)
