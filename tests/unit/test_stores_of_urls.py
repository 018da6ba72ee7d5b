"""Store URLs: which stores several machines can share, and the answer to an unknown scheme."""

from pathlib import Path

import pytest

from app.core.errors import StartupError
from app.wiring.stores import is_shared, make_store, own_store


@pytest.mark.parametrize(
    ("url", "shared"),
    [
        ("redis://store:6379/0", True),
        ("rediss://store:6379/0", True),
        ("redis+cluster://store:6379", True),
        ("unix:///run/redis.sock", False),
        ("sqlite:///file.db", False),
        ("memory://", False),
    ],
)
def test_a_url_says_whether_machines_can_share_its_store(url: str, shared: bool) -> None:
    assert is_shared(url) is shared


@pytest.mark.parametrize(
    "url", ["redis://[", "redis://host:99999", "redis://user:pass\u2100phrase@host/0", "sqlite:"]
)
def test_a_url_that_names_no_store_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(StartupError, match="SCOPE_STORE_URL") as caught:
        make_store(url)
    assert "phrase@" not in caught.value.detail


def test_a_socket_of_redis_names_a_store() -> None:
    assert make_store("unix:///run/redis.sock") is not None


def test_an_unknown_scheme_is_answered_with_every_known_one() -> None:
    with pytest.raises(StartupError) as caught:
        make_store("postgres://store/0")
    for url in ("sqlite:///", "redis://", "rediss://", "unix:///", "memory://"):
        assert url in caught.value.detail


@pytest.mark.parametrize(
    ("variables", "judge", "file"),
    [
        ({}, "demo", "home/.local/share/scope-judge/demo.db"),
        ({"XDG_DATA_HOME": ""}, "demo", "home/.local/share/scope-judge/demo.db"),
        ({"XDG_DATA_HOME": "data"}, "demo", "home/.local/share/scope-judge/demo.db"),
        ({"XDG_DATA_HOME": "{}/data"}, "demo", "data/scope-judge/demo.db"),
        # Two judges never share a set `default`, and a name cannot leave the folder.
        (
            {"XDG_DATA_HOME": "{}/data"},
            "Qwen/Qwen2.5-7B",
            "data/scope-judge/Qwen--Qwen2.5-7B.db",
        ),
        ({"XDG_DATA_HOME": "{}/data"}, "../x", "data/scope-judge/..--x.db"),
    ],
)
def test_without_a_url_calibrations_are_in_the_users_data_folder(
    variables: dict[str, str],
    judge: str,
    file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(tmp_path))
    assert own_store(judge) == tmp_path / file
