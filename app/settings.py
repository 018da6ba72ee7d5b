"""Everything that can be set, read once from the environment."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """The settings; each is an environment variable with the prefix SCOPE_."""

    model_config = SettingsConfigDict(
        env_prefix="SCOPE_", frozen=True, hide_input_in_errors=True, extra="forbid"
    )

    engine: Literal["vllm", "openai", "transformers", "scripted"] = Field(
        "vllm",
        description="What runs the judge: `vllm`; `openai` (servers that run already); "
        "`transformers` (slow, in float32: the reference); `scripted` (no model, for tests).",
    )
    model: str = Field(
        "demo",
        description="Hugging Face id or folder of the judge, for `openai` its name at the server; "
        "`demo` is the bundled one.",
    )
    revision: str | None = Field(None, description="Branch, tag or commit of the model on the hub.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="What the judge computes in; `auto` is the checkpoint's own."
    )
    max_model_len: Annotated[int, Field(ge=16)] | None = Field(
        None, description="Context in tokens; empty for the model's own."
    )
    tensor_parallel: int = Field(1, ge=1, description="GPUs that share one judge.")
    gpu_memory: float = Field(0.9, gt=0, le=1, description="Share of a GPU's memory to take.")
    cpu_kv_cache_mb: int = Field(512, ge=16, description="KV cache on a CPU, in MiB.")
    openai_urls: str = Field(
        "",
        description="For `openai`: base URLs such as `http://a:8000/v1`, comma separated; all "
        "serve the same model, and one may fail.",
    )
    openai_api_key: SecretStr | None = Field(None, description="Sent to all of them.")
    openai_scoring: Literal["auto", "tokens", "top"] = Field(
        "auto",
        description="`tokens`: labels by token id, exact (vLLM from 0.26 on); `top`: labels among "
        "the 20 most probable tokens; `auto` finds out which at the start.",
    )
    openai_timeout_s: float = Field(
        120.0, gt=0, le=86400, description="For one request to such a server."
    )
    tokenizer: str = Field(
        "",
        description="For `openai`: Hugging Face id or folder of the served model's tokenizer; "
        "empty for SCOPE_MODEL.",
    )
    prompt_file: Path | None = Field(
        None, description="TOML file with `user` and `system` that replaces the paper's template."
    )
    prefill: str = Field("", description="How the judge's answer begins, e.g. `[[`.")
    store_url: str = Field(
        "sqlite:///scope-judge.db",
        description="`sqlite:///path`, `redis://host:port/db` or `memory://`.",
    )
    default_alpha: float = Field(
        0.10, gt=0, lt=1, description="Largest share of wrong verdicts among the accepted."
    )
    default_guarantee: Literal["marginal", "pac"] = Field(
        "marginal", description="`marginal` (SCOPE's) or `pac` (holds with probability 1 - delta)."
    )
    default_delta: float = Field(0.10, gt=0, lt=1, description="For `pac`, where none is asked.")
    min_label_mass: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Abstain as `off_task` where the two labels have less of the probability; "
        "0 never does.",
    )
    max_batch: int = Field(
        1000,
        ge=1,
        description="Comparisons in one request; seven eighths of SCOPE_MAX_PENDING at most.",
    )
    max_body_bytes: int = Field(8 * 2**20, ge=1024, description="Bytes in one request.")
    max_pending: int = Field(
        4096,
        ge=1,
        description="Comparisons that may be under way at once; more are answered with 429.",
    )
    max_pending_bytes: int = Field(
        256 * 2**20, ge=1024, description="Bytes of all requests that are under way, likewise."
    )
    max_connections: int = Field(
        1000,
        ge=1,
        description="Connections open at once, below the limit of open files; one without a "
        "request makes room for a new one.",
    )
    timeout_s: float = Field(
        120.0, gt=0, le=86400, description="For one request; then its work is stopped, with 504."
    )
    max_staleness_s: float = Field(
        900.0,
        ge=0,
        description="How long judging goes on with the thresholds it has while the store does not "
        "answer.",
    )
    probe_timeout_s: float = Field(10.0, gt=0, description="How long /readyz waits for the judge.")
    drain_lag_s: float = Field(
        2.0,
        ge=0,
        le=3600,
        description="After SIGTERM: how long new requests are still taken while /readyz says no, "
        "so that a proxy notices.",
    )
    drain_s: float = Field(
        30.0,
        gt=0,
        le=86400,
        description="After that: how long requests under way may take to finish.",
    )
    api_keys_file: Path | None = Field(
        None,
        description="File of hashed keys (`scope-judge keys add`); without it the service listens "
        "on 127.0.0.1 only.",
    )
    metrics: Literal["key", "open", "off"] = Field(
        "key",
        description="Who may read /metrics: `key`, where there is a file of keys, for those with "
        "the role `metrics`; `open` to all; `off`.",
    )
    engine_metrics: bool = Field(
        True,
        description="Whether vLLM's own metrics are at /metrics: a sixth more of this process's "
        "time for each prompt.",
    )
    traces: bool = Field(
        False,
        description="Send OpenTelemetry traces (extra `tracing`); `OTEL_EXPORTER_OTLP_ENDPOINT` "
        "and the other OTEL_* variables say where to.",
    )
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 for any free one.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="How much is logged; never texts."
    )

    @field_validator(
        "revision",
        "max_model_len",
        "openai_api_key",
        "prompt_file",
        "api_keys_file",
        mode="before",
    )
    @classmethod
    def _empty_is_unset(cls, value: object) -> object:
        return None if value == "" else value


def read_settings(**given: Any) -> Settings:
    """Reads the environment; what is given goes before it.

    Raises:
        ValueError: One line for each setting that is wrong, without its value. A variable that is
            no setting is wrong too: SCOPE_STORE_ULR would leave the store where it was.
    """
    known = {f"SCOPE_{name.upper()}" for name in Settings.model_fields}
    # No setting: `scope-judge judge` and `calibrate` send it, and a shell that has it may serve.
    known.add("SCOPE_API_KEY")
    unknown = sorted(name for name in os.environ if name.startswith("SCOPE_") and name not in known)
    if unknown:
        raise ValueError(
            f"{', '.join(unknown)}: there is no such setting (in Kubernetes, a service named scope "
            "makes such variables: set enableServiceLinks: false)"
        )
    try:
        return Settings(**given)
    except ValidationError as exc:
        lines = [
            f"SCOPE_{'.'.join(map(str, fault['loc'])).upper()}: {fault['msg']}"
            for fault in exc.errors(include_input=False, include_url=False)
        ]
        raise ValueError("\n".join(lines)) from None
