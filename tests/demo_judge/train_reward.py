"""Trains a small reward model on the tasks of the bundled judge, beginning with its weights.

python -m tests.demo_judge.train_reward --minutes 5 --out reward-training
"""

import argparse
import itertools
import json
import math
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaForSequenceClassification, PreTrainedTokenizerFast

from app.demo.pairs import Pair, pairs
from app.settings import DEMO_FOLDER
from tests.demo_judge.tokenizer import build_tokenizer

SEED = 20261123
RATE = 5e-4
WARMUP_STEPS = 50
BATCH = 32
VALIDATION_PAIRS = 500


class RewardTrainer:
    """A training run by the loss of Bradley and Terry.

    Args:
        minutes: Time budget of the run.
        start: Folder of the weights to begin with.
    """

    def __init__(self, minutes: float, start: Path) -> None:
        self.budget_s = 60 * minutes
        self.tokenizer: PreTrainedTokenizerFast = build_tokenizer()
        torch.manual_seed(SEED)
        self.model = LlamaForSequenceClassification.from_pretrained(
            start, num_labels=1, dtype=torch.float32
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE, weight_decay=0.0)

    def gaps(self, chosen: Sequence[Pair]) -> Tensor:
        """Shape (n,). The reward of response_a minus that of response_b."""
        texts = [
            self.tokenizer.apply_chat_template(
                [
                    {"role": "user", "content": pair.question},
                    {"role": "assistant", "content": response},
                ],
                tokenize=True,
                return_dict=False,
            )
            for pair in chosen
            for response in (pair.response_a, pair.response_b)
        ]
        ids = pad_sequence(
            [torch.tensor(cast(list[int], text)) for text in texts],
            batch_first=True,
            padding_value=self.model.config.pad_token_id,
        )
        mask = ids != self.model.config.pad_token_id
        rewards = self.model(input_ids=ids, attention_mask=mask).logits[:, 0]
        return cast(Tensor, rewards[::2] - rewards[1::2])

    def train(self) -> None:
        """Trains until the time budget is spent, printing one JSON line per report."""
        rng = random.Random(SEED)
        stream = pairs(rng.randrange(2**62), held_out=False)
        begun, steps = time.monotonic(), 0
        while (spent := time.monotonic() - begun) < self.budget_s:
            share = spent / self.budget_s
            rate = min(1.0, (steps + 1) / WARMUP_STEPS) * (1 + math.cos(math.pi * share)) / 2
            for group in self.optimizer.param_groups:
                group["lr"] = RATE * rate
            chosen = sorted(
                itertools.islice(stream, BATCH), key=lambda p: len(p.question + p.response_a)
            )
            signs = torch.tensor([1.0 if pair.label == "A" else -1.0 for pair in chosen])
            loss = -logsigmoid(self.gaps(chosen) * signs).mean()
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            steps += 1
            if steps % 100 == 0:
                line = {"step": steps, "minutes": round(spent / 60, 2), "loss": loss.item()}
                print(json.dumps(line | {"accuracy": self.accuracy()}), flush=True)

    def accuracy(self) -> float:
        """Share of held-out pairs whose better response has the larger reward."""
        chosen = list(itertools.islice(pairs(SEED - 1, held_out=True), VALIDATION_PAIRS))
        with torch.no_grad():
            gaps: list[float] = self.gaps(chosen).tolist()
        right = [(gap > 0) == (pair.label == "A") for gap, pair in zip(gaps, chosen, strict=True)]
        return sum(right) / len(right)

    def save(self, folder: Path) -> None:
        """Writes the checkpoint in Hugging Face format."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def main() -> None:
    """Trains and saves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("reward-training"))
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--start", type=Path, default=DEMO_FOLDER / "model")
    options = parser.parse_args()
    trainer = RewardTrainer(options.minutes, options.start)
    trainer.train()
    trainer.save(options.out)


if __name__ == "__main__":
    main()
