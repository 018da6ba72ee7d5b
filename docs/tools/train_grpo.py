"""Trains a tiny policy with TRL's GRPO and rewards of the demo judge; writes grpo.json.

Usage: python -m docs.tools.train_grpo            (some minutes on 2 cores)
       python -m docs.tools.make_grpo_figure      draws the picture

The policy first learns the tasks, and then from answers of which half are wrong, so that it gives
right answers about half of the time. GRPO never shows it a right answer: it only samples its own
answers, and the judge compares them. All tasks of GRPO are new to the policy and to the judge. The
reference answer to each task is one that the policy gave before GRPO.
"""

import itertools
import json
import math
import random
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from datasets import Dataset
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import GRPOConfig, GRPOTrainer

from app.demo.pairs import FAMILIES, Task, is_held_out
from docs.tools.make_grpo_figure import NUMBERS, Step
from docs.tools.running_service import running_service
from scope_judge.trl import ScopeReward
from tests.demo_judge.tokenizer import build_tokenizer

# Families in which the judge is right on at least 98.9% of its pairs.
KNOWN = ("parity", "larger", "sort", "count")
RATES, SEEDS = (2e-4, 5e-4), (1, 2, 3)
STEPS, PROMPTS, GROUP, ALPHA = 60, 8, 8, 0.1
POLICY_SEED = 2
LEARN_STEPS, SPOIL_STEPS, LEARN_BATCH = 500, 100, 64
MATRIX_RATE, OTHER_RATE = 0.02, 2e-3
_TOKENS = 16
_IGNORED = -100
_LOGGED = {
    "reward": "rewards/scope_reward/mean",
    "win_rate": "scope_judge/win_rate",
    "coverage": "scope_judge/coverage",
}


def tasks(seed: int, *, held_out: bool) -> Iterator[Task]:
    """Yields random tasks of the families that the judge knows well."""
    rng = random.Random(seed)
    while True:
        task = FAMILIES[rng.choice(KNOWN)](rng)
        if is_held_out(task) == held_out:
            yield task


def learnt_policy(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """A policy that gives right answers to about half of the tasks."""
    set_seed(POLICY_SEED)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=96,
            intermediate_size=256,
            num_hidden_layers=3,
            num_attention_heads=4,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    stream, rng = tasks(POLICY_SEED, held_out=False), random.Random(POLICY_SEED)
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    optimizers = {
        torch.optim.Muon(matrices, weight_decay=0.01): MATRIX_RATE,
        torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0): OTHER_RATE,
    }
    steps = LEARN_STEPS + SPOIL_STEPS
    for step in range(steps):
        chosen = itertools.islice(stream, LEARN_BATCH)
        if step < LEARN_STEPS:
            said = [(task.question, task.right) for task in chosen]
        else:
            said = [(task.question, rng.choice((task.right, task.wrong))) for task in chosen]
        ids, targets = _encoded(tokenizer, said)
        logits = model(input_ids=ids).logits[:, :-1]
        loss = cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten(), ignore_index=_IGNORED)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, rate in optimizers.items():
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, (step + 1) / 50, (steps - step) / 500)
            optimizer.step()
            optimizer.zero_grad()
        if step % 100 == 99:
            print(f"step {step + 1} of {steps}: loss {loss.item():.3f}", flush=True)
    return model


def _encoded(
    tokenizer: PreTrainedTokenizerFast, said: Sequence[tuple[str, str]]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and targets of shape (n, length); only the tokens of the answers are targets."""
    rows = []
    for question, answer in said:
        asked = tokenizer.encode(_prompt(tokenizer, question), add_special_tokens=False)
        told = tokenizer.encode(f"{answer}{tokenizer.eos_token}", add_special_tokens=False)
        rows.append((asked, told))
    length = max(len(asked) + len(told) for asked, told in rows)
    ids = torch.full((len(rows), length), tokenizer.pad_token_id)
    targets = torch.full((len(rows), length), _IGNORED)
    for row, (asked, told) in enumerate(rows):
        end = len(asked) + len(told)
        ids[row, :end] = torch.tensor(asked + told)
        targets[row, len(asked) : end] = torch.tensor(told)
    return ids, targets


def _prompt(tokenizer: PreTrainedTokenizerFast, question: str) -> str:
    messages = [{"role": "user", "content": question}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert isinstance(text, str)
    return text


def sampled(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, questions: Sequence[str]
) -> list[str]:
    """One answer of the policy to each question."""
    texts = [_prompt(tokenizer, question) for question in questions]
    inputs = tokenizer(
        texts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False
    )
    with torch.no_grad():
        ids = model.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            do_sample=True,
            max_new_tokens=_TOKENS,
        )
    begin = inputs["input_ids"].shape[1]
    return list(tokenizer.batch_decode(ids[:, begin:], skip_special_tokens=True))


class _Rewards:
    """ScopeReward, which also notes how many completions are right, by the truth."""

    def __init__(self, url: str) -> None:
        self._reward = ScopeReward(url=url, alpha=ALPHA, reference="reference")
        self.__name__ = self._reward.__name__
        self.right: list[float] = []

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        """The rewards of the judge alone."""
        said = [message["content"] for (message,) in completions]
        right = [a == b for a, b in zip(said, columns["right"], strict=True)]
        self.right.append(sum(right) / len(right))
        return self._reward(prompts, completions, **columns)


def trained(
    url: str,
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    *,
    rate: float,
    seed: int,
) -> list[Step]:
    """The figures of each step of one training, which changes the model."""
    set_seed(seed)
    chosen = list(itertools.islice(tasks(1000 + seed, held_out=True), STEPS * PROMPTS))
    references = sampled(model, tokenizer, [task.question for task in chosen])
    rows = [
        {
            "prompt": [{"role": "user", "content": task.question}],
            "right": task.right,
            # A blank reference cannot be compared.
            "reference": reference.strip() or task.wrong,
        }
        for task, reference in zip(chosen, references, strict=True)
    ]
    rewards = _Rewards(url)
    with TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            reward_funcs=rewards,
            args=GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=PROMPTS * GROUP,
                num_generations=GROUP,
                max_completion_length=_TOKENS,
                max_steps=STEPS,
                learning_rate=rate,
                lr_scheduler_type="constant",
                seed=seed,
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                report_to=[],
                logging_steps=1,
                save_strategy="no",
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_list(rows),
        )
        trainer.train()
    logged = [each for each in trainer.state.log_history if _LOGGED["coverage"] in each]
    return [
        {"right": right, **{name: _known(step.get(key)) for name, key in _LOGGED.items()}}
        for right, step in zip(rewards.right, logged, strict=True)
    ]


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def main() -> None:
    """Trains, and writes the figures of each step."""
    with TemporaryDirectory() as folder, running_service(Path(folder)) as url:
        tokenizer = build_tokenizer()
        start = learnt_policy(tokenizer)
        runs = {
            f"{rate:g}": [
                trained(url, deepcopy(start), tokenizer, rate=rate, seed=seed) for seed in SEEDS
            ]
            for rate in RATES
        }
    NUMBERS.write_text(json.dumps(runs) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
