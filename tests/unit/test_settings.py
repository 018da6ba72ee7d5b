"""Tests of the settings: defaults, names, and errors that never repeat a value."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from app.core.errors import StartupError
from app.settings import Settings, read_settings
from scope_judge.reward_source import VARIABLES

SECRET = "xyzzy-secret"

# Variable -> (value in the environment, parsed value), one for each type.
GIVEN: dict[str, tuple[str, Any]] = {
    "engine": ("scripted", "scripted"),
    "data_parallel": ("auto", "auto"),
    "vllm_args": ('{"max_num_seqs": 8}', {"max_num_seqs": 8}),
    "samples": ("4", 4),
    "openai_api_key": ("key", SecretStr("key")),
    "prompt_file": ("/tmp/p.toml", Path("/tmp/p.toml")),
    "default_alpha": ("0.2", 0.2),
    "audit_texts": ("on", True),
    "max_hang_s": ("0", 0.0),
    "port": ("0", 0),
    "cascade_slack": ("0.1", 0.1),
}
WRONG: dict[str, list[str]] = {
    "engine": [SECRET, "VLLM"],
    "dtype": [SECRET],
    "max_model_len": ["15", SECRET],
    "data_parallel": ["0", SECRET],
    "vllm_args": [SECRET, f'["{SECRET}"]', f'{{"{SECRET}": '],
    "default_alpha": ["0", "1", "nan", "inf", SECRET],
    "default_delta": ["0", "1"],
    "min_label_mass": ["-0.1", "1", "nan"],
    "audit_rate": ["-0.1", "1.1", "nan"],
    "audit_expires_s": ["0", "nan"],
    "replicas": ["0", "-1", "10001", "1.5", SECRET],
    "on_alarm": [SECRET],
    "score_cache": ["0", "-1", "1.5", "on", "9" * 20, SECRET],
    "max_pending": ["0"],
    "max_connections": ["0", SECRET],
    "timeout_s": ["0", "-1", "nan", "inf"],
    "max_staleness_s": ["-1", "nan"],
    "max_hang_s": ["-1", "nan", "inf"],
    "drain_s": ["0", "nan", "inf"],
    "root_path": ["judge-a", "/", "/a/", "/a//b", "/a b", f"/{SECRET}?"],
    "port": ["-1", "65536", SECRET],
    "metrics_port": ["0", "65536", "8000", SECRET],
    "escalate_max_share": ["-0.1", "1.1", SECRET],
    "log_format": [SECRET],
}


@pytest.fixture(autouse=True)
def _no_variables_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"SCOPE_{name.upper()}", raising=False)


@pytest.mark.parametrize("name", GIVEN)
def test_a_variable_is_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, value = GIVEN[name]
    monkeypatch.setenv("SCOPE_SCORING", "votes")
    monkeypatch.setenv(f"SCOPE_{name.upper()}", text)
    assert getattr(read_settings(), name) == value


@pytest.mark.parametrize("name", Settings.model_fields)
def test_an_empty_variable_is_unset(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"SCOPE_{name.upper()}", "")
    assert getattr(read_settings(), name) == Settings.model_fields[name].default


def test_overrides_replace_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCOPE_PORT", "1234")
    assert read_settings(port=4321).port == 4321


@pytest.mark.parametrize("name", ["SCOPE_API_KEY", "SCOPE_URL", *VARIABLES.values()])
def test_a_variable_of_the_client_is_not_a_setting_and_not_an_error(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, SECRET)
    assert SECRET not in repr(read_settings())


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("SCOPE_AUDITS_RATE", "SCOPE_AUDIT_RATE"),
        ("SCOPE_STORE_ULR", "SCOPE_STORE_URL"),
        ("SCOPE_TIMEOUT", "SCOPE_TIMEOUT_S"),
        # Not the client's SCOPE_API_KEY: a service that was meant to have keys would have none.
        ("SCOPE_API_KEYS", "SCOPE_API_KEYS_FILE"),
    ],
)
def test_a_misspelt_setting_is_told_the_one_that_was_meant(
    written: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(written, SECRET)
    with pytest.raises(StartupError, match="unknown") as raised:
        read_settings()
    assert str(raised.value) == f"{written}: unknown setting; did you mean {meant}?"


@pytest.mark.parametrize("service", ["SCOPE", "SCOPE_JUDGE"])
def test_variables_of_kubernetes_are_not_taken_for_misspelt_settings(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT_80_TCP"]
    names += ["PORT_80_TCP_PROTO", "PORT_80_TCP_PORT", "PORT_80_TCP_ADDR"]
    # SCOPE_PORT is a setting, with an invalid value.
    names += ["PORT"] if service == "SCOPE_JUDGE" else []
    for name in names:
        monkeypatch.setenv(f"{service}_{name}", "tcp://10.0.0.1:80")
    monkeypatch.setenv("SCOPE_PORTS", "1")
    with pytest.raises(StartupError, match="unknown") as raised:
        read_settings()
    misspelt, others = str(raised.value).splitlines()
    assert misspelt == "SCOPE_PORTS: unknown setting; did you mean SCOPE_PORT?"
    assert others.startswith(f"{service}_PORT")
    assert "unknown setting; unset it. " in others
    assert others.endswith("set enableServiceLinks: false in the pod")


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_an_invalid_value_is_reported_by_name_and_never_repeated(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"SCOPE_{name.upper()}", value)
    with pytest.raises(StartupError, match=f"^SCOPE_{name.upper()}: ") as raised:
        read_settings()
    assert SECRET not in str(raised.value)
    assert raised.value.__suppress_context__


@pytest.mark.parametrize("name", ["openai_api_key", "escalate_api_key"])
def test_the_key_of_a_server_is_never_shown(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"SCOPE_{name.upper()}", SECRET)
    found = read_settings()
    assert getattr(found, name).get_secret_value() == SECRET
    assert SECRET not in f"{found!r} {found} {found.model_dump_json()}"


def test_every_invalid_value_has_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCOPE_PORT", SECRET)
    monkeypatch.setenv("SCOPE_ENGINE", SECRET)
    with pytest.raises(StartupError) as raised:
        read_settings()
    lines = str(raised.value).splitlines()
    assert [line.split(":")[0] for line in lines] == ["SCOPE_ENGINE", "SCOPE_PORT"]
