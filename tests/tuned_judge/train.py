"""Trains the adapter of the tuned judge on one core; stops and resumes at its checkpoints.

python -m tests.tuned_judge.train --minutes 40
"""

import argparse
import itertools
import json
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, pad
from transformers import AutoModelForCausalLM

from app.core.comparison import Comparison
from app.demo.pairs import Pair, labelled
from app.engines.rendering import PromptRenderer, load_tokenizer
from app.ports import Prompt
from app.service.scoring.prompts import PromptTemplate
from tests.demo_judge.train import prefix_cache
from tests.real_judge import real_judge
from tests.tuned_judge.adapter import add_adapter, save_adapter
from tests.tuned_judge.checkpoint import PREFILL
from tests.tuned_judge.pairs import SEEN, pairs

SEED = 18
PEAK_RATE = 1e-3
WARMUP_STEPS = 20
# The learning rate falls linearly to zero over this last part of the time.
DECAY_SHARE = 0.4
# The layer whose output the probe reads.
PROBED_LAYER = 20
# Pairs in one step; both orders of each are trained.
PAIRS_IN_A_STEP = 8
# Pairs of so many steps are sorted by length, so that the prompts of a step are similarly long.
_SORTED_STEPS = 8
_LONGEST_PROMPT = 1024


class Batch(NamedTuple):
    """Prompts without their common beginning, padded on the right.

    Args:
        prefix: Shape (p,), token ids of the common beginning.
        ids: Shape (n, length), token ids after it.
        last: Shape (n,), the position of each prompt's last token in ids.
        labels: Shape (n,), the id of the right label's token.
        ends: Shape (n, 2), a position after the first response and one after the second.
        follows: Shape (n, 2), 1.0 for the better response and 0.0 for the other, as shown.
    """

    prefix: Tensor
    ids: Tensor
    last: Tensor
    labels: Tensor
    ends: Tensor
    follows: Tensor


class Encoder:
    """Renders pairs to the service's own prompts."""

    def __init__(self, folder: str) -> None:
        self._template = PromptTemplate(prefill=PREFILL)
        tokenizer = load_tokenizer(folder)
        self._renderer = PromptRenderer(tokenizer, max_prompt_tokens=_LONGEST_PROMPT)
        # The second response's heading follows the first response, the end of the turn the second.
        self._heading = tokenizer.encode("[Assistant B", add_special_tokens=False)
        self._turn_end = tokenizer.convert_tokens_to_ids("<|im_end|>")
        prompt = self._template.render(Comparison.of("q", "a", "b"))
        self.labels = self._renderer.label_tokens(prompt)

    def batch(self, chosen: Sequence[Pair]) -> Batch:
        """Both orders of each pair; the two orders of a pair follow each other."""
        prompts, labels = list[Prompt](), list[int]()
        for pair in chosen:
            comparison = Comparison.of(pair.question, pair.response_a, pair.response_b)
            prompts += self._template.both_orders(comparison)
            ids = (self.labels.a, self.labels.b)
            labels += ids if pair.label == "A" else ids[::-1]
        rows = [row for row in self._renderer.token_ids(prompts) if isinstance(row, list)]
        assert len(rows) == len(prompts)
        # Questions differ, so every batch has a first place at which its prompts do.
        places = enumerate(zip(*rows, strict=False))
        common = next(i for i, tokens in places if len(set(tokens)) > 1)
        length = max(map(len, rows)) - common
        opened = [torch.tensor(row[common:]) for row in rows]
        labelled_first = torch.tensor(labels) == self.labels.a
        return Batch(
            prefix=torch.tensor(rows[0][:common]),
            ids=torch.stack([pad(row, (0, length - len(row))) for row in opened]),
            last=torch.tensor([len(row) - 1 for row in opened]),
            labels=torch.tensor(labels),
            ends=torch.tensor([self._ends(row[common:]) for row in rows]),
            follows=torch.stack([labelled_first, ~labelled_first], dim=1).float(),
        )

    def _ends(self, row: list[int]) -> tuple[int, int]:
        """The last places of the heading of the second response and of the end of the turn."""
        size = len(self._heading)
        starts = [i for i in range(len(row)) if row[i : i + size] == self._heading]
        return starts[-1] + size - 1, len(row) - 1 - row[::-1].index(self._turn_end)


class Scores(NamedTuple):
    """The judge's answers to a batch.

    Args:
        logits: Shape (n, vocabulary), where each prompt's label follows.
        middle: Shape (n, 2, width), states of a middle layer at the batch's ends.
    """

    logits: Tensor
    middle: Tensor


def scores_of(model: torch.nn.Module, batch: Batch) -> Scores:
    """Reads a batch; no gradient passes through its common beginning."""
    with torch.no_grad():
        cache = prefix_cache(model, batch.prefix, len(batch.ids))
    output = model.model(
        input_ids=batch.ids, past_key_values=cache, use_cache=True, output_hidden_states=True
    )
    rows = torch.arange(len(batch.ids))
    middle = output.hidden_states[PROBED_LAYER][rows[:, None], batch.ends].float()
    return Scores(model.lm_head(output.last_hidden_state[rows, batch.last]).float(), middle)


def training_steps(seed: int) -> Iterator[list[Pair]]:
    """Yields the pairs of each step; an equal seed yields the same ones."""
    rng = random.Random(seed)
    stream = pairs(seed, held_out=False, families=tuple(SEEN))
    while True:
        # A whole round of the families is drawn before it is cut into steps.
        drawn = list(itertools.islice(stream, PAIRS_IN_A_STEP * _SORTED_STEPS))
        drawn.sort(key=_characters)
        starts = range(0, len(drawn), PAIRS_IN_A_STEP)
        steps = [drawn[start : start + PAIRS_IN_A_STEP] for start in starts]
        rng.shuffle(steps)
        yield from steps


