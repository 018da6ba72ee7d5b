"""`scope-judge check`: says what a service is and judges one group, or why it cannot be used."""

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from app.cli import app
from tests.unit.cli.commands import one_line
from tests.unit.clients.adapters.service import served


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served() as url:
        yield url


def test_a_usable_service_is_described(url: str) -> None:
    found = CliRunner().invoke(app, ["check", "--url", url, "--alpha", "0.2"])
    assert found.exit_code == 0, found.output
    shown = one_line(found.output)
    assert f"service: {url}" in shown
    assert "calibration set: default, version 1, 60 pairs labeled, of these 0 ties" in shown
    assert "criterion: alpha 0.2, marginal" in shown
    assert "one group of two responses: " in shown


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--alpha", "10"], "alpha"),
        (["--alpha", "0.001"], "with the set 'default': it is infeasible with its 60 labeled"),
        (["--calibration", "absent"], "absent"),
        (["--delta", "0.1", "--guarantee", "marginal"], "delta"),
        (["--url", "http://127.0.0.1:1"], "scope-judge serve"),
    ],
)
def test_a_service_that_cannot_be_used_so_is_an_error(
    url: str, options: list[str], words: str
) -> None:
    found = CliRunner().invoke(app, ["check", "--url", url, *options])
    assert found.exit_code != 0
    assert words in one_line(found.output)
