"""Trains a tiny judge that thinks: it counts ones, and then writes a label.

python -m tests.demo_judge.train_thinking --out thinking-judge

A question is a row of bits with letters, "a1b1c0": its answer is 1 if the number of ones is odd,
and else 0. The thought has each bit again with the answer so far, then answer A, whether the two
differ, and a label: "a11b10c00z11B". Each step of the thought is easy, and the whole row at once is
not: without its thought the judge guesses.
"""

import argparse
import json
import random
import string
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import AddedToken
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from app.judges.prompts import PromptTemplate
from tests.demo_judge.tokenizer import CHAT_TEMPLATE, build_tokenizer
from tests.demo_judge.train import IGNORED, RunSize, new_model

TEMPLATE = PromptTemplate(system="", user="{question}\n{answer_a}A\n{answer_b}B")
END = "</think>"
MOST_DIGITS, MODULUS = 5, 2
# Three tokens for each bit and for answer A, the label and the end.
LONGEST_THOUGHT = 3 * (MOST_DIGITS + 1) + 2
_SIZE = RunSize(hidden=96, intermediate=256, layers=3, heads=3, batch=64, chunk=64)
_STEPS = 240
_RATE = 3e-3
_WARMUP_STEPS = 40
# Weight of the label, which is one token among many.
_LABEL_WEIGHT = 0.5
# Share of training pairs with an empty thought, as a judge without thoughts reads them.
_EMPTY = 0.1
_SEED = 45


class Sum(NamedTuple):
    """A pair of answers to a question, and the right thought."""

    question: str
    response_a: str
    response_b: str
    label: str
    thought: str


def sums(seed: int, *, most_digits: int = MOST_DIGITS) -> Iterator[Sum]:
    """Yields random pairs without an end."""
    rng = random.Random(seed)
    while True:
        digits = [rng.randrange(MODULUS) for _ in range(rng.randint(2, most_digits))]
        letters = string.ascii_lowercase[: len(digits)]
        partial = [sum(digits[: i + 1]) % MODULUS for i in range(len(digits))]
        right = str(partial[-1])
        wrong = rng.choice([str(each) for each in range(MODULUS) if str(each) != right])
        is_a = rng.random() < 0.5
        yield Sum(
            question="".join(f"{a}{b}" for a, b in zip(letters, digits, strict=True)),
            response_a=right if is_a else wrong,
            response_b=wrong if is_a else right,
            label="A" if is_a else "B",
            thought="".join(f"{a}{b}{c}" for a, b, c in zip(letters, digits, partial, strict=True))
            + ("z" + right + "0A" if is_a else "z" + wrong + "1B"),
        )


def thinking_tokenizer() -> PreTrainedTokenizerFast:
    """The demo judge's tokenizer with an end of thought, and a template that may end it at once."""
    tokenizer = build_tokenizer()
    tokenizer.add_tokens([AddedToken(END, special=False, normalized=False)])
    skipped = "{% if enable_thinking is defined and not enable_thinking %}" + END + "{% endif %}"
    tokenizer.chat_template = CHAT_TEMPLATE.replace(
        "assistant\\n' }}", "assistant\\n' }}" + skipped
    )
    return tokenizer


def _rows(
    tokenizer: PreTrainedTokenizerFast, pairs: list[Sum], rng: random.Random
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids, and the ids to predict: the thought, its end and the label."""
    rows, targets = [], []
    for pair in pairs:
        user = TEMPLATE.user.format(
            question=pair.question, answer_a=pair.response_a, answer_b=pair.response_b
        )
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": user}], tokenize=False, add_generation_prompt=True
        )
        thought = "" if rng.random() < _EMPTY else pair.thought
        head = tokenizer.encode(prompt, add_special_tokens=False)
        tail = tokenizer.encode(f"{thought}{END}{pair.label}", add_special_tokens=False)
        rows.append(head + tail)
        # An empty thought is given, and not what the judge should write.
        learnt = tail if thought else [IGNORED, *tail[1:]]
        targets.append([IGNORED] * (len(head) - 1) + learnt + [IGNORED])
    length = max(map(len, rows))
    pad = tokenizer.pad_token_id
    return (
        torch.tensor([row + [pad] * (length - len(row)) for row in rows]),
        torch.tensor([row + [IGNORED] * (length - len(row)) for row in targets]),
    )


def _train(out: Path) -> None:
    tokenizer = thinking_tokenizer()
    model: LlamaForCausalLM = new_model(tokenizer, _SIZE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, betas=(0.9, 0.95))
    stream, rng = sums(_SEED), random.Random(_SEED)
    losses = []
    for step in range(_STEPS):
        rate = _RATE * min(1.0, (step + 1) / _WARMUP_STEPS) * max(0.02, 1 - step / _STEPS)
        for group in optimizer.param_groups:
            group["lr"] = rate
        ids, targets = _rows(tokenizer, [next(stream) for _ in range(_SIZE.batch)], rng)
        logits = model(input_ids=ids).logits
        loss = cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
        # The label is the last target of its row.
        last = (targets != IGNORED).int().cumsum(1).argmax(1)
        rows = torch.arange(len(ids))
        label_loss = cross_entropy(logits[rows, last], targets[rows, last])
        (loss + _LABEL_WEIGHT * label_loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(label_loss.item())
        if step % 100 == 99:
            recent = sum(losses[-100:]) / 100
            print(step + 1, f"loss {loss.item():.4f}, of the label {recent:.4f}", flush=True)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def trained(folder: Path) -> Path:
    """Trains a judge for the tests, with its prompt file, in a minute or two."""
    torch.set_num_threads(1)
    _train(folder)
    (folder / "prompt.toml").write_text(f"user = {json.dumps(TEMPLATE.user)}\n", encoding="utf-8")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("thinking-judge"))
    options = parser.parse_args()
    trained(options.out)


if __name__ == "__main__":
    main()
