"""Tests of `scope-judge audits` against a service that listens on a port."""

from collections.abc import Iterator

import httpx
import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.stores.memory import MemoryStore
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
    trail = run(url, "trail", "default")
    resumed, alarm = [line for line in trail.output.splitlines() if "alpha 0.1" in line]
    assert "resumed" in resumed
    assert "labels of another project" in resumed
    assert "30 errors in 30 labels, judgments abstain" in alarm


def test_audits_are_closed_with_a_reason(url: str) -> None:
    audits = judged(url, range(100, 102))
    closed = run(url, "close", *audits, "0" * 32, "--reason", "the texts are gone")
    assert closed.exit_code == 0
    assert "closed 2" in closed.output
    assert "unknown 1" in closed.output
    open_ones = httpx.get(f"{url}/audits", params={"status": "open"}).json()["audits"]
    assert open_ones == []
    refused = run(url, "close", audits[0], "--reason", " ")
    assert refused.exit_code == 1
    assert "reason" in refused.output


def test_a_set_that_is_absent_cannot_resume(url: str) -> None:
    refused = run(url, "resume", "none", "--reason", "x")
    assert refused.exit_code == 1
    assert "none" in refused.output
