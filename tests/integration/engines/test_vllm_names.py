"""The names of vLLM that the service uses beyond its documented interface.

After an upgrade of vLLM, the failing case is the name that has moved.
"""

import importlib
import inspect

import pytest

pytestmark = [
    pytest.mark.vllm,
    # vLLM and torch use deprecated functions of each other when they are imported.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("vllm.config.logging", "LoggingConfig"),
        ("vllm.engine.arg_utils", "AsyncEngineArgs"),
        ("vllm.envs", "VLLM_BATCH_INVARIANT"),
        ("vllm.exceptions", "GracefulHTTPError"),
        ("vllm.exceptions", "VLLMClientError"),
        ("vllm.exceptions", "VLLMServerError"),
        ("vllm.inputs", "tokens_input"),
        ("vllm.model_executor.layers.logits_processor", "LogitsProcessor"),
        ("vllm.outputs", "PoolingRequestOutput"),
        ("vllm.platforms", "current_platform.device_name"),
        ("vllm.platforms", "current_platform.get_device_capability"),
        ("vllm.sampling_params", "RequestOutputKind.FINAL_ONLY"),
        ("vllm.usage.usage_lib", "UsageContext.OPENAI_API_SERVER"),
        ("vllm.v1.engine.async_llm", "AsyncLLM.collective_rpc"),
        ("vllm.v1.engine.async_llm", "AsyncLLM.errored"),
        ("vllm.v1.engine.async_llm", "AsyncLLM.from_engine_args"),
        ("vllm.v1.engine.async_llm", "AsyncLLM.shutdown"),
        ("vllm.v1.engine.exceptions", "EngineDeadError"),
        ("vllm.v1.worker.worker_base", "WorkerBase.get_model"),
        ("vllm.config", "VllmConfig.use_v2_model_runner"),
    ],
)
def test_vllm_has_the_name(module: str, name: str) -> None:
    found = importlib.import_module(module)
    for part in name.split("."):
        assert hasattr(found, part), f"vLLM has moved {module}.{name}: {found} has no {part}"
        found = getattr(found, part)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("generate", {"request_id", "priority", "data_parallel_rank"}),
        ("encode", {"request_id", "priority"}),
    ],
)
def test_vllm_takes_the_arguments_of_a_request(method: str, arguments: set[str]) -> None:
    from vllm.v1.engine.async_llm import AsyncLLM

    assert arguments <= inspect.signature(getattr(AsyncLLM, method)).parameters.keys()
