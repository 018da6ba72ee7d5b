"""The training script, on a few steps, and the model that it made."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from app.demo.pairs import demo_sets
from app.judges.engines.rendering import load_tokenizer
from app.wiring.engines import DEMO_FOLDER
from tests.demo_judge.tokenizer import build_tokenizer
from tests.demo_judge.train import RunSize, Trainer

# So long that the learning rate stays the same over a few steps.
ENDLESS_MINUTES = 1e9
# A small run with two chunks a step. With the bundled judge's size, this file took over 300 s
# beside vLLM on two slow cores.
SMALL = RunSize(hidden=32, intermediate=64, layers=2, heads=2, batch=8, chunk=4)


@pytest.fixture(autouse=True)
def one_torch_thread() -> Iterator[None]:
    """Keeps torch from spinning on cores that other processes use."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_a_resumed_run_continues_where_it_stopped(tmp_path: Path) -> None:
    whole = Trainer(tmp_path / "whole", ENDLESS_MINUTES, SMALL)
    losses = [whole.train_step() for _ in range(3)]

    stopped = Trainer(tmp_path / "stopped", ENDLESS_MINUTES, SMALL)
    assert [stopped.train_step() for _ in range(2)] == losses[:2]
    stopped.save()
    resumed = Trainer(tmp_path / "stopped", ENDLESS_MINUTES, SMALL)
    assert resumed.step == 2
    assert resumed.train_step() == losses[2]
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_reading_the_common_beginning_once_changes_no_logit(tmp_path: Path) -> None:
    from tests.demo_judge.train import logits_after_prefix

    trainer = Trainer(tmp_path, ENDLESS_MINUTES)
    batch = trainer.encoder.batch(demo_sets().trial[:4])
    prefix = torch.tensor(trainer.encoder.prefix_ids)
    whole = torch.cat([prefix.expand(4, -1), batch.ids], dim=1)
    with torch.no_grad():
        expected = trainer.model(whole).logits[:, len(prefix) :]
        found = logits_after_prefix(trainer.model, prefix, batch.ids)
    assert torch.allclose(found, expected, atol=1e-5)


def test_the_shipped_tokenizer_is_the_programs(tmp_path: Path) -> None:
    shipped, built = load_tokenizer(str(DEMO_FOLDER / "model")), build_tokenizer()
    assert shipped.get_vocab() == built.get_vocab()
    assert shipped.chat_template == built.chat_template
    for text in ("What is 1 + 1?", "Ünïcödé 中 🙂 <|im_end|>", "[[A]]"):
        assert shipped.encode(text) == built.encode(text)


def test_the_shipped_model_is_small() -> None:
    size = sum(file.stat().st_size for file in (DEMO_FOLDER / "model").iterdir())
    assert size <= 12 * 10**6


@pytest.mark.parametrize("label", ["A", "B"])
def test_a_label_is_one_token(label: str) -> None:
    assert len(build_tokenizer().encode(label)) == 1