def _characters(pair: Pair) -> int:
    return len(pair.question) + len(pair.response_a) + len(pair.response_b)


class StepResult(NamedTuple):
    """The losses of a step, and the share of its prompts with the right label before it."""

    loss: float
    probe_loss: float
    accuracy: float


class Trainer:
    """A training run.

    Args:
        folder: Folder of the checkpoint, which is resumed if it exists, and of the adapter.
        minutes: Time budget of the run.
        checkpoint: Folder of the judge whose weights are changed.
    """

    def __init__(self, folder: Path, minutes: float, checkpoint: str) -> None:
        torch.manual_seed(SEED)
        self.folder, self.budget_s = folder, minutes * 60
        self.encoder = Encoder(checkpoint)
        # The frozen weights are in 16 bits, which is faster; the trained ones are in 32.
        self.model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.bfloat16)
        self.layers = add_adapter(self.model)
        # Reads from a middle layer, after each response, whether the response is the better one.
        # Its loss gives two more bits for each prompt; it is not part of the adapter.
        self.probe = torch.nn.Sequential(torch.nn.RMSNorm(576), torch.nn.Linear(576, 1))
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        self.trained += self.probe.parameters()
        self.optimizer = torch.optim.AdamW(self.trained, betas=(0.9, 0.98), weight_decay=0.0)
        self.step, self.spent_s = 0, 0.0
        self._state = folder / "training.pt"
        if self._state.exists():
            self._resume()
        self._steps = itertools.islice(training_steps(SEED), self.step, None)

    def _resume(self) -> None:
        state = torch.load(self._state, weights_only=True)
        with torch.no_grad():
            for parameter, saved in zip(self.trained, state["trained"], strict=True):
                parameter.copy_(saved)
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.spent_s = state["step"], state["spent_s"]

    def save(self) -> None:
        """Writes the checkpoint of the run and the adapter."""
        self.folder.mkdir(parents=True, exist_ok=True)
        state = {
            "trained": [parameter.detach() for parameter in self.trained],
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "spent_s": self.spent_s,
        }
        fresh = self._state.with_suffix(".new")
        torch.save(state, fresh)
        fresh.replace(self._state)
        save_adapter(self.layers, self.folder / "adapter.safetensors")

    def _rate(self) -> float:
        left = 1 - self.spent_s / self.budget_s
        return PEAK_RATE * min((self.step + 1) / WARMUP_STEPS, max(left, 0.0) / DECAY_SHARE, 1.0)

    def train_step(self) -> StepResult:
        """One step of the optimizer."""
        batch = self.encoder.batch(next(self._steps))
        scores = scores_of(self.model, batch)
        loss = cross_entropy(scores.logits, batch.labels)
        probed = self.probe(scores.middle).squeeze(-1)
        probe_loss = binary_cross_entropy_with_logits(probed, batch.follows)
        (loss + probe_loss).backward()
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.param_groups[0]["lr"] = self._rate()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        right = (self._gaps(scores.logits) > 0) == (batch.labels == self.encoder.labels.a)
        return StepResult(loss.item(), probe_loss.item(), float(right.float().mean()))

    def _gaps(self, logits: Tensor) -> Tensor:
        """Logits of label A minus those of label B."""
        return logits[:, self.encoder.labels.a] - logits[:, self.encoder.labels.b]

    def accuracy(self, chosen: Sequence[Pair]) -> float:
        """Share of pairs that both orders together put on the right side."""
        right = list[bool]()
        by_length = sorted(chosen, key=_characters)
        for start in range(0, len(chosen), PAIRS_IN_A_STEP):
            some = by_length[start : start + PAIRS_IN_A_STEP]
            firsts = [labelled(pair, "A") for pair in some]
            with torch.no_grad():
                scores = scores_of(self.model, self.encoder.batch(firsts))
            p = torch.sigmoid(self._gaps(scores.logits)).reshape(-1, 2)
            right += (p[:, 0] + 1 - p[:, 1] > 1).tolist()
        return _mean(right)

    def run(self, *, report_every_s: float, validation: int) -> None:
        """Trains until the time is spent; a line of JSON and a checkpoint for each report."""
        stream = pairs(SEED + 1, held_out=True, families=tuple(SEEN))
        held_out = list(itertools.islice(stream, validation))
        done = list[StepResult]()
        reported_s = self.spent_s
        while self.spent_s < self.budget_s:
            begun = time.monotonic()
            done.append(self.train_step())
            self.spent_s += time.monotonic() - begun
            if min(reported_s + report_every_s, self.budget_s) <= self.spent_s:
                reported_s = self.spent_s
                line = {
                    "step": self.step,
                    "minutes": round(self.spent_s / 60, 1),
                    "loss": _mean([each.loss for each in done]),
                    "probe_loss": _mean([each.probe_loss for each in done]),
                    "accuracy_of_prompts": _mean([each.accuracy for each in done]),
                    "held_out_accuracy": self.accuracy(held_out) if held_out else None,
                }
                done.clear()
                self.save()
                print(json.dumps(line), flush=True)
                with (self.folder / "log.jsonl").open("a", encoding="utf-8") as log:
                    log.write(json.dumps(line) + "\n")


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4)


def main() -> None:
    """Trains, or goes on with a run that was stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("tuned-training"))
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--report-every-s", type=float, default=300)
    parser.add_argument("--validation", type=int, default=60)
    options = parser.parse_args()
    torch.set_num_threads(1)
    trainer = Trainer(options.out, options.minutes, str(real_judge()))
    trainer.run(report_every_s=options.report_every_s, validation=options.validation)


if __name__ == "__main__":
    main()
