"""Evaluates planned answers with inspect_ai and the adapter's scorer; prints its log as JSON.

It needs inspect_ai, and neither the service's package nor pytest.
"""

import json
import math
import sys
import tempfile
from importlib.metadata import version
from typing import Any

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model

from scope_judge.inspect_ai import scope_judge


def evaluated(scene: dict[str, Any], folder: str) -> dict[str, Any]:
    """The scores and metrics of a task with one sample for each (answer, target)."""
    samples = [Sample(input=scene["question"], target=target) for _, target in scene["pairs"]]
    outputs = [ModelOutput.from_content("mockllm", answer) for answer, _ in scene["pairs"]]
    for output in outputs:
        # inspect would download a tokenizer to count the tokens.
        output.usage = ModelUsage()
    (log,) = eval(
        Task(dataset=samples, scorer=scope_judge(**scene["options"])),
        model=get_model("mockllm/model", custom_outputs=outputs),
        # The planned answers are given in order.
        max_samples=1,
        display="none",
        log_dir=folder,
        fail_on_error=False,
    )
    found: dict[str, Any] = {"status": log.status, "samples": [], "metrics": {}}
    for sample in log.samples or []:
        score = (sample.scores or {}).get("scope_judge")
        value = None if score is None else score.value
        is_unscored = isinstance(value, float) and math.isnan(value)
        found["samples"].append(
            {
                "value": None if is_unscored else value,
                "unscored": is_unscored,
                "reason": None if score is None else score.reason,
                "error": None if sample.error is None else sample.error.message,
            }
        )
    for score in log.results.scores if log.results else []:
        found["metrics"] = {name: metric.value for name, metric in score.metrics.items()}
        found["scored"], found["unscored"] = score.scored_samples, score.unscored_samples
    return found


def main() -> None:
    """Runs one evaluation for each line of stdin, which has a scene as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [evaluated(json.loads(line), folder) for line in sys.stdin]
    versions = {"inspect-ai": version("inspect-ai")}
    print(json.dumps({"versions": versions, "scenes": rows}))


if __name__ == "__main__":
    main()
