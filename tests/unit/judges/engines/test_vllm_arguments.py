"""The arguments of vLLM's engine: dtype, head, context, and those of users."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import PretrainedConfig

from app.judges.engines import vllm_start
from app.judges.engines.vllm_start import engine_arguments, judge_arguments, with_float32_head
from app.settings import Settings

GB = 10**9


def checkpoint(folder: Path, config: dict[str, Any], *, weights_gb: float = 0.5) -> Path:
    """A folder with a configuration, and with weights that take no room on the disk."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(int(weights_gb * GB))
    return folder


def arguments_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, on_cpu: bool, **given: Any
) -> dict[str, Any]:
    monkeypatch.setattr(vllm_start, "is_cpu_build", lambda: on_cpu)
    return engine_arguments(Settings(**given), folder)


@pytest.mark.parametrize(
    ("config", "weights_gb", "on_cpu", "dtype"),
    [
        # On a GPU, float32 is for judges of about 1B parameters at most.
        ({"dtype": "float32"}, 3.9, False, "float32"),
        ({"dtype": "float32"}, 4.1, False, "auto"),
        ({"dtype": "float32"}, 28.0, True, "float32"),
        ({"torch_dtype": "float32"}, 0.1, True, "float32"),
        ({"text_config": {"dtype": "float32"}}, 0.1, True, "float32"),
        ({"dtype": "bfloat16"}, 0.1, False, "auto"),
        # vLLM refuses quantised weights in float32.
        ({"dtype": "float32", "quantization_config": {"quant_method": "awq"}}, 0.1, True, "auto"),
        (
            {"dtype": "float32", "text_config": {"quantization_config": {"bits": 4}}},
            0.1,
            False,
            "auto",
        ),
    ],
)
def test_a_checkpoint_is_run_in_the_dtype_that_suits_it(
    config: dict[str, Any],
    weights_gb: float,
    on_cpu: bool,
    dtype: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = checkpoint(tmp_path / "judge", config, weights_gb=weights_gb)
    arguments = arguments_of(folder, monkeypatch, on_cpu=on_cpu)
    assert arguments["dtype"] == dtype
    assert ("hf_overrides" in arguments) == (dtype != "float32")


def test_a_dtype_that_the_user_has_set_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoint(tmp_path / "judge", {"dtype": "float32"}, weights_gb=28)
    arguments = arguments_of(folder, monkeypatch, on_cpu=False, dtype="float32")
    assert arguments["dtype"] == "float32"


@pytest.mark.parametrize(("given", "passed"), [(None, -1), (4096, 4096)])
def test_the_context_fits_the_memory_unless_the_user_has_set_it(
    given: int | None, passed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoint(tmp_path / "judge", {"dtype": "bfloat16"})
    arguments = arguments_of(folder, monkeypatch, on_cpu=False, max_model_len=given)
    assert arguments["max_model_len"] == passed


def test_arguments_of_users_replace_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = checkpoint(tmp_path / "judge", {"dtype": "bfloat16"})
    given = {"enforce_eager": False, "quantization": "fp8"}
    arguments = arguments_of(folder, monkeypatch, on_cpu=True, vllm_args=given)
    assert (arguments["enforce_eager"], arguments["quantization"]) == (False, "fp8")


def test_the_head_of_every_nested_model_is_float32() -> None:
    innermost = PretrainedConfig()
    language = PretrainedConfig()
    language.text_config = innermost
    outer = PretrainedConfig()
    # The names differ between models.
    outer.thinker_config = language
    outer.rope_parameters = {"factor": 2.0}
    assert with_float32_head(outer) is outer
    assert [each.head_dtype for each in (outer, language, innermost)] == ["float32"] * 3
    assert outer.rope_parameters == {"factor": 2.0}


def test_arguments_that_change_speed_only_are_no_part_of_the_judge() -> None:
    speed: dict[str, Any] = {
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 8,
        "optimization_level": 1,
    }
    speed |= {"cudagraph_capture_sizes": [1, 2], "attention_backend": "FLASH_ATTN"}
    judge = {"quantization": "fp8", "kv_cache_dtype": "fp8", "an_argument_of_tomorrow": 1}
    assert judge_arguments(Settings(vllm_args={**speed, **judge})) == {"vllm_args": judge}
    assert judge_arguments(Settings(vllm_args=speed)) == {}


@pytest.mark.parametrize(
    ("on_cpu", "given", "tokens"),
    [
        (False, {}, 8192),
        (False, {"max_num_batched_tokens": 4096}, 4096),
        (False, {"enable_chunked_prefill": False}, None),
        (True, {}, None),
    ],
)
def test_a_step_on_a_gpu_has_8192_tokens_unless_the_user_says_otherwise(
    on_cpu: bool,
    given: dict[str, Any],
    tokens: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = checkpoint(tmp_path / "judge", {"dtype": "bfloat16"})
    arguments = arguments_of(folder, monkeypatch, on_cpu=on_cpu, vllm_args=given)
    assert arguments.get("max_num_batched_tokens") == tokens
