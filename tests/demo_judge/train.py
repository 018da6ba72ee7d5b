"""Trains the bundled judge, a small Llama that reads the service's own prompt (see README.md).

python -m tests.demo_judge.train --minutes 90
"""

import argparse
import itertools
import json
import math
import random
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, pad
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from app.demo.pairs import FAMILIES, Pair, labelled, pairs
from app.judges.prompts import PAPER_USER, PromptTemplate
from tests.demo_judge.tokenizer import CONTEXT_TOKENS, build_tokenizer

SEED = 20261120
PEAK_MATRIX_RATE = 0.02
PEAK_OTHER_RATE = 2e-3
WARMUP_STEPS = 100
# Share of training pairs whose better response is shown first. Such data teach the judge a position
# bias, as large judges have. Held-out pairs are balanced.
FIRST_IS_BETTER = 0.55
# Weight of the loss of the right answer's text, relative to the verdict's. Without this loss, the
# judge stays at the plateau of guessing.
ANSWER_WEIGHT = 0.5
IGNORED = -100
# The families at the beginning of a run; all families follow after CURRICULUM_SHARE of the time.
EASY_FAMILIES = ("parity", "larger", "copy", "letter", "alphabet", "sort")
CURRICULUM_SHARE = 0.08


@dataclass(frozen=True, slots=True)
class RunSize:
    """The size of a model, and the pairs of one step and of one forward pass (`chunk`)."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    batch: int
    chunk: int


# The bundled judge.
BUNDLED = RunSize(hidden=192, intermediate=512, layers=5, heads=6, batch=128, chunk=32)


def new_model(tokenizer: PreTrainedTokenizerFast, size: RunSize) -> LlamaForCausalLM:
    """Builds the untrained judge."""
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    return LlamaForCausalLM(config)


@dataclass(frozen=True, slots=True)
class Batch:
    """Prompts without their common prefix, padded on the right.

    Args:
        ids: Shape (n, length), token ids.
        targets: Shape (n, length), the id that each position should predict within the right
            answer's text; IGNORED elsewhere.
        last: Shape (n,), the position of each prompt's last token.
        labels: Shape (n,), the id of the right verdict's token.
    """

    ids: Tensor
    targets: Tensor
    last: Tensor
    labels: Tensor


class PromptEncoder:
    """Encodes pairs as the judge's prompts, without the prefix that all prompts share."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._tokenizer = tokenizer
        self._template = PromptTemplate()
        text = self._text("{question}", "", "")
        head = text[: text.index("{question}")]
        self.prefix_ids: list[int] = tokenizer.encode(head, add_special_tokens=False)
        self._head = head
        self._label_ids = {label: tokenizer.convert_tokens_to_ids(label) for label in ("A", "B")}

    def _text(self, question: str, response_a: str, response_b: str) -> str:
        user = PAPER_USER.format(question=question, answer_a=response_a, answer_b=response_b)
        messages = [
            {"role": "system", "content": self._template.system},
            {"role": "user", "content": user},
        ]
        text = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        assert isinstance(text, str)
        return text

    def batch(self, chosen: list[Pair]) -> Batch:
        """Encodes pairs, with the tokens of the right answer as additional targets."""
        rows, targets = [], []
        for pair in chosen:
            text = self._text(pair.question, pair.response_a, pair.response_b)
            encoded = self._tokenizer(
                text[len(self._head) :], add_special_tokens=False, return_offsets_mapping=True
            )
            ids, offsets = encoded["input_ids"], encoded["offset_mapping"]
            right = pair.response_a if pair.label == "A" else pair.response_b
            head = f"[Assistant {pair.label}'s Answer]\n"
            start = text.index(head, len(self._head)) + len(head) - len(self._head)
            end = start + len(right) + 1  # with the end of the answer
            wanted = [start <= begin < end for begin, _ in offsets]
            rows.append(ids)
            targets.append([i if w else IGNORED for i, w in zip(ids, wanted, strict=True)])
        length = max(map(len, rows))
        # A position predicts the token after it: targets move one to the left.
        return Batch(
            ids=torch.stack([pad(torch.tensor(row), (0, length - len(row))) for row in rows]),
            targets=torch.stack(
                [
                    pad(torch.tensor(row[1:]), (0, length - len(row) + 1), value=IGNORED)
                    for row in targets
                ]
            ),
            last=torch.tensor([len(row) - 1 for row in rows]),
            labels=torch.tensor([self._label_ids[pair.label] for pair in chosen]),
        )

    def label_ids(self) -> tuple[int, int]:
        """The token ids of A and B."""
        return self._label_ids["A"], self._label_ids["B"]


def logits_after_prefix(model: LlamaForCausalLM, prefix: Tensor, ids: Tensor) -> Tensor:
    """Logits, shape (n, length, vocabulary), of prompts that share a prefix of shape (p,).

    The prefix is computed once for the batch; `ids` of shape (n, length) follow it.
    """
    shared = prefix_cache(model, prefix, len(ids))
    output = model(input_ids=ids, past_key_values=shared, use_cache=True)
    logits = output.logits
    assert logits is not None
    return logits


def prefix_cache(model: LlamaForCausalLM, prefix: Tensor, count: int) -> DynamicCache:
    """Computes a prefix of shape (p,) once, for `count` prompts that begin with it."""
    cache = DynamicCache(config=model.config)
    model.model(input_ids=prefix[None], past_key_values=cache, use_cache=True)
    shared = DynamicCache(config=model.config)
    for index, layer in enumerate(cache.layers):
        expanded = [t.expand(count, -1, -1, -1) for t in (layer.keys, layer.values)]
        shared.update(expanded[0], expanded[1], index)
    return shared


