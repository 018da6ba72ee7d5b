"""Tests of the settings: defaults, names, and errors that never repeat a value."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from app.settings import Settings, read_settings
from scope_judge.reward_settings import VARIABLES

SECRET = "xyzzy-secret"

# Field -> (value in the environment, parsed value).
GIVEN: dict[str, tuple[str, Any]] = {
    "engine": ("scripted", "scripted"),
    "model": ("org/judge", "org/judge"),
    "revision": ("main", "main"),
    "dtype": ("float32", "float32"),
    "max_model_len": ("4096", 4096),
    "tensor_parallel": ("2", 2),
    "data_parallel": ("auto", "auto"),
    "vllm_args": ('{"max_num_seqs": 8}', {"max_num_seqs": 8}),
    "think_tokens": ("512", 512),
    "think_end": ("</t>", "</t>"),
    "chat_template_kwargs": ('{"a": 1}', {"a": 1}),
    "scoring": ("votes", "votes"),
    "samples": ("4", 4),
    "temperature": ("0.5", 0.5),
    "openai_urls": ("http://a:1/v1,http://b:1/v1", "http://a:1/v1,http://b:1/v1"),
    "openai_api_key": ("key", SecretStr("key")),
    "openai_scoring": ("top", "top"),
    "tokenizer": ("org/judge", "org/judge"),
    "prompt_file": ("/tmp/p.toml", Path("/tmp/p.toml")),
    "prefill": ("[[", "[["),
    "store_url": ("memory://", "memory://"),
    "default_alpha": ("0.2", 0.2),
    "default_guarantee": ("pac", "pac"),
    "default_delta": ("0.05", 0.05),
    "max_body_bytes": ("2048", 2048),
    "min_label_mass": ("0.5", 0.5),
    "audit_rate": ("0.05", 0.05),
    "audit_expires_s": ("60", 60.0),
    "audit_keep_days": ("30", 30.0),
    "audit_texts": ("on", True),
    "replicas": ("16", 16),
    "on_alarm": ("abstain", "abstain"),
    "score_cache": ("60", 60),
    "max_pending": ("64", 64),
    "max_connections": ("64", 64),
    "timeout_s": ("1.5", 1.5),
    "max_staleness_s": ("0", 0.0),
    "max_hang_s": ("0", 0.0),
    "drain_lag_s": ("0", 0.0),
    "drain_s": ("0.5", 0.5),
    "api_keys_file": ("/tmp/keys.json", Path("/tmp/keys.json")),
    "root_path": ("/judge-a/v1", "/judge-a/v1"),
    "metrics": ("off", "off"),
    "host": ("0.0.0.0", "0.0.0.0"),
    "port": ("0", 0),
    "metrics_port": ("9464", 9464),
    "log_level": ("debug", "debug"),
    "escalate_url": ("http://large:8000", "http://large:8000"),
    "escalate_api_key": (SECRET, SecretStr(SECRET)),
    "escalate_max_share": ("0.5", 0.5),
    "cascade_slack": ("0.1", 0.1),
    "log_format": ("json", "json"),
}
WRONG: dict[str, list[str]] = {
    "engine": [SECRET, "VLLM"],
    "dtype": [SECRET],
    "max_model_len": ["15", SECRET],
    "tensor_parallel": ["0", SECRET],
    "data_parallel": ["0", SECRET],
    "vllm_args": [SECRET, f'["{SECRET}"]', f'{{"{SECRET}": '],
    "openai_scoring": [SECRET],
    "default_alpha": ["0", "1", "nan", "inf", SECRET],
    "default_guarantee": ["PAC"],
    "default_delta": ["0", "1"],
    "max_body_bytes": ["1023"],
    "min_label_mass": ["-0.1", "1", "nan"],
    "audit_rate": ["-0.1", "1.1", "nan"],
    "audit_expires_s": ["0", "nan"],
    "audit_keep_days": ["0", "nan"],
    "replicas": ["0", "-1", "10001", "1.5", SECRET],
    "on_alarm": [SECRET],
    "score_cache": ["0", "-1", "1.5", "on", "9" * 20, SECRET],
    "max_pending": ["0"],
    "max_connections": ["0", SECRET],
    "timeout_s": ["0", "-1", "nan", "inf"],
    "max_staleness_s": ["-1", "nan"],
    "max_hang_s": ["-1", "nan", "inf"],
    "drain_lag_s": ["-1", "nan"],
    "drain_s": ["0", "nan", "inf"],
    "root_path": ["judge-a", "/", "/a/", "/a//b", "/a b", f"/{SECRET}?"],
    "metrics": ["yes", SECRET],
    "port": ["-1", "65536", SECRET],
    "metrics_port": ["0", "65536", "8000", SECRET],
    "escalate_max_share": ["-0.1", "1.1", SECRET],
    "cascade_slack": ["-0.1", "1.1", SECRET],
    "log_level": [SECRET],
    "log_format": [SECRET],
}


@pytest.fixture(autouse=True)
def _no_variables_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"SCOPE_{name.upper()}", raising=False)


def test_the_defaults_judge_with_the_bundled_judge() -> None:
    found = read_settings()
    assert (found.engine, found.model) == ("vllm", "demo")
    assert (found.default_alpha, found.default_guarantee, found.default_delta) == (
        0.1,
        "marginal",
        0.1,
    )
    assert found.store_url == ""
    assert (found.host, found.port) == ("127.0.0.1", 8000)
    assert (found.revision, found.max_model_len, found.prompt_file) == (None, None, None)


def test_every_setting_is_in_the_table() -> None:
    assert set(GIVEN) == set(Settings.model_fields)


@pytest.mark.parametrize("name", GIVEN)
def test_a_variable_is_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, value = GIVEN[name]
    monkeypatch.setenv("SCOPE_SCORING", "thoughts" if "think" in name else "votes")
    monkeypatch.setenv(f"SCOPE_{name.upper()}", text)
    assert getattr(read_settings(), name) == value
    assert read_settings() != Settings.model_construct()


@pytest.mark.parametrize("name", GIVEN)
def test_an_empty_variable_is_unset(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"SCOPE_{name.upper()}", "")
    assert getattr(read_settings(), name) == Settings.model_fields[name].default


def test_overrides_replace_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCOPE_PORT", "1234")
    assert read_settings(port=4321).port == 4321


def test_the_metrics_cannot_have_the_port_of_the_command_line() -> None:
    assert read_settings(port=9000, metrics_port=8000).metrics_port == 8000
    with pytest.raises(ValueError, match=r"^SCOPE_METRICS_PORT: .*must differ from SCOPE_PORT$"):
        read_settings(port=9464, metrics_port=9464)


def test_variables_of_other_programs_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "1")
    assert read_settings().port == 8000


@pytest.mark.parametrize("name", ["SCOPE_API_KEY", "SCOPE_URL", *VARIABLES.values()])
def test_a_variable_of_the_client_is_not_a_setting_and_not_an_error(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, SECRET)
    assert SECRET not in repr(read_settings())


@pytest.mark.parametrize("name", ["samples", "temperature", "think_tokens", "think_end"])
def test_a_setting_of_another_scoring_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"SCOPE_{name.upper()}", GIVEN[name][0])
    with pytest.raises(ValueError, match=f"SCOPE_{name.upper()}: has no effect with SCOPE_SCORING"):
        read_settings()


@pytest.mark.parametrize("name", ["SCOPE_STORE_ULR", "SCOPE_PORT_8000_TCP"])
def test_an_unknown_variable_is_reported(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "secret")
    with pytest.raises(ValueError, match=f"{name}: unknown setting") as caught:
        read_settings()
    assert "secret" not in str(caught.value)


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
    with pytest.raises(ValueError, match="unknown") as raised:
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
    with pytest.raises(ValueError, match="unknown") as raised:
        read_settings()
    misspelt, others = str(raised.value).splitlines()
    assert misspelt == "SCOPE_PORTS: unknown setting; did you mean SCOPE_PORT?"
    assert others.startswith(f"{service}_PORT")
    assert others.endswith("set enableServiceLinks: false in the pod")


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_an_invalid_value_is_reported_by_name_and_never_repeated(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"SCOPE_{name.upper()}", value)
    with pytest.raises(ValueError, match=f"^SCOPE_{name.upper()}: ") as raised:
        read_settings()
    assert SECRET not in str(raised.value)
    assert raised.value.__suppress_context__


def test_every_invalid_value_has_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCOPE_PORT", SECRET)
    monkeypatch.setenv("SCOPE_ENGINE", SECRET)
    with pytest.raises(ValueError, match="SCOPE_") as raised:
        read_settings()
    lines = str(raised.value).splitlines()
    assert [line.split(":")[0] for line in lines] == ["SCOPE_ENGINE", "SCOPE_PORT"]


def test_the_key_of_a_server_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCOPE_OPENAI_API_KEY", SECRET)
    found = read_settings()
    assert SECRET not in f"{found!r} {found} {found.model_dump_json()}"


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        read_settings().port = 1  # type: ignore[misc]
