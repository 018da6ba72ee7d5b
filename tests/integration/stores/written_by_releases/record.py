"""Records what a release writes: a SQLite file, the keys of Redis, exported sets, and the answers.

Arguments: FOLDER. Run it with the release on PYTHONPATH; it uses only commands and HTTP:

    git worktree add /tmp/release COMMIT
    PYTHONPATH=/tmp/release:/tmp/release/clients/python .venv/bin/python \
        tests/integration/stores/written_by_releases/record.py FOLDER
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx
import redis

from tests.integration.processes.server import Server
from tests.redis_server import RedisServer

SETS = ("default", "pool")
JUDGED_LAST = range(200, 240)


def pair(number: int, gap: float, *, question: int | None = None) -> dict[str, Any]:
    return {
        "question": f"Question {number if question is None else question}?",
        "response_a": f"quality={gap:.2f}",
        "response_b": f"quality=0.00 {number}",
    }


def labelled(number: int, gap: float, label: str) -> dict[str, Any]:
    return {**pair(number, gap), "label": label}


def post(client: httpx.Client, path: str, **body: Any) -> Any:
    answer = client.post(path, json=body)
    assert answer.is_success, answer.text
    return answer.json()


def comparisons(numbers: range) -> list[dict[str, Any]]:
    return [pair(number, gap_of(number)) for number in numbers]


def gap_of(number: int) -> float:
    return 0.5 + 0.1 * (number % 40)


def judge_and_label(client: httpx.Client, numbers: range, *, left_open: int) -> None:
    """Judges pairs under two criteria, and labels all drawn judgments but the last ones."""
    gaps: dict[str, float] = {}
    for criterion in ({"alpha": 0.25}, {"alpha": 0.3, "guarantee": "pac", "delta": 0.2}):
        judged = post(client, "/judge/batch", comparisons=comparisons(numbers), **criterion)
        for number, result in zip(numbers, judged["results"], strict=True):
            if result["audit"]:
                gaps[result["audit"]["id"]] = gap_of(number)
    labels = [
        {"id": draw, "label": "tie" if gap > 4.2 else "B" if place % 7 == 0 else "A"}
        for place, (draw, gap) in enumerate(gaps.items())
    ]
    assert len(labels) > left_open + 2
    post(client, "/audits/labels", labels=labels[: len(labels) - left_open])
    post(client, "/audits/labels", labels=[{**labels[1], "label": "B"}])


def state_of(client: httpx.Client, name: str) -> dict[str, Any]:
    """Size, label noise and a digest of the examples of the current version."""
    page = client.get(f"/calibrations/{name}/examples?limit=10000").raise_for_status().json()
    fields = ("digest", "gap_fwd", "gap_rev", "label_mass", "label", "question")
    examples = json.dumps([[example[field] for field in fields] for example in page["examples"]])
    return {
        "n": page["n"],
        "label_noise": page["label_noise"],
        "clusters": page["clusters"],
        "examples": hashlib.sha256(examples.encode()).hexdigest(),
    }


def change_everything(client: httpx.Client) -> dict[str, Any]:
    """Makes every kind of change of sets and audits; returns the state of each version."""
    states: dict[str, dict[str, Any]] = {"default": {}, "pool": {}, "gone": {}}

    def note(name: str) -> None:
        state = state_of(client, name)
        states[name][str(len(states[name]) + 1)] = state

    gaps = {number: 0.12 * (number - 4) for number in range(1, 46)}
    first = [labelled(n, gap, "B" if n in (7, 9) else "A") for n, gap in gaps.items() if gap]
    post(client, "/calibrate", examples=first)
    note("default")
    second = [
        labelled(7, gaps[7], "A"),
        labelled(8, gaps[8], "tie"),
        labelled(50, -1.25, "B"),
        labelled(51, 1.0, "tie"),
        {**labelled(52, 1.0, "A"), "question": ""},
    ]
    post(client, "/calibrate", examples=second, label_noise=0.05)
    note("default")
    post(client, "/calibrations/default/rollback", version=1)
    note("default")
    third = [labelled(n, 2.0 + 0.05 * n, "A") for n in range(60, 80)]
    post(client, "/calibrate", examples=third, label_noise=0.01)
    note("default")
    judge_and_label(client, range(100, 130), left_open=0)
    post(client, "/calibrations/default/absorb", all=True)
    note("default")
    judge_and_label(client, JUDGED_LAST, left_open=3)

    pool = [pair(n, 0.15 * n, question=n // 2) for n in range(1, 25)]
    post(client, "/calibrations/pool/pool", comparisons=pool)
    note("pool")
    known = [{**each, "label": "tie" if n == 3 else "A"} for n, each in enumerate(pool[8:20])]
    post(client, "/calibrate", calibration="pool", examples=known, clusters="adjusted")
    note("pool")

    post(client, "/calibrate", calibration="gone", examples=first[:5])
    note("gone")
    assert client.delete("/calibrations/gone").is_success
    return states


def answers(client: httpx.Client) -> dict[str, Any]:
    """Everything that the service says about its sets and audits, by path."""
    paths = ["/calibrations", "/audits?limit=1000", "/calibrations/gone/versions"]
    paths += [f"/calibrations/{name}/versions" for name in SETS]
    paths += ["/calibrations/default/monitor", "/calibrations/pool/next?alpha=0.3&delta=0.2"]
    return {path: client.get(path).raise_for_status().json() for path in paths}


def record(folder: Path, store_url: str, exported: Path) -> dict[str, Any]:
    """Changes sets in a new store and exports them; returns what the service says about them."""
    folder.mkdir()
    settings = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": store_url, "SCOPE_AUDIT_RATE": "0.3"}
    with Server(folder, settings) as server:
        states = change_everything(server.client)
        program = str(Path(sys.executable).with_name("scope-judge"))
        for name in SETS:
            words = ["sets", "export", name, "--out", str(exported / f"{name}.jsonl")]
            url = f"http://127.0.0.1:{server.port}"
            subprocess.run([program, *words, "--overwrite", "--url", url], check=True)
        judged = post(
            server.client, "/judge/batch", comparisons=comparisons(JUDGED_LAST), alpha=0.25
        )
        return {"states": states, "judged": judged["results"], "answers": answers(server.client)}


def keys_of(url: str) -> dict[str, Any]:
    """Type and value of each key."""
    values: dict[str, Any] = {}
    with redis.Redis.from_url(url, decode_responses=True, protocol=2) as client:
        read = {
            "string": client.get,
            "hash": client.hgetall,
            "set": lambda key: sorted(client.smembers(key)),
            "stream": client.xrange,
        }
        for key in sorted(client.keys("*")):
            values[key] = read[str(client.type(key))](key)
    return values


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        sqlite = work / "store.db"
        said = {"sqlite": record(work / "one", f"sqlite:///{sqlite}", out)}
        shutil.copyfile(sqlite, out / "store.sqlite")
        (work / "redis").mkdir()
        server = RedisServer(work / "redis")
        server.start()
        try:
            # The files of the last service remain: those of Redis.
            said["redis"] = record(work / "two", server.url, out)
            (out / "redis.json").write_text(json.dumps(keys_of(server.url), separators=(",", ":")))
        finally:
            server.stop()
    (out / "answers.json").write_text(json.dumps(said, separators=(",", ":")))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
