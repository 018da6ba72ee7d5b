"""The kind of a judge is read from its config.json, and wrong kinds end the start with a reason."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import StartupError
from app.fleet.worker import judge_rows
from app.judges.engines.vllm_reward import check_outputs
from app.observability.telemetry import Telemetry
from app.settings import Settings
from app.wiring import scorers
from app.wiring.engines import make_engine, make_reward_model, reward_architecture
from app.wiring.scorers import open_scorer
from app.wiring.services import open_services
from tests.serving import Notes
from tests.unit.judges.number_model import NumberModel

REWARD: dict[str, Any] = {
    "architectures": ["Qwen3ForSequenceClassification"],
    "id2label": {"0": "LABEL_0"},
}


def checkpoint(folder: Path, config: dict[str, Any] | None) -> Path:
    folder.mkdir()
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def settings_of(folder: Path, **given: Any) -> Settings:
    return Settings(model=str(folder), store_url="memory://", **given)


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (REWARD, "Qwen3ForSequenceClassification"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
        ({"architectures": ["LlamaForCausalLM"]}, None),
        ({"architectures": ["Gemma3ForConditionalGeneration"]}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_reward_model_is_known_by_its_class(
    config: dict[str, Any] | None, kind: str | None, tmp_path: Path
) -> None:
    assert reward_architecture(settings_of(checkpoint(tmp_path / "m", config))) == kind


def test_servers_and_scripts_have_no_checkpoint_here(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", REWARD)
    assert reward_architecture(settings_of(folder, engine="scripted")) is None


def test_a_model_that_scores_each_token_is_refused(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", {"architectures": ["Qwen2ForRewardModel"]})
    with pytest.raises(StartupError, match="Qwen2ForRewardModel, which scores each token"):
        reward_architecture(settings_of(folder))


@pytest.mark.parametrize(
    ("config", "outputs"),
    [
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, 3),
        ({"num_labels": 5}, 5),
        # The default of transformers is 2.
        ({}, 2),
    ],
)
def test_a_model_with_several_outputs_is_refused(
    config: dict[str, Any], outputs: int, tmp_path: Path
) -> None:
    architecture = {"architectures": REWARD["architectures"]}
    folder = checkpoint(tmp_path / "m", architecture | config)
    with pytest.raises(StartupError, match=f"{outputs} outputs"):
        check_outputs(folder)


def test_a_model_with_one_output_is_taken(tmp_path: Path) -> None:
    check_outputs(checkpoint(tmp_path / "m", REWARD))
    nested: dict[str, Any] = {"architectures": ["Gemma3ForSequenceClassification"]}
    nested |= {"text_config": {"id2label": {"0": "LABEL_0"}}}
    check_outputs(checkpoint(tmp_path / "n", nested))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"prefill": "[["}, "SCOPE_PREFILL has no effect"),
        ({"min_label_mass": 0.5}, "SCOPE_MIN_LABEL_MASS has no effect"),
        ({"prompt_file": "prompt.toml"}, "SCOPE_PROMPT_FILE has no effect"),
    ],
)
def test_a_setting_without_effect_on_a_reward_model_is_refused(
    given: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(StartupError, match=why):
        make_reward_model(settings_of(checkpoint(tmp_path / "m", REWARD), **given))


async def test_the_start_of_a_service_finds_the_kind(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", REWARD)
    settings, notes = settings_of(folder, prefill="[["), Notes()
    with pytest.raises(StartupError, match="SCOPE_PREFILL has no effect"):
        async with open_scorer(settings, notes, telemetry=Telemetry.on_own_registry()):
            pass


@pytest.mark.parametrize(
    "given",
    [
        {"engine": "scripted", "prompt_file": "/absent.toml"},
        {"engine": "decisions", "prefill": "x"},
    ],
)
async def test_a_start_with_wrong_settings_leaves_no_store_behind(
    given: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "sets.db"
    settings = Settings(store_url=f"sqlite:///{file}", **given)
    with pytest.raises(StartupError):
        async with open_services(settings, Notes(), on_lost=print):
            pass
    assert not file.exists()


async def test_a_service_of_a_reward_model_says_its_kind_and_judges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, notes = NumberModel(), Notes()
    monkeypatch.setattr(scorers, "make_reward_model", lambda settings: model)
    settings = settings_of(checkpoint(tmp_path / "m", REWARD))
    # As the commands for bulk judging open it, which give the maker of engines.
    opening = open_services(settings, notes, on_lost=print, new_engine=make_engine)
    async with opening as services:
        rows = [{"question": "q", "response_a": "2", "response_b": "1"}]
        criterion = {
            "alpha": None,
            "guarantee": "marginal",
            "delta": None,
            "calibration": "default",
        }
        (result,) = await judge_rows(services, rows, criterion)
    assert (result["verdict"], result["orders"], result["label_mass"]) == ("A", 1, None)
    assert notes.said == ["Loading judge m, a reward model (Qwen3ForSequenceClassification)"]