def loss_of(model: LlamaForCausalLM, prefix: Tensor, batch: Batch) -> Tensor:
    """Cross-entropy of the verdict plus ANSWER_WEIGHT times that of the right answer's text."""
    # bfloat16 products are a quarter faster on a CPU; the weights stay float32.
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = logits_after_prefix(model, prefix, batch.ids).float()
    verdicts = logits[torch.arange(len(batch.ids)), batch.last]
    answer = cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORED)
    return cross_entropy(verdicts, batch.labels) + ANSWER_WEIGHT * answer


def order_averaged_accuracy(
    model: LlamaForCausalLM, encoder: PromptEncoder, chosen: list[Pair]
) -> dict[str, float]:
    """Share of pairs that p_bar puts on the right side, by family."""
    prefix = torch.tensor(encoder.prefix_ids)
    id_a, id_b = encoder.label_ids()
    swapped = [labelled(pair, "B" if pair.label == "A" else "A") for pair in chosen]
    p_first = []
    for some in (chosen, swapped):
        batch = encoder.batch(some)
        with torch.no_grad():
            logits = logits_after_prefix(model, prefix, batch.ids)
        verdicts = logits[torch.arange(len(some)), batch.last]
        p_first.append(torch.sigmoid(verdicts[:, id_a] - verdicts[:, id_b]))
    p_bar = (p_first[0] + 1 - p_first[1]) / 2
    right = [
        (p > 0.5) == (pair.label == "A") for p, pair in zip(p_bar.tolist(), chosen, strict=True)
    ]
    shares = {"all": sum(right) / len(right)}
    for family in FAMILIES:
        own = [r for r, pair in zip(right, chosen, strict=True) if pair.family == family]
        shares[family] = sum(own) / len(own)
    return shares


def training_pairs(step: int, families: tuple[str, ...], count: int) -> list[Pair]:
    """The pairs of one step."""
    rng = random.Random(SEED + step)
    stream = pairs(rng.randrange(2**62), held_out=False, families=families)
    return [
        labelled(pair, "A" if rng.random() < FIRST_IS_BETTER else "B")
        for pair in itertools.islice(stream, count)
    ]


def _shown_characters(pair: Pair) -> int:
    return len(pair.question) + len(pair.response_a) + len(pair.response_b)


class Trainer:
    """A training run with a time budget."""

    def __init__(self, minutes: float) -> None:
        self.budget_s = minutes * 60
        self.tokenizer = build_tokenizer()
        self.encoder = PromptEncoder(self.tokenizer)
        self.model = new_model(self.tokenizer, BUNDLED)
        matrices = [p for n, p in self.model.named_parameters() if p.ndim == 2 and "embed" not in n]
        others = [p for n, p in self.model.named_parameters() if p.ndim != 2 or "embed" in n]
        self.optimizers: list[tuple[torch.optim.Optimizer, float]] = [
            (torch.optim.Muon(matrices, weight_decay=0.01), PEAK_MATRIX_RATE),
            (torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0), PEAK_OTHER_RATE),
        ]
        self.step = 0
        self.spent_s = 0.0

    def save(self, folder: Path) -> None:
        """Writes the model in Hugging Face format."""
        self.model.save_pretrained(folder / "model")
        self.tokenizer.save_pretrained(folder / "model")

    def _rate(self) -> float:
        """Share of the peak learning rate: a warm-up, then a cosine decay to 0.01."""
        done = min(1.0, self.spent_s / self.budget_s)
        return min(1.0, (self.step + 1) / WARMUP_STEPS) * (
            0.01 + 0.99 * (1 + math.cos(math.pi * done)) / 2
        )

    def train_step(self) -> float:
        """One step of both optimizers; returns the loss."""
        families = tuple(FAMILIES)
        if self.spent_s < CURRICULUM_SHARE * self.budget_s:
            families = EASY_FAMILIES
        prefix = torch.tensor(self.encoder.prefix_ids)
        count, chunk = BUNDLED.batch, BUNDLED.chunk
        chosen = sorted(training_pairs(self.step, families, count), key=_shown_characters)
        total = 0.0
        for start in range(0, count, chunk):
            batch = self.encoder.batch(chosen[start : start + chunk])
            loss = loss_of(self.model, prefix, batch) * (chunk / count)
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer, peak in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = peak * self._rate()
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        return total

    def run(self, *, report_every: int) -> None:
        """Trains until the time budget is spent, printing one JSON line per report."""
        validation = list(itertools.islice(pairs(SEED - 1, held_out=True), 500))
        losses = []
        while self.spent_s < self.budget_s:
            begun = time.monotonic()
            losses.append(self.train_step())
            self.spent_s += time.monotonic() - begun
            if self.step % report_every == 0:
                shares = order_averaged_accuracy(self.model, self.encoder, validation)
                line = {
                    "step": self.step,
                    "minutes": round(self.spent_s / 60, 2),
                    "loss": round(sum(losses) / len(losses), 4),
                    "accuracy": {k: round(v, 3) for k, v in shares.items()},
                }
                print(json.dumps(line), flush=True)
                losses.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-training"))
    parser.add_argument("--minutes", type=float, default=90)
    parser.add_argument("--report-every", type=int, default=200)
    options = parser.parse_args()
    trainer = Trainer(options.minutes)
    trainer.run(report_every=options.report_every)
    trainer.save(options.out)


if __name__ == "__main__":
    main()
