"""Tests of `scope-judge audits` against a service that listens on a port."""

import re
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.stores.memory import MemoryStore
from scope_judge import ScopeClient
from tests.serving import application_of
from tests.unit.api.problems import comparison, examples
from tests.unit.cli.listening import listening

runner = CliRunner()


@pytest.fixture
def url() -> Iterator[str]:
    """A service in which all labels of 30 audits of `default` are wrong."""
    application = application_of(store=MemoryStore(), audit_rate=1.0, on_alarm="abstain")
    with listening(application) as url:
        httpx.post(f"{url}/calibrate", json={"examples": examples(60)}).raise_for_status()
        label(url, judged(url, range(30)), "B")
        yield url


def judged(url: str, numbers: range) -> list[str]:
    """Returns the ids of the audits of new judgments."""
    pairs = [comparison(question=f"Judged {number}?") for number in numbers]
    answer = httpx.post(f"{url}/judge/batch", json={"comparisons": pairs}).raise_for_status()
    return [each["audit"]["id"] for each in answer.json()["results"]]


def label(url: str, audits: list[str], side: str) -> None:
    rows = [{"id": each, "label": side} for each in audits]
    httpx.post(f"{url}/audits/labels", json={"labels": rows}).raise_for_status()


def run(url: str, *arguments: str) -> Result:
    return runner.invoke(app, ["audits", *arguments, "--url", url])


def test_an_alarm_is_ended_with_a_reason_and_the_trail_has_both(url: str) -> None:
    httpx.get(f"{url}/calibrations/default/monitor").raise_for_status()
    ended = run(url, "resume", "default", "--reason", "labels of another project")
    assert ended.exit_code == 0
    assert "under alpha 0.1 (marginal) has ended." in ended.output
    again = run(url, "resume", "default", "--reason", "once more")
    assert "default has no alarm." in again.output
    label(url, judged(url, range(100, 200)), "A")
    assert run(url, "status", "default").stdout.rstrip("\n").split("\t")[-1] == "certified"
    trail = run(url, "trail", "default")
    resumed, alarm = [line for line in trail.output.splitlines() if "alpha 0.1" in line]
    assert "resumed" in resumed
    assert "labels of another project" in resumed
    assert "30 errors in 30 labels, judgments abstain" in alarm


def test_an_absorption_is_shown_before_it_happens(url: str) -> None:
    httpx.get(f"{url}/calibrations/default/monitor").raise_for_status()
    run(url, "resume", "default", "--reason", "the labels were mixed up")
    ids = judged(url, range(100, 130))
    label(url, ids[:25], "A")
    label(url, ids[28:], "A")
    shown = run(url, "absorb", "default")
    assert shown.exit_code == 1
    assert "default, version 1: 60 examples become 85 (25 added, 0 updated, 0 removed)" in (
        shown.stderr
    )
    assert "wait for an earlier open audit, of verdicts and of abstentions: 2" in shown.stderr
    cells = shown.stdout.rstrip("\n").split("\t")
    assert (cells[:3], cells[5], cells[7]) == (["0.1", "marginal", ""], "1.000", "")
    assert "nothing was absorbed: stdin is not a terminal" in shown.stderr
    assert httpx.get(f"{url}/calibrations/default").json()["version"] == 1
    done = run(url, "absorb", "default", "--yes")
    assert done.exit_code == 0
    assert "default is version 2 with 85 examples." in done.stderr


def test_after_an_alarm_the_audits_that_its_trail_names_replace_the_examples(url: str) -> None:
    # All labels since the alarm are wrong for the judge.
    httpx.get(f"{url}/calibrations/default/monitor").raise_for_status()
    assert "the next 200 audits end it" in run(url, "trail", "default").stdout
    label(url, judged(url, range(100, 299)), "B")
    early = run(url, "absorb", "default", "--yes")
    assert (early.exit_code, "needs 200" in early.stderr) == (1, True)
    label(url, judged(url, range(299, 305)), "B")
    refused = run(url, "absorb", "default", "--yes")
    assert refused.exit_code == 1
    assert refused.stdout.split("\t")[-1] == "not known to help\n"
    assert "becomes_infeasible" in refused.stderr
    assert run(url, "absorb", "default", "--yes", "--even-if-infeasible").exit_code == 0
    assert httpx.get(f"{url}/calibrations/default").json()["n"] == 200


def test_status_says_in_a_sentence_what_the_audits_show(url: str) -> None:
    shown = run(url, "status", "default")
    assert shown.exit_code == 0
    sentence, _, alarm, *drift, note, recover = shown.stderr.splitlines()
    at = r"20[-\d]+ \d\d:\d\d UTC"
    assert re.fullmatch(
        r"default, version 1: \d\d% to 100% of the verdicts are wrong; promised were 10% by alpha "
        rf"0\.1 \(marginal\); the alarm has been active since {at}; the traffic is unlike the "
        rf"labeled pairs since {at}\.",
        sentence,
    )
    assert alarm.startswith("alarm under alpha 0.1 (marginal) since ")
    # All draws have one score, so the traffic has drifted, too.
    assert all(line.startswith("drift alarm of the ") for line in drift)
    assert "do not use them" in note
    assert "label the first 200 audits drawn since the alarm, then run" in recover
    cells = shown.stdout.rstrip("\n").split("\t")
    assert (cells[:7], cells[8:]) == (
        ["0.1", "marginal", "", "30", "0", "", "30"],
        ["more than 1000", "40", "0", "0", "alarm, suspended"],
    )


def test_status_names_a_drift_of_the_large_judge_of_a_cascade(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScopeClient(url) as client:
        found = client.monitor("default")
    drift = replace(found.drift, large_uncertainty=replace(found.drift.uncertainty, alarm=True))
    monkeypatch.setattr(ScopeClient, "monitor", lambda client, name: replace(found, drift=drift))
    assert "drift alarm of the large uncertainty" in run(url, "status", "default").stderr
