"""Runs episodes of verifiers with the adapter's environment; prints the recorded rewards as JSON.

It needs verifiers, and neither the service's package nor pytest. The policy is an HTTP server that
gives planned answers; everything between it and the reward is verifiers' own: environment, agent,
interception, trace and episode.
"""

import asyncio
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from typing import Any

import httpx
import verifiers.v1 as vf
from verifiers.v1.clients import ModelContext
from verifiers.v1.envs.best_of_n.env import BestOfNEnvConfig
from verifiers.v1.runtimes import ProgramResult

from scope_judge.reward_source import shared_source
from scope_judge.verifiers import ScopeEnv

# verifiers finds the plugins below under this name.
PLUGIN = "scope_door"
__all__ = ["DoorEnv", "DoorHarness", "DoorTaskset"]


class DoorEnv(ScopeEnv):
    """The adapter's environment, as a user's package exports it."""


class DoorHarness(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc]
    """Asks the policy once, through verifiers' interception."""

    APPENDS_SYSTEM_PROMPT = False
    SUPPORTS_MCP = False
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, *args: Any, **kw: Any
    ) -> Any:
        """Sends the task's prompt and returns when the answer is in the trace."""
        body = {
            "model": ctx.model,
            "messages": [{"role": "user", "content": trace.task.data.prompt}],
        }
        async with httpx.AsyncClient(timeout=60.0) as client:
            answer = await client.post(
                f"{endpoint}/chat/completions",
                json=body,
                headers={"Authorization": f"Bearer {secret}"},
            )
            answer.raise_for_status()
        return ProgramResult(0, "", "")


class DoorTask(vf.Task[vf.TaskData]):  # type: ignore[misc]
    """A task without rewards of its own."""


class DoorTaskset(vf.Taskset[DoorTask, vf.TasksetConfig]):  # type: ignore[misc]
    """One task."""

    def load(self) -> list[Any]:
        """The task, whose prompt is the question."""
        return [DoorTask(vf.TaskData(prompt=os.environ["DOOR_QUESTION"]), self.config.task)]


class Policy(ThreadingHTTPServer):
    """An OpenAI-compatible server that gives planned answers, in order."""

    daemon_threads = True

    def __init__(self, answers: list[str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = iter(answers)


class _Handler(BaseHTTPRequestHandler):
    server: Policy

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"role": "assistant", "content": next(self.server.answers)}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        head = {"id": "x", "object": "chat.completion", "created": 0, "model": "planned"}
        content = json.dumps({**head, "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


async def episode_of(answers: list[str]) -> Any:
    """One episode in which the policy answers the question several times."""
    policy = Policy(answers)
    thread = threading.Thread(target=policy.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    client = vf.EvalClientConfig(
        base_url=f"http://127.0.0.1:{policy.server_port}/v1", api_key_var="DOOR_KEY"
    )
    config = BestOfNEnvConfig(
        id=PLUGIN,
        n=len(answers),
        taskset=vf.TasksetConfig(id=PLUGIN),
        agent=vf.AgentConfig(
            harness=vf.HarnessConfig(id=PLUGIN), runtime=vf.SubprocessConfig(), model="planned"
        ),
    )
    env = DoorEnv(config)
    (task,) = list(env.taskset)
    context = ModelContext(model="planned", client=client, sampling=vf.SamplingConfig())
    try:
        async with env.serving():
            (slot,) = env.slots(task)
            return await env.run_slot(slot, context)
    finally:
        policy.shutdown()
        policy.server_close()


def row(trace: Any) -> dict[str, Any]:
    """The record of one attempt."""
    reward = trace.rewards.get("scope_judge", "absent")
    return {
        "answer": trace.last_message.content,
        "reward": reward if reward is None or reward == "absent" else reward.score,
        "trainable": trace.agent.trainable,
        "metrics": {k: v for k, v in trace.metrics.items() if k.startswith("scope_judge/")},
    }


def main() -> None:
    """Runs one episode for each line of stdin, which has a scene as JSON."""
    os.environ["DOOR_KEY"] = "x"
    sys.modules[PLUGIN] = sys.modules[__name__]
    scenes = [json.loads(line) for line in sys.stdin]
    rows = []
    for scene in scenes:
        os.environ["DOOR_QUESTION"] = scene["question"]
        os.environ.update(scene["environment"])
        # A trainer reads its environment once.
        shared_source.cache_clear()
        episode = asyncio.run(episode_of(scene["answers"]))
        for name in scene["environment"]:
            del os.environ[name]
        errors = [f"{each.type}: {each.message}" for each in episode.errors]
        rows.append({"ok": episode.ok, "errors": errors, "traces": [*map(row, episode.traces)]})
    print(json.dumps({"versions": {"verifiers": version("verifiers")}, "scenes": rows}))


if __name__ == "__main__":
    main()
