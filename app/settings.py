"""The settings of the service, read once from environment variables."""

import difflib
import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    JsonValue,
    SecretStr,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.core.groups import declared_groups


class Settings(BaseSettings):
    """The settings; each is an environment variable with the prefix SCOPE_."""

    model_config = SettingsConfigDict(
        env_prefix="SCOPE_", frozen=True, hide_input_in_errors=True, extra="forbid"
    )

    engine: Literal["vllm", "openai", "decisions", "transformers", "scripted"] = Field(
        "vllm",
        description="Engine of the judge: `vllm`; `openai` (OpenAI-compatible servers that are "
        "already running); `decisions` (servers that answer typed questions with probabilities, "
        "`POST /v1/systemone` or `/v1/decisions`); `transformers` (slow; the float32 reference); "
        "`scripted` (no model, for tests).",
    )
    model: str = Field(
        "demo",
        description="Hugging Face id or folder of the judge's model; for `openai` and `decisions` "
        "the model's name on the server. `demo` is the bundled judge.",
    )
    revision: str | None = Field(
        None, description="Branch, tag or commit of the model on the Hugging Face hub."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Data type of the model; `auto` takes the checkpoint's data type."
    )
    max_model_len: Annotated[int, Field(ge=16)] | None = Field(
        None, description="Context length in tokens; empty for the model's own."
    )
    tensor_parallel: int = Field(1, ge=1, description="Number of GPUs that share one judge.")
    gpu_memory: float = Field(
        0.9, gt=0, le=1, description="Share of a GPU's memory that vLLM may use."
    )
    cpu_kv_cache_mb: int = Field(
        512, ge=16, description="Size of vLLM's KV cache on a CPU, in MiB."
    )
    vllm_args: Annotated[dict[str, JsonValue], NoDecode] = Field(
        {},
        description="Further arguments of vLLM's `AsyncEngineArgs` as a JSON object, such as "
        '`{"max_num_batched_tokens": 8192}`. Those that change scores, such as `quantization`, '
        "are part of the judge's fingerprint.",
    )
    openai_urls: str = Field(
        "",
        description="For `openai` and `decisions`: base URLs of the servers, such as "
        "`http://a:8000/v1`, separated by commas. All must serve the same model. Judging continues "
        "while at least one works.",
    )
    openai_api_key: SecretStr | None = Field(
        None, description="For `openai` and `decisions`: API key, sent to all servers."
    )
    openai_scoring: Literal["auto", "tokens", "top", "rewards"] = Field(
        "auto",
        description="For `openai`: how to read the scores. `tokens`: the labels' logits by token "
        "id, exact (needs vLLM 0.26 or newer). `top`: from the 20 most probable tokens. `auto` "
        "tests at the start which of these two works. `rewards`: the servers run a reward model, "
        "with vLLM's `/classify` or `/pooling`.",
    )
    openai_timeout_s: float = Field(
        120.0,
        gt=0,
        le=86400,
        description="For `openai` and `decisions`: timeout of one request to a server.",
    )
    tokenizer: str = Field(
        "",
        description="For `openai`: Hugging Face id or folder of the served model's tokenizer; "
        "empty for SCOPE_MODEL.",
    )
    prompt_file: Path | None = Field(
        None,
        description="TOML file with the strings `user` and `system`, which replace the paper's "
        "prompt template.",
    )
    prefill: str = Field(
        "", description="Text that begins the judge's answer in the prompt, e.g. `[[`."
    )
    store_url: str = Field(
        "",
        description="URL of the calibration store: `sqlite:///path`, `redis://host:port/db`, "
        "`rediss://host:port/db` (TLS), `unix:///path/of/redis.sock` or `memory://`. Empty for a "
        "file of this judge in your data folder: `$XDG_DATA_HOME/scope-judge/JUDGE.db`, else "
        "`~/.local/share/scope-judge/JUDGE.db`.",
    )
    default_alpha: float = Field(
        0.10,
        gt=0,
        lt=1,
        description="Alpha of requests that give none: the largest share of wrong verdicts among "
        "the accepted ones.",
    )
    default_guarantee: Literal["marginal", "pac"] = Field(
        "marginal",
        description="Guarantee of requests that give none: `marginal` (as in SCOPE) or `pac` "
        "(holds with probability 1 - delta).",
    )
    default_delta: float = Field(
        0.10, gt=0, lt=1, description="Delta of `pac` requests that give none."
    )
    min_label_mass: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Abstain with the reason `off_task` if the two labels together have less "
        "probability than this; 0 turns it off.",
    )
    groups: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Groups of the traffic that comparisons can name, such as `math,code`: at most "
        "16 names, separated by commas. A set can declare further ones.",
    )
    audit_rate: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Probability with which a comparison is drawn for an audit, so that people "
        "label it; 0 draws none.",
    )
    audit_expires_s: float = Field(
        14 * 86400.0,
        gt=0,
        le=10 * 365 * 86400,
        description="How long a drawn judgment waits for its label.",
    )
    audit_texts: bool = Field(
        False,
        description="Keep the texts of drawn pairs in the store, as they are, until they are "
        "labelled, closed or expired. Keys with the role `calibrate` can read them.",
    )
    audit_keep_days: float = Field(
        0.0,
        ge=0,
        le=36500,
        description="Days after which draws of versions that are not in force any more are folded "
        "into counts, with their labels; more than SCOPE_AUDIT_EXPIRES_S and "
        "SCOPE_MAX_STALENESS_S. 0 keeps everything.",
    )
    on_alarm: Literal["report", "abstain"] = Field(
        "report",
        description="Reaction to audits that show more errors than alpha: `report` (metrics, log "
        "and `/calibrations/{name}/monitor`), or `abstain`: judgments under that criterion also "
        "abstain with the reason `suspended` until the set has a new version.",
    )
    score_cache: Literal["off"] | Annotated[int, Field(ge=1, le=10 * 365 * 86400)] = Field(
        "off",
        description="Seconds for which the store keeps scores, so that a repeated comparison costs "
        "no call of the judge, also with its responses in the other order; or `off`. Texts are "
        "not kept.",
    )
    score_cache_size: int = Field(
        1_000_000,
        ge=1,
        le=10**9,
        description="Most scores that the store keeps; each takes up to 200 bytes. A comparison "
        "has one place, and the newest score there replaces the one before.",
    )
    reward_end_markers: str = Field(
        "",
        description="Texts, separated by blanks, with which a policy ends its response, besides "
        "the common ones such as `</s>`. They are removed from the responses that OpenRLHF and "
        "slime send.",
    )
    max_batch: int = Field(
        1000,
        ge=1,
        description="Most comparisons in one request; at most half of SCOPE_MAX_PENDING "
        "take effect.",
    )
    max_body_bytes: int = Field(
        2 * 2**20,
        ge=1024,
        description="Largest body of one request, in bytes. Clients and commands send larger "
        "batches in parts.",
    )
    max_pending: int = Field(
        4096,
        ge=1,
        description="Most comparisons in progress at once; callers with less than their share "
        "wait for a place, others get status 429.",
    )
    max_pending_bytes: int = Field(
        256 * 2**20,
        ge=1024,
        description="Most bytes of all requests in progress together; further requests get status "
        "429.",
    )
    max_connections: int = Field(
        1000,
        ge=1,
        description="Most open connections; the limit of open files may lower it. A connection "
        "without a request is closed to make room for a new one.",
    )
    timeout_s: float = Field(
        120.0,
        gt=0,
        le=86400,
        description="Timeout of one request; its work is then stopped and the status is 504.",
    )
    max_staleness_s: float = Field(
        900.0,
        ge=0,
        description="How long judging continues with the thresholds in memory while the store does "
        "not answer.",
    )
    probe_timeout_s: float = Field(10.0, gt=0, description="How long /readyz waits for the judge.")
    max_hang_s: float = Field(
        300.0,
        ge=0,
        le=86400,
        description="The service ends, so that its supervisor can restart it, if no probe of its "
        "judge has succeeded for so long; 0 turns it off. Without effect for `openai` and "
        "`decisions`, whose servers it does not restart.",
    )
    drain_lag_s: float = Field(
        2.0,
        ge=0,
        le=3600,
        description="After SIGTERM: how long the service still accepts requests while /readyz "
        "already fails, so that a proxy notices.",
    )
    drain_s: float = Field(
        30.0,
        gt=0,
        le=86400,
        description="After SCOPE_DRAIN_LAG_S: how long requests in progress may take to finish.",
    )
    api_keys_file: Path | None = Field(
        None,
        description="Key file with hashed keys (made by `scope-judge keys add`). Without it the "
        "service listens on 127.0.0.1 only.",
    )
    root_path: str = Field(
        "",
        pattern=r"^(/[A-Za-z0-9._~-]+)*$",
        description="Prefix under which a proxy shows the service, such as `/judge-a`, if the "
        "proxy leaves it on the paths of requests. Empty if it takes the prefix off.",
    )
    desk: Literal["on", "off"] = Field(
        "on",
        description="The page at /desk, where people try the judge and look after calibration "
        "sets: `on`, or `off` (404).",
    )
    metrics: Literal["key", "open", "off"] = Field(
        "key",
        description="Access to /metrics: `key` (with a key file, only keys with the role "
        "`metrics`), `open` (everybody) or `off` (nobody).",
    )
    engine_metrics: bool = Field(
        True,
        description="Show vLLM's own metrics at /metrics; costs a sixth more of this process's CPU "
        "time for each prompt.",
    )
    traces: bool = Field(
        False,
        description="Send OpenTelemetry traces (needs the extra `tracing`); set the destination "
        "with `OTEL_EXPORTER_OTLP_ENDPOINT` and the other OTEL_* variables.",
    )
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 for any free one.")
    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        None,
        description="A second port of `scope-judge serve`, which answers /metrics without a key "
        "and nothing else, whatever SCOPE_METRICS says: for a network that only Prometheus "
        "reaches. Empty for none.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Level of the log. No level logs questions or responses."
    )
    log_format: Literal["text", "json"] = Field(
        "text",
        description="Format of the log on stderr: `text`, or `json` for one object a line with "
        "`time`, `level`, `logger` and `message`.",
    )

    @field_validator(
        "revision",
        "max_model_len",
        "openai_api_key",
        "prompt_file",
        "api_keys_file",
        "metrics_port",
        mode="before",
    )
    @classmethod
    def _empty_is_unset(cls, value: object) -> object:
        return None if value == "" else value

    @field_validator("score_cache", mode="wrap")
    @classmethod
    def _seconds_or_off(cls, value: object, handler: ValidatorFunctionWrapHandler) -> object:
        try:
            return handler(value)
        except ValidationError:
            # pydantic would report a fault for each of the two.
            raise ValueError("neither off nor whole seconds from 1 to 315360000") from None

    @field_validator("metrics_port")
    @classmethod
    def _is_another_port(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and value == info.data.get("port"):
            raise ValueError("the same port as SCOPE_PORT")
        return value

    @model_validator(mode="after")
    def _keeps_for_long_enough(self) -> Self:
        shortest = max(self.audit_expires_s, self.max_staleness_s) / 86400
        if 0 < self.audit_keep_days <= shortest:
            raise ValueError(
                f"SCOPE_AUDIT_KEEP_DAYS must be more than {shortest:g} days, which "
                "SCOPE_AUDIT_EXPIRES_S and SCOPE_MAX_STALENESS_S last: draws must have expired "
                "before they are folded"
            )
        return self

    @field_validator("groups", mode="before")
    @classmethod
    def _from_commas(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return declared_groups(name.strip() for name in value.split(",") if name.strip())

    @field_validator("vllm_args", mode="before")
    @classmethod
    def _from_json(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value or "{}")
        except ValueError:
            raise ValueError("not a JSON object") from None


VARIABLES = {f"SCOPE_{name.upper()}" for name in Settings.model_fields}

# The client and its adapters read these; `serve` may run in the same shell.
CLIENT_VARIABLES = {
    "SCOPE_URL",
    "SCOPE_API_KEY",
    "SCOPE_REWARD_ALPHA",
    "SCOPE_REWARD_GUARANTEE",
    "SCOPE_REWARD_DELTA",
    "SCOPE_REWARD_DELTA_FOR",
    "SCOPE_REWARD_CALIBRATION",
    "SCOPE_REWARD_GROUP",
    "SCOPE_REWARD_OPPONENTS",
    "SCOPE_REWARD_KIND",
    "SCOPE_REWARD_EMPTY",
    "SCOPE_REWARD_FAILURES",
    "SCOPE_REWARD_TIMEOUT_S",
    "SCOPE_REWARD_PATIENCE_S",
    "SCOPE_REWARD_COMPARISONS_FILE",
}


# How like a setting an unknown name must be to be taken for a misspelt one (`ratio` of difflib).
# Those that Kubernetes sets reach 0.75 (SCOPE_SERVICE_PORT for a service named scope).
_LEAST_ALIKE = 0.76


def read_settings(**overrides: Any) -> Settings:
    """Reads the environment.

    Args:
        overrides: Values that replace those of the environment.

    Raises:
        ValueError: One line for each invalid setting, without its value. An unknown variable with
            the prefix SCOPE_ is invalid too: a misspelt SCOPE_STORE_ULR would otherwise leave the
            default store in use.
    """
    known = VARIABLES | CLIENT_VARIABLES
    unknown = sorted(name for name in os.environ if name.startswith("SCOPE_") and name not in known)
    if unknown:
        raise ValueError(_refusal(unknown))
    try:
        return Settings(**overrides)
    except ValidationError as exc:
        faults = exc.errors(include_input=False, include_url=False)
        lines = [_fault_line(fault["loc"], fault["msg"]) for fault in faults]
        raise ValueError("\n".join(lines)) from None


def _fault_line(place: tuple[int | str, ...], fault: str) -> str:
    """A line for one fault; one of several settings together names them itself."""
    fault = fault.removeprefix("Value error, ")
    if not place:
        return fault
    return f"SCOPE_{'.'.join(map(str, place)).upper()}: {fault}"


def _refusal(unknown: list[str]) -> str:
    """A line for each misspelt setting, and one for all other unknown variables."""
    lines, others = [], []
    for name in unknown:
        # The common prefix would make all names alike.
        close = difflib.get_close_matches(
            name.removeprefix("SCOPE_").lower(), Settings.model_fields, n=1, cutoff=_LEAST_ALIKE
        )
        if close:
            lines.append(f"{name}: unknown setting; did you mean SCOPE_{close[0].upper()}?")
        else:
            others.append(name)
    if others:
        lines.append(
            f"{', '.join(others)}: unknown setting. Kubernetes sets such variables if the name of "
            "a service begins with scope: set enableServiceLinks: false in the pod"
        )
    return "\n".join(lines)
