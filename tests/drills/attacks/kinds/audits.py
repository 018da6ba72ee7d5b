"""Audits that a caller of the service tries to flood, to choose or to turn against others."""

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import httpx

from tests.drills.attacks.attack import Attack
from tests.drills.attacks.scene import Scene, pair

_REQUESTS, _ALPHAS, _FEWER_ALPHAS = 50, 1000, 32
_MOST_CRITERIA = 64
_MONITOR = "/calibrations/default/monitor"
_PROBES, _PROBE_RATE = 100, 0.3
# If draws have nothing to do with each other, more of 30 come again in one of ten million runs.
_MOST_SHARE = 0.8
_WRONG = 20
# Above the share of errors in the scene's set, so that anything is accepted.
_ALPHA = 0.3


def ask_new_alphas(scene: Scene) -> str:
    """Judges one comparison at 50,000 alphas, in smaller batches if these are refused."""
    one = pair(10**6, gap=4.0)
    refused = 0
    with scene.client(scene.judge_key) as client:
        for request in range(_REQUESTS):
            first = 0.3 + request / 1000
            answer = _judged_at(client, one, [first + i / 10**6 for i in range(_ALPHAS)])
            if answer.status_code == 422:
                refused += 1
                fewer = [first + i / 10**6 for i in range(_FEWER_ALPHAS)]
                _judged_at(client, one, fewer).raise_for_status()
        begun = time.perf_counter()
        _judged_at(client, one, [0.4 + i / 10**6 for i in range(_ALPHAS)])
        took = time.perf_counter() - begun
    with closing(sqlite3.connect(scene.store)) as store:
        query = "SELECT count(DISTINCT json_extract(entry, '$.alpha')) FROM audit"
        ((criteria,),) = store.execute(query)
    figure = (
        f"{refused} of {_REQUESTS} batches of {_ALPHAS:,} alphas were refused; the log has "
        f"{criteria:,} alphas; one more batch took {took:.1f} s"
    )
    assert criteria <= _MOST_CRITERIA, figure
    return figure


def _judged_at(
    client: httpx.Client, comparison: dict[str, str], alphas: Sequence[float]
) -> httpx.Response:
    items = [{**comparison, "alpha": alpha} for alpha in alphas]
    return client.post("/judge/batch", json={"comparisons": items})


def choose_draws(scene: Scene) -> str:
    """Probes comparisons at one alpha, and judges them at another and by the next version."""
    probes = [pair(10**6 + number, gap=4.0) for number in range(_PROBES)]
    with scene.client(scene.admin_key) as client:
        probed = _draws(client, probes, alpha=0.5)
        at_other_alpha = _draws(client, probes, alpha=_ALPHA)
        example = {**pair(2 * 10**6), "label": "A"}
        client.post("/calibrate", json={"examples": [example]}).raise_for_status()
        by_next_version = _draws(client, probes, alpha=0.5)
    chosen = sum(probed)
    again = [sum(both) for both in (_both(probed, at_other_alpha), _both(probed, by_next_version))]
    figure = (
        f"of {chosen} comparisons that are drawn at alpha 0.5, {again[0]} are drawn at alpha "
        f"{_ALPHA} and {again[1]} by the next version"
    )
    assert max(again) <= _MOST_SHARE * chosen, figure
    return figure


def _draws(
    client: httpx.Client, comparisons: Sequence[dict[str, str]], **criterion: Any
) -> list[bool]:
    """Whether the judgment of each comparison is drawn."""
    answer = client.post("/judge/batch", json={"comparisons": list(comparisons), **criterion})
    results = answer.raise_for_status().json()["results"]
    return [result["audit"] is not None for result in results]


def _both(one: Sequence[bool], other: Sequence[bool]) -> list[bool]:
    return [a and b for a, b in zip(one, other, strict=True)]


def ring_the_alarm(scene: Scene) -> str:
    """Sends comparisons that are judged wrongly, and looks who is suspended and who is named."""
    wrong = [pair(10**6 + number, gap=4.0) for number in range(_WRONG)]
    with scene.client(scene.judge_key) as attacker, scene.client(scene.admin_key) as admin:
        examples = [{**pair(number), "label": "A"} for number in range(200)]
        own_set = {"calibration": "own", "examples": examples}
        admin.post("/calibrate", json=own_set).raise_for_status()
        right = [pair(2 * 10**6 + number, gap=4.0) for number in range(_WRONG)]
        for client, comparisons, label in ((admin, right, "A"), (attacker, wrong, "B")):
            body = {"comparisons": comparisons, "alpha": _ALPHA}
            answer = client.post("/judge/batch", json=body).raise_for_status()
            ids = [each["audit"]["id"] for each in answer.json()["results"]]
            labels = [{"id": each, "label": label} for each in ids]
            admin.post("/audits/labels", json={"labels": labels}).raise_for_status()
        monitored = admin.get(_MONITOR).raise_for_status().json()["criteria"]
        (criterion,) = (each for each in monitored if each["alpha"] == _ALPHA)
        assert criterion["suspended"], "the labels did not ring the alarm"
        fresh = {**pair(3 * 10**6, gap=4.0), "alpha": _ALPHA, "calibration": "own"}
        own = admin.post("/judge", json=fresh).raise_for_status().json()["verdict"]
    assert own == "A", "an alarm of another set has suspended this one"
    by_key = {each["key"]: each["errors"] for each in criterion.get("keys", ())}
    assert by_key, (
        f"{criterion['errors']} errors suspended `default` for all keys; nothing says by whom"
    )
    assert by_key == {"judge": _WRONG, "admin": 0}, by_key
    named = ", ".join(f"{key} {errors}" for key, errors in by_key.items())
    return f"`default` is suspended; errors by key: {named}; the set `own` answers {own}"


ATTACKS = (
    Attack(
        "criteria-without-limit",
        f"a judge key asks for one comparison at {_REQUESTS * _ALPHAS:,} alphas; each is drawn",
        ask_new_alphas,
        settings={"SCOPE_AUDIT_RATE": "1", "SCOPE_ON_ALARM": "abstain"},
        cheap=True,
    ),
    Attack(
        "chosen-draws",
        f"{_PROBES} comparisons are judged at alpha 0.5, to predict the draws at alpha {_ALPHA} "
        f"and by the next version; the rate is {_PROBE_RATE}",
        choose_draws,
        settings={"SCOPE_AUDIT_RATE": str(_PROBE_RATE)},
        cheap=True,
    ),
    Attack(
        "alarm-of-others",
        f"a caller sends {_WRONG} comparisons that it knows the judge gets wrong, to a set that "
        "others use, too",
        ring_the_alarm,
        settings={"SCOPE_AUDIT_RATE": "1", "SCOPE_ON_ALARM": "abstain"},
        cheap=True,
    ),
)
