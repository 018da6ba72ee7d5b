"""The usual client today: two chat completions per pair from an OpenAI-compatible server."""

import asyncio
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from app.judges.engines import vllm_start
from app.judges.prompts import PromptTemplate
from app.settings import Settings
from tests.benchmarks.texts import Pair
from tests.patience import VLLM_START_S
from tests.programs import HttpServer, free_port

MODEL = "judge"
AT_ONCE = 32


def chat_server(folder: Path, model: str, further: Mapping[str, Any] | None = None) -> HttpServer:
    """vLLM's own server, with the engine arguments of our service and further ones."""
    given = Settings(model=model)
    arguments = vllm_start.engine_arguments(given, Path(model)) | dict(further or {})
    # The server has its own names for these two; both are off unless its flag is there.
    for only_on in ("disable_log_stats", "enable_log_requests"):
        if not arguments[only_on]:
            del arguments[only_on]
    # Nobody asks this server about its head.
    for only_in_process in ("served_model_name", "worker_extension_cls"):
        arguments.pop(only_in_process, None)
    if callable(arguments.get("hf_overrides")):
        # The server takes JSON only. The benchmarks' models have no nested language model.
        arguments["hf_overrides"] = {"head_dtype": "float32"}
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--host=127.0.0.1",
        f"--port={port}",
        f"--served-model-name={MODEL}",
        *(flag for name, value in arguments.items() for flag in _flag(name, value)),
    ]
    place: dict[str, Any] = {"port": port, "ready_path": "/health"}
    return HttpServer(
        folder, "chat-server", command, _ENVIRONMENT, start_timeout_s=VLLM_START_S, **place
    )


def _flag(name: str, value: Any) -> list[str]:
    name = name.replace("_", "-")
    if value is None:
        return []
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"--{name}={json.dumps(value) if isinstance(value, dict) else value}"]


def _environment() -> dict[str, str]:
    """The CPU settings of docs/design/engine.md, as our service sets them for vLLM."""
    before = dict(os.environ)
    vllm_start.set_environment()
    added = {name: value for name, value in os.environ.items() if name not in before}
    for name in added:
        del os.environ[name]
    return added


# Read once, before anything is started: reading it changes this process's environment for a moment.
_ENVIRONMENT = _environment()


async def judge_pairs(server: HttpServer, pairs: Sequence[Pair]) -> list[float | None]:
    """The probability that response_a is preferred when it is shown first, for each pair.

    None if a label is not among the top 20: the client cannot compute a probability then.
    """
    template = PromptTemplate()
    prompts = [prompt for pair in pairs for prompt in template.both_orders(pair.comparison)]
    limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
    free = asyncio.Semaphore(AT_ONCE)
    async with httpx.AsyncClient(base_url=server.url, timeout=3600, limits=limits) as client:

        async def ask(system: str, user: str) -> float | None:
            body = {
                "model": MODEL,
                "messages": [
                    {"role": "system", "content": system},
                    {"role": "user", "content": user},
                ],
                "logprobs": True,
                "top_logprobs": 20,
                "max_tokens": 1,
                "temperature": 0,
            }
            async with free:
                answer = await client.post("/v1/chat/completions", json=body)
            answer.raise_for_status()
            top = answer.json()["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            found = {each["token"]: each["logprob"] for each in top}
            if "A" not in found or "B" not in found:
                return None
            return 1 / (1 + math.exp(found["B"] - found["A"]))

        answers = await asyncio.gather(*(ask(p.system, p.user) for p in prompts))
    return answers[::2]
