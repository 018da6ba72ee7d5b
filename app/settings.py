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

from app.core.errors import StartupError

DEMO = "demo"
# The bundled judge, and pairs with labels.
DEMO_FOLDER = Path(__file__).parent / "demo"


class Settings(BaseSettings):
    """The settings; each is an environment variable with the prefix SCOPE_."""

    model_config = SettingsConfigDict(
        env_prefix="SCOPE_",
        env_ignore_empty=True,
        frozen=True,
        hide_input_in_errors=True,
        extra="forbid",
    )

    engine: Literal["vllm", "openai", "decisions", "scripted"] = Field(
        "vllm",
        description="`vllm`; `openai` (OpenAI-compatible servers); `decisions` (decision servers); "
        "`scripted` (for tests, no model: judges at random unless responses say `quality=1.5`).",
    )
    model: str = Field(
        "demo",
        description="Hugging Face id or folder; for `openai` and `decisions` the name on the "
        "server; `demo` for the bundled judge.",
    )
    revision: str | None = Field(None, description="Branch, tag or commit on Hugging Face.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Data type; `auto` for the checkpoint's."
    )
    max_model_len: Annotated[int, Field(ge=16)] | None = Field(
        None, description="Context length in tokens; empty for the model's."
    )
    tensor_parallel: int = Field(1, ge=1, description="Number of GPUs that share one judge.")
    data_parallel: Literal["auto"] | Annotated[int, Field(ge=1)] = Field(
        1,
        description="Number of copies of the judge, each on its own SCOPE_TENSOR_PARALLEL GPUs; "
        "`auto` for as many as the visible GPUs hold.",
    )
    vllm_args: Annotated[dict[str, JsonValue], NoDecode] = Field(
        {},
        description="More `AsyncEngineArgs` of vLLM as a JSON object, such as "
        '`{"max_num_batched_tokens": 8192}`. The fingerprint includes those that change scores, '
        "such as `quantization`.",
    )
    openai_urls: str = Field(
        "",
        description="Base URLs of servers with the same model, such as `http://a:8000/v1`, "
        "separated by commas. Judging continues while one works.",
    )
    openai_api_key: SecretStr | None = Field(None, description="API key for all these servers.")
    openai_scoring: Literal["auto", "tokens", "top", "rewards"] = Field(
        "auto",
        description="Source of the scores of `openai`. `tokens`: exact label logits (vLLM 0.26 or "
        "newer). `top`: the 20 most probable tokens. `auto`: `tokens` if it works, else `top`. "
        "`rewards`: a reward model with vLLM's `/classify`.",
    )
    scoring: Literal["labels", "votes", "thoughts"] = Field(
        "labels",
        description="Source of the scores of a chat model. `labels`: log-probabilities of the two "
        "labels. `votes`: shares of sampled answers, for servers without log-probabilities. "
        "`thoughts`: the judge thinks first, and the labels are read behind its thought.",
    )
    samples: Annotated[int, Field(ge=1, le=128)] | None = Field(
        None,
        description="Answers or thoughts in each order of the responses; empty for 16 with "
        "`votes` and 1 with `thoughts`.",
    )
    temperature: float = Field(1.0, gt=0, le=10, description="Temperature of answers and thoughts.")
    think_tokens: int = Field(
        2048, ge=1, description="Longest thought in tokens; a longer one is an abstention."
    )
    think_end: str = Field(
        "",
        description="Text behind a thought, such as `</think>`; empty for the one in the "
        "tokenizer or the chat template.",
    )
    chat_template_kwargs: Annotated[dict[str, JsonValue], NoDecode] = Field(
        {},
        description="Variables of the judge's chat template as a JSON object, such as "
        '`{"reasoning_effort": "low"}`. The fingerprint includes them.',
    )
    tokenizer: str = Field(
        "",
        description="Tokenizer for `openai`, like SCOPE_MODEL; empty for that of the model.",
    )
    prompt_file: Path | None = Field(
        None,
        description="TOML file whose `user` and `system` replace the paper's prompt template.",
    )
    prefill: str = Field(
        "",
        description="Start of the judge's answer in the prompt, such as `[[`. Without one, vLLM's "
        "judges get `[[` if they put less than half of their probability on the labels, and more "
        "after it.",
    )
    escalate_url: str = Field(
        "",
        description="Base URL of another scope-judge service, whose judge decides what this one is "
        "unsure of: the two are a cascade. Empty for none.",
    )
    escalate_api_key: SecretStr | None = Field(
        None, description="Key of that service with the role `judge`."
    )
    escalate_max_share: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Largest share of a minute's comparisons that the large judge of a cascade is "
        "asked about. Above it the service abstains (`escalation_unavailable`).",
    )
    cascade_slack: float = Field(
        0.05,
        ge=0,
        le=1,
        description="A cascade serves if its coverage is within this of the large judge's; else "
        "the large judge decides everything. New sets keep the value.",
    )
    store_url: str = Field(
        "",
        description="`sqlite:///path`, `redis://host:port/db`, `rediss://host:port/db` (TLS), "
        "`redis+cluster://host:port`, `unix:///path/of/redis.sock` or `memory://`. "
        "Empty for `scope-judge/JUDGE.db` in `$XDG_DATA_HOME` or `~/.local/share`.",
    )
    default_alpha: float = Field(
        0.10,
        gt=0,
        lt=1,
        description="Default alpha: the largest share of wrong verdicts among accepted ones.",
    )
    default_guarantee: Literal["marginal", "pac"] = Field(
        "marginal",
        description="Default guarantee. `pac`: at most alpha of the verdicts are wrong, except "
        "with probability delta of unlucky labels. `marginal`: near alpha are wrong with a good "
        "judge and many labels, without a bound.",
    )
    default_delta: float = Field(0.10, gt=0, lt=1, description="Default delta of `pac`.")
    min_label_mass: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Abstain (`off_task`) if the two labels together are less probable than this.",
    )
    audit_rate: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Probability that a comparison is drawn for an audit by people.",
    )
    audit_expires_s: float = Field(
        14 * 86400.0,
        gt=0,
        le=10 * 365 * 86400,
        description="Seconds until an audit without a label expires, fixed when it is drawn.",
    )
    audit_texts: bool = Field(
        False,
        description="Store the texts of audits, unencrypted, until they are labeled, closed or "
        "expired. Keys with the role `calibrate` or `label` can read them.",
    )
    audit_keep_days: float = Field(
        90.0,
        ge=1,
        le=36500,
        description="Days after which audits of replaced versions are deleted, unless they are "
        "open or may end an active alarm.",
    )
    replicas: int = Field(
        1,
        ge=1,
        le=10_000,
        description="Number of processes that judge by the same sets. They share the false alarms "
        "of drift.",
    )
    on_alarm: Literal["report", "abstain"] = Field(
        "report",
        description="If audits prove an error above alpha: `report` it, or also `abstain` "
        "(`suspended`) under that criterion until the alarm ends.",
    )
    score_cache: Literal["off"] | Annotated[int, Field(ge=1, le=10 * 365 * 86400)] = Field(
        "off",
        description="Seconds for which the store keeps scores, so that repeated comparisons are "
        "not judged again; or `off`. Texts are not kept.",
    )
    max_body_bytes: int = Field(
        2 * 2**20,
        ge=1024,
        description="Largest request body. The client and the commands split larger batches.",
    )
    max_pending: int = Field(
        4096,
        ge=1,
        description="Most comparisons in progress. Callers below their share wait, others get 429.",
    )
    max_connections: int = Field(
        1000,
        ge=1,
        description="Most open connections, unless the limit of open files is lower. New ones "
        "replace idle ones.",
    )
    timeout_s: float = Field(
        120.0,
        gt=0,
        le=86400,
        description="Seconds until a request is stopped with status 504.",
    )
    max_staleness_s: float = Field(
        900.0,
        ge=0,
        description="Seconds for which judging continues with known thresholds while the store "
        "fails.",
    )
    max_hang_s: float = Field(
        300.0,
        ge=0,
        le=86400,
        description="Exit, for a restart, if the judge answers nothing for so many seconds; 0 for "
        "never. Ignored for `openai` and `decisions`.",
    )
    drain_lag_s: float = Field(
        2.0,
        ge=0,
        le=3600,
        description="After SIGTERM: seconds for which requests are accepted while /readyz fails.",
    )
    drain_s: float = Field(
        30.0,
        gt=0,
        le=86400,
        description="After SCOPE_DRAIN_LAG_S: seconds for requests in progress to finish.",
    )
    api_keys_file: Path | None = Field(
        None,
        description="Key file of `scope-judge keys add`. Without one, the service listens on "
        "127.0.0.1 only.",
    )
    root_path: str = Field(
        "",
        pattern=r"^(/[A-Za-z0-9._~-]+)*$",
        description="Path prefix behind a proxy, such as `/judge-a`; empty if the proxy removes "
        "it.",
    )
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 for any free port.")
    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        None,
        description="Second port that serves only /metrics, without a key, for a network that only "
        "Prometheus reaches. On the first port, /metrics needs a key with the role `metrics`.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Log level. No level logs questions or responses."
    )
    log_format: Literal["text", "json"] = Field(
        "text",
        description="Log format on stderr: `text`, or `json` (an object per line).",
    )

    @property
    def judge_name(self) -> str:
        """The judge's name in answers: the name of a folder, or the id of a model on the hub."""
        if self.engine == "scripted":
            return self.engine
        path = Path(self.model)
        return path.name if self.model != DEMO and path.is_dir() else self.model

    @field_validator("score_cache", "data_parallel", mode="wrap")
    @classmethod
    def _word_or_number(
        cls, value: object, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> object:
        try:
            return handler(value)
        except ValidationError:
            # pydantic would report a fault for each of the two.
            expected = {
                "score_cache": "off, or whole seconds from 1 to 315360000",
                "data_parallel": "auto, or a whole number from 1",
            }[info.field_name or ""]
            raise ValueError(f"must be {expected}") from None

    @field_validator("metrics_port")
    @classmethod
    def _is_another_port(cls, value: int | None, info: ValidationInfo) -> int | None:
        # Linux binds both, and then all requests but those of /metrics are unknown routes.
        if value is not None and value == info.data.get("port"):
            raise ValueError("must differ from SCOPE_PORT")
        return value

    @model_validator(mode="after")
    def _is_of_the_scoring(self) -> Self:
        """Refuses settings that would have no effect."""
        used = {
            "samples": ("votes", "thoughts"),
            "temperature": ("votes", "thoughts"),
            "think_tokens": ("thoughts",),
            "think_end": ("thoughts",),
        }
        for name, scorings in used.items():
            is_set = getattr(self, name) != type(self).model_fields[name].default
            if is_set and self.scoring not in scorings:
                raise ValueError(
                    f"SCOPE_{name.upper()}: has no effect with SCOPE_SCORING={self.scoring}: unset "
                    f"it, or set SCOPE_SCORING={' or '.join(scorings)}"
                )
        if self.scoring == "votes" and self.samples == 1:
            raise ValueError("SCOPE_SAMPLES: must be at least 2 with SCOPE_SCORING=votes")
        return self

    @field_validator("vllm_args", "chat_template_kwargs", mode="before")
    @classmethod
    def _from_json(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value or "{}")
        except ValueError:
            raise ValueError("must be a JSON object") from None


def folder_or_id(model: str) -> str:
    """The folder or the Hugging Face id that a setting names."""
    return str(DEMO_FOLDER / "model") if model == DEMO else model


VARIABLES = {f"SCOPE_{name.upper()}" for name in Settings.model_fields}

# The client and its adapters read these; `serve` may run in the same shell.
_OF_CLIENT = {"SCOPE_URL", "SCOPE_API_KEY"}


def is_of_client(name: str) -> bool:
    """Whether the client reads a variable; it checks the names of its own."""
    return name in _OF_CLIENT or name.startswith("SCOPE_REWARD_")


# Least similarity (`ratio` of difflib) at which an unknown name counts as a misspelt setting. The
# variables of Kubernetes reach 0.75 (SCOPE_SERVICE_PORT for a service named scope).
_LEAST_ALIKE = 0.76


def read_settings(**overrides: Any) -> Settings:
    """Reads the environment.

    Args:
        overrides: Values that override the environment.

    Raises:
        StartupError: One line for each invalid setting, without its value. An unknown variable with
            the prefix SCOPE_ is invalid too: a misspelt SCOPE_STORE_ULR would otherwise leave the
            default store in use.
    """
    unknown = sorted(
        name
        for name in os.environ
        if name.startswith("SCOPE_") and name not in VARIABLES and not is_of_client(name)
    )
    if unknown:
        raise StartupError(_refusal(unknown))
    try:
        return Settings(**overrides)
    except ValidationError as exc:
        faults = exc.errors(include_input=False, include_url=False)
        lines = [_fault_line(fault["loc"], fault["msg"]) for fault in faults]
        raise StartupError("\n".join(lines)) from None


def _fault_line(place: tuple[int | str, ...], fault: str) -> str:
    """A line for one fault; the message of a fault of several settings names them."""
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
            f"{', '.join(others)}: unknown setting; unset it. In Kubernetes, services whose name "
            "begins with scope set such variables: set enableServiceLinks: false in the pod"
        )
    return "\n".join(lines)
