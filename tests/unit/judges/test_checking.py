"""The check of a judge against scripted engines: noise, ties, the cache, and whom it waits for."""

from collections.abc import Sequence

import pytest

from app.core.comparison import Comparison
from app.core.errors import JudgmentFailedError
from app.judges.checking import check_judge
from app.judges.engines.scripted import ScriptedEngine
from app.judges.prompts import PromptTemplate
from app.judges.thoughts import ThoughtScorer
from app.observability.telemetry import Telemetry
from app.ports import CallTimes, Conversation, LabelLogits, Prompt, PromptError
from tests.serving import label_scorer, pair
from tests.unit.judges import number_model
from tests.unit.judges.number_model import NumberModel

pytestmark = pytest.mark.anyio

COMPARISONS = [pair(0.37 * i, 0.11 * i * i, question=f"Question {i}?") for i in range(1, 51)]


class NoisyEngine(ScriptedEngine):
    """An engine whose scores shift with the size of a batch, and otherwise if they are cached."""

    def __init__(self, batch_shift: float, cache_shift: float) -> None:
        super().__init__()
        self.batch_shift, self.cache_shift = batch_shift, cache_shift

    async def _shifted(self, prompts: Sequence[Prompt], shift: float) -> list[LabelLogits]:
        logits = await ScriptedEngine.label_logits(self, prompts)
        scored = [each for each in logits if isinstance(each, LabelLogits)]
        return [LabelLogits(each.a + shift, each.b) for each in scored]

    async def recomputed_label_logits(
        self, prompts: Sequence[Prompt]
    ) -> list[LabelLogits | PromptError]:
        return [*await self._shifted(prompts, self.batch_shift if len(prompts) > 2 else 0.0)]

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        return [*await self._shifted(prompts, self.cache_shift)]


@pytest.mark.parametrize(("batch_shift", "cache_shift"), [(0.25, 0.0), (0.0, 0.25)])
async def test_noise_of_a_batch_and_of_the_cache_is_measured(
    batch_shift: float, cache_shift: float
) -> None:
    scorer = await label_scorer(NoisyEngine(batch_shift, cache_shift))
    check = await check_judge(scorer, COMPARISONS, threshold=None)
    assert check.noise.pairs == 32
    assert check.noise.largest == pytest.approx(0.25)
    assert (check.resolution.prompts, check.resolution.distinct) == (100, 100)


async def test_a_judge_without_noise_has_no_warning() -> None:
    scorer = await label_scorer(NoisyEngine(0.0, 0.0))
    check = await check_judge(scorer, COMPARISONS, threshold=0.3)
    assert (check.noise.largest, check.noise.flips, check.warnings) == (0.0, 0, [])
    assert check.noise.threshold == 0.3


async def test_a_judge_with_a_coarse_head_is_reported() -> None:
    def coarse(prompt: Prompt) -> LabelLogits:
        return LabelLogits(float(len(prompt.user) % 5), 0.0)

    scorer = await label_scorer(ScriptedEngine(coarse))
    check = await check_judge(scorer, COMPARISONS, threshold=None)
    assert check.resolution.distinct <= 5
    assert len(check.warnings) == 1


async def test_every_call_waits_for_its_turn() -> None:
    pauses = 0

    async def pause() -> None:
        nonlocal pauses
        pauses += 1

    scorer = await label_scorer(ScriptedEngine())
    await check_judge(scorer, COMPARISONS, threshold=None, pause=pause)
    # 32 pairs alone, all together, and from the cache.
    assert pauses == 34


async def test_a_judge_that_cannot_judge_has_no_result() -> None:
    def failing(prompt: Prompt) -> PromptError:
        return JudgmentFailedError("no")

    scorer = await label_scorer(ScriptedEngine(failing))
    with pytest.raises(JudgmentFailedError):
        await check_judge(scorer, COMPARISONS, threshold=None)


async def thinking(tokens: int) -> ThoughtScorer:
    return await ThoughtScorer(
        engine=ScriptedEngine(),
        template=PromptTemplate(),
        samples=1,
        max_tokens=tokens,
        temperature=1.0,
        telemetry=Telemetry.on_own_registry(),
    ).start()


async def test_unfinished_thoughts_are_left_out_and_counted() -> None:
    check = await check_judge(await thinking(8), COMPARISONS, threshold=None)
    assert 0 < check.unfinished < len(COMPARISONS)
    assert check.resolution.prompts == 2 * (len(COMPARISONS) - check.unfinished)
    assert (check.noise.largest, check.warnings) == (0.0, [])
    assert 0 < check.noise.pairs < 32
    with pytest.raises(JudgmentFailedError, match="SCOPE_THINK_TOKENS"):
        await check_judge(await thinking(1), COMPARISONS, threshold=None)


async def test_a_reward_model_is_checked_too() -> None:
    def shifted(conversation: Conversation) -> float:
        together = len(model.calls[-1]) > 2
        response = conversation[-1].content
        return len(response) + (0.25 if together and "x" in response else 0.0)

    model = NumberModel(shifted)
    pairs = [Comparison.of(f"Question {i}?", "x" * i, "no") for i in range(1, 51)]
    check = await check_judge(await number_model.scorer_of(model), pairs, threshold=None)
    assert check.noise.largest == pytest.approx(0.25)
    assert [len(call) for call in model.calls] == [2] * 32 + [100, 64]
