"""The check of the desk's types fails at an error, and says if the registry is out of reach."""

import sys
from pathlib import Path

import pytest

from tests.desk_types import check, command

ERROR = "app.js(1,7): error TS2322: Type 'number' is not assignable to type 'string'."


def given(*, out: str = "", err: str = "", status: int = 0) -> list[str]:
    script = f"import sys; print({out!r}); print({err!r}, file=sys.stderr); sys.exit({status})"
    return [sys.executable, "-c", script]


@pytest.mark.parametrize(
    ("ran", "status", "said"),
    [
        (given(err="npm warn x"), 0, ""),
        (given(out=ERROR, status=2), 2, ERROR),
        (given(err="npm error code ENOTFOUND\nnpm error x", status=1), 0, "NOT checked"),
        (given(err="npm error code ECONNREFUSED", status=1), 0, "NOT checked"),
        (given(err="npm error code ERR_SOCKET_TIMEOUT", status=1), 0, "NOT checked"),
        # A wrong version, a damaged package or a defect of npm must not pass for a missing network.
        (given(err="npm error code ETARGET", status=1), 1, "ETARGET"),
        (given(err="npm error code EINTEGRITY", status=1), 1, "EINTEGRITY"),
        (given(out="npm error code ENOTFOUND", status=2), 2, "ENOTFOUND"),
    ],
)
def test_only_a_missing_registry_is_forgiven(
    ran: list[str], status: int, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert check(ran) == status
    told = capfd.readouterr().err
    assert said in told if said else told == ""


def test_the_checked_project_is_the_desk() -> None:
    assert (Path(command()[-1]) / "tsconfig.json").exists()
