"""Alarms of the audits that somebody tries to mute, to end without a trace, or to drown."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import httpx

from tests.drills.attacks.attack import Attack
from tests.drills.attacks.scene import Scene, pair

_EXAMPLES, _WRONG = 400, 40
_REQUESTS, _LABELS = 20, 1000
_MOST_CHANGES = 100
_SET = "alarmed"
# All drawn verdicts of the set are right on the labelled pairs, so any alpha accepts them.
_ALPHA = 0.1
_SETTINGS = {"SCOPE_AUDIT_RATE": "1", "SCOPE_ON_ALARM": "abstain"}


def _calibrate(client: httpx.Client, numbers: range) -> None:
    examples = [{**pair(number, gap=4.0), "label": "A"} for number in numbers]
    body = {"calibration": _SET, "examples": examples}
    client.post("/calibrate", json=body).raise_for_status()


def _judged(client: httpx.Client, numbers: range) -> list[dict[str, Any]]:
    comparisons = [pair(number, gap=4.0) for number in numbers]
    body = {"comparisons": comparisons, "calibration": _SET, "alpha": _ALPHA}
    answer = client.post("/judge/batch", json=body).raise_for_status()
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def _drawn(client: httpx.Client, numbers: range) -> list[str]:
    """Returns the ids of the audits of new judgments, all of which have a verdict."""
    return [each["audit"]["id"] for each in _judged(client, numbers)]


def _label(client: httpx.Client, audits: Sequence[str], label: str) -> httpx.Response:
    labels = [{"id": each, "label": label} for each in audits]
    return client.post("/audits/labels", json={"labels": labels})


def _alarm(client: httpx.Client) -> bool:
    found = client.get(f"/calibrations/{_SET}/monitor").raise_for_status().json()["criteria"]
    return any(each["alarm"] for each in found)


def _trail(client: httpx.Client) -> list[dict[str, Any]]:
    """Returns the trail of the audits, oldest first; nothing in a release without one."""
    answer = client.get(f"/calibrations/{_SET}/audit-trail")
    return [] if answer.status_code == 404 else list(reversed(answer.json()["entries"]))


def withhold_texts(scene: Scene) -> str:
    """Keeps the texts of one audit back, while every later verdict is wrong."""
    with scene.client(scene.judge_key) as attacker, scene.client(scene.admin_key) as admin:
        _calibrate(admin, range(10**6, 10**6 + _EXAMPLES))
        (withheld,) = _drawn(attacker, range(2 * 10**6, 2 * 10**6 + 1))
        wrong = _drawn(attacker, range(3 * 10**6, 3 * 10**6 + _WRONG))
        _label(admin, wrong, "B").raise_for_status()
        assert not _alarm(admin), "the labels did not wait for the open audit"
        closing_ = {"id": withheld, "label": "none", "reason": "the caller keeps the texts"}
        answer = admin.post("/audits/labels", json={"labels": [closing_]})
        assert answer.status_code == 200, (
            f"{_WRONG} labels of wrong verdicts wait for one audit until it expires (14 days); "
            f"closing it: {answer.status_code}"
        )
        assert _alarm(admin), "no alarm after the audit was closed"
        named = {each["by"] for each in _trail(admin)}
    return f"audit closed with a reason, alarm raised; the trail names {', '.join(sorted(named))}"


def end_an_alarm(scene: Scene) -> str:
    """Relabels audits as ties, adds one example, and looks whether anybody can tell."""
    with scene.client(scene.admin_key) as client:
        _calibrate(client, range(10**6, 10**6 + _EXAMPLES))
        audits = _drawn(client, range(2 * 10**6, 2 * 10**6 + _WRONG))
        _label(client, audits, "B").raise_for_status()
        assert _alarm(client), "the labels did not ring the alarm"
        _label(client, audits[:-1], "tie").raise_for_status()
        after_ties = _alarm(client)
        _calibrate(client, range(4 * 10**6, 4 * 10**6 + 1))
        after_example = _alarm(client)
        (judgment,) = _judged(client, range(5 * 10**6, 5 * 10**6 + 1))
        events = [each["event"] for each in _trail(client)]
        figure = (
            f"alarm after {_WRONG - 1} ties: {after_ties}, after one more example: {after_example},"
            f" judgment: {judgment['reason'] or judgment['verdict']}; entries of the trail: "
            f"{len(events)}"
        )
        assert after_ties, figure
        assert after_example, figure
        assert judgment["reason"] == "suspended", figure
        assert events == ["alarm"] + ["label_changed"] * (_WRONG - 1), figure
    return figure


def flood_labels(scene: Scene) -> str:
    """Changes the label of one audit 20,000 times."""
    with scene.client(scene.admin_key) as client:
        _calibrate(client, range(10**6, 10**6 + _EXAMPLES))
        (audit,) = _drawn(client, range(2 * 10**6, 2 * 10**6 + 1))
        statuses = list[int]()
        for _ in range(_REQUESTS):
            labels = [{"id": audit, "label": side} for side in "AB" * (_LABELS // 2)]
            statuses.append(client.post("/audits/labels", json={"labels": labels}).status_code)
        for number in range(2 * _MOST_CHANGES):
            statuses.append(_label(client, [audit], "AB"[number % 2]).status_code)
    with closing(sqlite3.connect(scene.store)) as store:
        query = "SELECT count(*) FROM audit WHERE json_extract(entry, '$.kind') = 'label'"
        ((entries,),) = store.execute(query)
    figure = f"{statuses.count(409)} of {len(statuses)} requests refused, {entries:,} entries"
    assert entries <= _MOST_CHANGES + 1, figure
    return figure


ATTACKS = (
    Attack(
        "withheld-texts",
        f"a caller withholds the texts of one audit while {_WRONG} later verdicts are wrong",
        withhold_texts,
        settings=_SETTINGS,
        cheap=True,
    ),
    Attack(
        "alarm-without-trace",
        f"a key with the role `calibrate` relabels {_WRONG - 1} audits as ties after an alarm, and "
        f"adds one example to {_EXAMPLES}",
        end_an_alarm,
        settings=_SETTINGS,
        cheap=True,
    ),
    Attack(
        "label-flood",
        f"a key with the role `calibrate` changes one label {_REQUESTS * _LABELS:,} times",
        flood_labels,
        settings=_SETTINGS,
        cheap=True,
    ),
)
