"""Runs GRPOTrainer with rewards from a service; writes what the trainer logged.

`python -m tests.integration.trainers.in_trl PLAN`, a plan of test_trl.py in JSON. The policy is a
tiny one with random weights. Under torchrun it trains on several processes.
"""

import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    TrainerCallback,
    set_seed,
)
from trl import GRPOConfig, GRPOTrainer

from scope_judge.trl import ScopeReward

_TEMPLATE = (
    "{% for message in messages %}{{ message.role }} {{ message.content }} {% endfor %}"
    "{% if add_generation_prompt %}assistant {% endif %}"
)


def tokenizer_of(answers: list[str]) -> Any:
    """A tokenizer with one token for each answer; all other words are one unknown token."""
    tokens = ["<pad>", "<eos>", "<unk>", *answers]
    words = Tokenizer(models.WordLevel({t: i for i, t in enumerate(tokens)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    fast.chat_template = _TEMPLATE
    return fast


def tiny_policy(tokenizer: Any) -> Any:
    """A model with random weights, which says each token about equally often."""
    set_seed(3)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    return Qwen2ForCausalLM(config)


class Notes(TrainerCallback):  # type: ignore[misc]
    """Copies what the trainer has logged for a step before the next one replaces it."""

    def __init__(self) -> None:
        self.trainer: Any = None
        self.steps: list[dict[str, Any]] = []

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        """Copies the logs of a step."""
        logs = self.trainer._logs
        (rewards,) = logs["rewards"].values()
        self.steps.append(
            {
                "prompts": list(logs["prompt"]),
                "completions": list(logs["completion"]),
                "rewards": [None if math.isnan(each) else each for each in rewards],
                "advantages": list(logs["advantages"]),
                "reasons": list(logs["extra"]["scope_judge"]),
            }
        )


def main() -> None:
    """Trains for two steps and writes the logs as JSON."""
    plan = json.loads(sys.argv[1])
    rows = [{"prompt": [{"role": "user", "content": each}]} for each in plan["questions"]]
    tokenizer = tokenizer_of(plan["answers"])
    model = tiny_policy(tokenizer)
    notes = Notes()
    reward = ScopeReward(url=plan["url"], alpha=plan["alpha"], calibration=plan["calibration"])
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            reward_funcs=reward,
            args=GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=plan["batch"],
                num_generations=plan["generations"],
                max_completion_length=1,
                max_steps=2,
                learning_rate=1e-3,
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                report_to=[],
                logging_steps=1,
                save_strategy="no",
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_list(rows),
            callbacks=[notes],
        )
        notes.trainer = trainer
        trainer.train()
    if trainer.accelerator.is_main_process:
        found = {
            "processes": trainer.accelerator.num_processes,
            "steps": notes.steps,
            "history": trainer.state.log_history,
        }
        Path(plan["out"]).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
