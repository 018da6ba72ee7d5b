"""A fake decision server: it scores by digest, in either dialect."""

import hashlib
from dataclasses import dataclass
from typing import Any

from tests.unit.judges.engines.openai_fake import FakeServer

INPUT_TOKENS = 11
LABEL_MASS = 0.875


def share(context: str, first: str, second: str, decimals: int | None = None) -> float:
    """Probability of the option shown first, computed from a digest of the question."""
    digest = hashlib.sha256("|".join((context, first, second)).encode()).digest()
    exact = 0.1 + 0.8 * int.from_bytes(digest[:4], "big") / 2**32
    return exact if decimals is None else round(exact, decimals)


@dataclass
class FakeDecisions(FakeServer):
    """A decision server; a test may change its fields while it runs.

    Args:
        version: Name of the model in answers.
        path: The only path that it serves.
        shape: Dialect of requests and answers: "systemone" or "openai".
        most: Most questions in one request; more get `refusal`.
        refusal: Status for a request of another shape.
        decimals: Decimals of its probabilities; None for all.
    """

    version: str = "the-judge-1.0.0"
    path: str = "/systemone"
    shape: str = "systemone"
    most: int = 2
    refusal: int = 422
    decimals: int | None = None

    def _answer(self, path: str, body: dict[str, Any]) -> dict[str, Any] | int:
        if path != self.path or body["model"] != self.name:
            return 404
        asked = body["questions"]
        if (self.shape == "openai") != isinstance(asked, list) or len(asked) > self.most:
            return self.refusal
        answers = self._listed(body) if self.shape == "openai" else self._named(body)
        usage = {"input_tokens": INPUT_TOKENS * len(asked), "output_tokens": 0}
        return {"model": self.version, "usage": usage, **answers}

    def _named(self, body: dict[str, Any]) -> dict[str, Any]:
        answers = {}
        for name, question in body["questions"].items():
            assert question.keys() == {"type", "instructions", "criteria"}
            (one, first), (other, second) = question["criteria"].items()
            p = share(body["state"], first, second, self.decimals)
            # In the other order, because only the names say which probability is which.
            probabilities = {other: self._rest(p), one: p}
            answers[name] = {
                "type": "choice",
                "choice": one if p >= 0.5 else other,
                "probabilities": probabilities,
                "confidence": max(p, 1 - p),
            }
        diagnostics = {name: {"label_mass": LABEL_MASS} for name in answers}
        return {"answers": answers, "diagnostics": diagnostics}

    def _listed(self, body: dict[str, Any]) -> dict[str, Any]:
        answers = []
        for question in body["questions"]:
            one, other = question["choices"]
            p = share(body["input"], one["description"], other["description"], self.decimals)
            probabilities = [
                {"value": other["value"], "probability": self._rest(p)},
                {"value": one["value"], "probability": p},
            ]
            answers.append(
                {
                    "type": "choice",
                    "name": question["name"],
                    "choice": (one if p >= 0.5 else other)["value"],
                    "confidence": max(p, 1 - p),
                    "probabilities": probabilities,
                }
            )
        return {"answers": answers}

    def _rest(self, p: float) -> float:
        return 1.0 - p if self.decimals is None else round(1.0 - p, self.decimals)
