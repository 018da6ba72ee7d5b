"""One start of real vLLM with a multimodal judge in 16 bits: head, context, arguments, Ctrl-C."""

import asyncio
import dataclasses
import gc
import multiprocessing
import os
import signal
from dataclasses import dataclass

import pytest

from app.core.errors import StartupError
from app.judges.checking import CHECKED, JudgeCheck, check_judge
from app.judges.engines.vllm_local import VllmEngine
from app.judges.engines.vllm_start import _NOT_FOR_USERS, _SAME_JUDGE
from app.judges.label_logits import LabelLogitScorer
from app.judges.prompts import PromptTemplate
from app.observability.telemetry import Telemetry
from app.ports import EngineIdentity, LabelLogits
from app.settings import Settings
from app.wiring.startup import bundled_comparisons
from tests.integration.engines.nested_judge import CONTEXT_TOKENS, write_nested_judge

pytestmark = [
    pytest.mark.vllm,
    # vLLM does not close a ZeroMQ context; the garbage collector warns about it.
    pytest.mark.filterwarnings("ignore:Unclosed context:ResourceWarning"),
]


@dataclass(frozen=True, kw_only=True)
class Run:
    """Observations of one start of the engine."""

    identity: EngineIdentity
    check: JudgeCheck
    most_sequences: int
    interrupted: int
    after_ctrl_c: object


async def run(folder: str) -> Run:
    # Room for a part of the model's context.
    arguments = {"max_num_seqs": 24, "kv_cache_memory_bytes": 2**22}
    engine = VllmEngine(Settings(model=folder, vllm_args=arguments))
    template, comparisons = PromptTemplate(), bundled_comparisons()
    prompts = template.both_orders(comparisons[0])
    try:
        identity = await engine.start(prompts[0])
        scorer = LabelLogitScorer(
            engine=engine,
            template=template,
            telemetry=Telemetry.on_own_registry(),
        )
        scorer.identity = scorer.identity_on(identity)
        check = await check_judge(scorer, comparisons, threshold=None)
        children = [each.pid for each in multiprocessing.active_children()]
        for pid in filter(None, children):
            os.kill(pid, signal.SIGINT)
        (again,) = await engine.label_logits(prompts[:1])
        config = engine._process.running().vllm_config.scheduler_config
        return Run(
            identity=identity,
            check=check,
            most_sequences=config.max_num_seqs,
            interrupted=len(children),
            after_ctrl_c=again,
        )
    finally:
        await engine.stop()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = write_nested_judge(tmp_path_factory.mktemp("judge") / "nested")
    found = asyncio.run(run(str(folder)))
    gc.collect()
    return found


def test_a_judge_nested_in_a_multimodal_model_has_a_float32_head_and_distinct_scores(
    shown: Run,
) -> None:
    assert (shown.identity.dtype, shown.identity.head_dtype) == ("bfloat16", "float32")
    assert shown.check.resolution.prompts == 2 * CHECKED
    # With the head in 16 bits, 20 of 40 were distinct.
    assert shown.check.resolution.distinct == 2 * CHECKED
    assert shown.check.resolution.warning is None


def test_the_noise_of_a_judge_is_small_and_measured(shown: Run) -> None:
    noise = shown.check.noise
    assert 0.0 <= noise.p95 <= noise.largest < 0.1
    assert noise.flips <= 1


def test_the_context_is_shortened_to_the_memory(shown: Run) -> None:
    assert 1000 < shown.identity.max_prompt_tokens < CONTEXT_TOKENS - 1


def test_arguments_of_users_reach_vllm_and_speed_is_no_part_of_the_judge(shown: Run) -> None:
    assert shown.most_sequences == 24
    assert "vllm_args" not in shown.identity.unusual


def test_the_runtime_names_version_and_processor(shown: Run) -> None:
    assert shown.identity.runtime is not None
    assert shown.identity.runtime.startswith("vLLM 0.")
    assert " CPU" in shown.identity.runtime


def test_ctrl_c_does_not_reach_the_engine(shown: Run) -> None:
    assert shown.interrupted >= 1
    assert isinstance(shown.after_ctrl_c, LabelLogits)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("max_model_len", "remove 'max_model_len': set SCOPE_MAX_MODEL_LEN"),
        ("logprobs_mode", "remove 'logprobs_mode': the service sets it"),
    ],
)
def test_a_wrong_argument_is_refused_before_the_model_is_fetched(name: str, advice: str) -> None:
    settings = Settings(model="no-such/model", vllm_args={name: 1})
    with pytest.raises(StartupError) as refused:
        asyncio.run(VllmEngine(settings).start(PromptTemplate().render(bundled_comparisons()[0])))
    assert refused.value.detail.startswith("SCOPE_VLLM_ARGS: ")
    assert refused.value.detail.endswith(advice)


def test_the_names_that_the_service_knows_are_those_of_vllm() -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs

    known = {each.name for each in dataclasses.fields(AsyncEngineArgs)}
    assert known >= _SAME_JUDGE
    assert known >= set(_NOT_FOR_USERS)
