"""`make gpu`: twelve steps that prove the GPU path, into docs/measured/gpu.json.

On vLLM's CPU build it is a rehearsal: tiny judges, few pairs, and nothing is written without
--write. SCOPE_MODEL names the judge whose scores and start are measured; the default is a judge
with random weights. Every step runs, also after a failure.
"""

import argparse
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from app.core.errors import StartupError
from app.core.noise import MOST_FLIPS, Noise
from app.core.preference import FloatArray, Score, preference_from_gaps
from app.demo.pairs import pairs as made_pairs
from app.judges.engines.model_files import model_folder
from app.judges.engines.vllm_start import check_gpus, installed_builds, is_cpu_build
from app.settings import Settings
from tests.benchmarks.figures import about
from tests.benchmarks.texts import Pair
from tests.benchmarks.worker import Worker
from tests.drills.gpu_engine import DEMO, SHAPES, TOKENS, both_orders, made_checkpoint, made_config
from tests.integration.engines.nested_judge import write_nested_judge
from tests.integration.processes.server import Server
from tests.patience import VLLM_START_S
from tests.transformers_reference import Reference

FILE = Path(__file__).parents[2] / "docs" / "measured" / "gpu.json"
# Largest accepted difference of p between the demo judge on a GPU and on a CPU, in float32.
SAME_P = 2e-3
# Accepted distance from float32, in that of transformers in the judge's own dtype.
WORSE = 1.5
TOGETHER = 64
# How many of the tokens of a prompt are the same in all pairs of MT-Bench.
SHARED, READ_TOKENS = 380, 800_000
# Operations a second of dense matrix products in 16 bits, by the GPU's name as NVIDIA gives it, and
# the share of them that docs/guides/scale.md computes with.
PEAKS, SHARE = {"A100": 312e12, "H100": 989e12, "H200": 989e12}, 0.6
# Longest time after SIGKILL until the GPU is empty, but for what the driver keeps.
EMPTY_S, NOISE_MIB = 5.0, 256
DUMMY = {"load_format": "dummy"}
# A judge that thinks, and what `tests/demo_judge/measure_thoughts.py` does with it.
THINKER = "Qwen/Qwen3-8B"
THINKS: tuple[str, ...] = (
    *("--model", THINKER, "--max-model-len", "8192", "--prefill", "[["),
    *("--think-tokens", "2048", "--temperature", "0.6"),
)


class NotRunError(Exception):
    """This machine cannot run the step; the message says why."""


class Finding(NamedTuple):
    """The outcome of a step in one line, whether its promise holds, and its figures."""

    sentence: str
    held: bool
    figures: Mapping[str, Any]


class Machine:
    """The machine of a run, and the engine that its steps share.

    Args:
        folder: Folder for logs, caches and made models.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.small = is_cpu_build()
        self._engine: Worker | None = None
        self._key: object = None
        self._count = itertools.count(1)

    @cached_property
    def gpus(self) -> list[dict[str, str]]:
        """Name, memory, driver and capability of each GPU; none without nvidia-smi."""
        fields = ("name", "memory.total", "driver_version", "compute_cap")
        lines = smi(",".join(fields)) if shutil.which("nvidia-smi") else []
        return [dict(zip(fields, map(str.strip, x.split(",")), strict=True)) for x in lines]

    @cached_property
    def judge(self) -> Path:
        """The judge of the steps about scores: the user's, else one with random weights."""
        if self.small:
            return DEMO
        return self.users or made_checkpoint(self.folder / "0.5B random parameters", "0.5B")

    @cached_property
    def users(self) -> Path | None:
        """The folder of the judge that SCOPE_MODEL names."""
        name = os.environ.get("SCOPE_MODEL", "demo")
        if self.small or name == "demo":
            return None
        return model_folder(Settings(model=name))

    def pairs(self, count: int, *, seed: int = 26) -> list[Pair]:
        """Pairs of the demo judge's families; fewer in a rehearsal."""
        drawn = itertools.islice(made_pairs(seed, held_out=True), 20 if self.small else count)
        return [Pair(p.question, p.response_a, p.response_b) for p in drawn]

    def engine(self, model: Path, *, arguments: Any = None, **environment: str) -> Worker:
        """The engine of a model; it stays until another one is needed."""
        environment["VLLM_LOGGING_LEVEL"] = "INFO"
        key = (model, arguments, environment)
        if self._engine is None or self._key != key:
            self.close()
            options = {"model": str(model), "vllm_args": arguments or {}}
            name = f"engine-{next(self._count)}"
            self._engine = Worker(
                self.folder, name, "tests.drills.gpu_engine", options, environment=environment
            )
            self._key = key
            self._engine.start()
            if "refused" in self._engine.said:
                raise RuntimeError(f"the judge refused: {self._engine.said['refused']}")
        return self._engine

    def close(self) -> None:
        """Ends the engine, so that the GPU is free."""
        if self._engine is not None:
            self._engine.stop()
            self._engine = None

    def service(self, **settings: str) -> Server:
        """A service of its own, while no engine runs."""
        self.close()
        folder = self.folder / f"service-{next(self._count)}"
        folder.mkdir()
        given = {"SCOPE_STORE_URL": "memory://", **settings}
        return Server(folder, given, start_timeout_s=VLLM_START_S)


def smi(fields: str) -> list[str]:
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True).stdout.splitlines()


def p_bar(gaps: Sequence[Sequence[float]]) -> FloatArray:
    return preference_from_gaps(*np.array(gaps, dtype=np.float64)).p_bar


def transformers(model: Path, pairs: Sequence[Pair], *, dtype: str, device: str) -> FloatArray:
    """p_bar by a plain forward pass for each prompt."""
    import torch

    prompts = both_orders(pairs)
    found = Reference(str(model), prompts[0], dtype=dtype, device=device)(prompts)
    torch.cuda.empty_cache()
    gaps = [each.a - each.b for each in found]
    return p_bar([gaps[::2], [-gap for gap in gaps[1::2]]])


def machine(at: Machine) -> Finding:
    """The machine has all that vLLM needs, and one build of vLLM."""
    import torch

    builds = installed_builds()
    faults = [] if len(builds) == 1 else ["not exactly one vLLM"]
    if not at.small:
        compiler = any(map(shutil.which, (os.environ.get("CC", "gcc"), "clang")))
        headers = Path(sysconfig.get_path("include", "posix_prefix"), "Python.h")
        faults += [] if compiler else ["no C compiler"]
        faults += [] if headers.is_file() else [f"no {headers}"]
        try:
            check_gpus(1)
        except StartupError as exc:
            faults.append(exc.detail)
    cards = ", ".join(f"{gpu['name']}, driver {gpu['driver_version']}" for gpu in at.gpus)
    named = ", ".join(f"{name} {version}" for name, version in builds.items())
    sentence = "; ".join([f"{cards or 'no GPU'}; {named} with torch {torch.__version__}", *faults])
    figures = {"gpus": at.gpus, "builds": dict(builds), "torch": torch.__version__}
    return Finding(sentence, not faults, figures)


def demo(at: Machine) -> Finding:
    """The demo judge has the probabilities of a forward pass on the CPU."""
    pairs, engine = at.pairs(100), at.engine(DEMO)
    ours = p_bar(engine.ask(what="gaps", pairs=pairs, together=TOGETHER)["gaps"])
    theirs = transformers(DEMO, pairs, dtype="float32", device="cpu")
    largest = float(np.abs(ours - theirs).max())
    sentence = f"p differs by at most {largest:.1e} in {len(pairs)} pairs (aim {SAME_P:g})"
    figures = {"largest_difference": largest, "pairs": len(pairs), "start": engine.said}
    return Finding(sentence, largest <= SAME_P, figures)


def start(at: Machine) -> Finding:
    """A judge of 7B starts, cold and with its compiled kernels kept."""
    model, arguments = at.users, {}
    if model is None:
        shape = "tiny" if at.small else "7B"
        model, arguments = made_config(at.folder / f"made-{shape}", shape), DUMMY
    seconds, log = {}, ""
    for name in ("cold", "warm"):
        settings = {
            "SCOPE_MODEL": str(model),
            "SCOPE_VLLM_ARGS": json.dumps(arguments),
            # All that is compiled; the first start finds it empty.
            "VLLM_CACHE_ROOT": str(at.folder / "cache"),
        }
        begun = time.monotonic()
        with at.service(**settings) as server:
            pair = at.pairs(1)[0]._asdict() | {"alpha": None}
            server.client.post("/judge", json=pair).raise_for_status()
            seconds[name], log = time.monotonic() - begun, server.log.read_text()
    backend = re.search(r"Using (\S+?) (?:attention )?backend", log)
    cache = re.search(r"KV cache size: ([\d,]+) tokens", log)
    weights = "random weights" if arguments else "its own weights"
    sentence = (
        f"{model.name} with {weights}: first verdict {seconds['cold']:.0f} s after the command, "
        f"{seconds['warm']:.0f} s with its cache; backend {backend and backend[1]}, KV cache of "
        f"{cache and cache[1]} tokens"
    )
    figures = {"backend": backend and backend[1], "cache_tokens": cache and cache[1]}
    return Finding(sentence, True, {"seconds": seconds, "weights": weights, **figures})


def head(at: Machine) -> Finding:
    """The workers compute logits in float32, so different prompts differ in their scores.

    On a GPU the head of a language model nested in a multimodal one is looked at, too.
    """
    engine = at.engine(at.judge)
    heads = {at.judge.name: engine.said["head_dtype"]}
    gaps = engine.ask(what="gaps", pairs=at.pairs(50), together=TOGETHER)["gaps"]
    both = [*gaps[0], *gaps[1]]
    distinct = len(set(both))
    if not at.small:
        nested = at.engine(write_nested_judge(at.folder / "nested"))
        heads["a language model in a multimodal one"] = nested.said["head_dtype"]
    sentence = f"{heads}; {distinct} distinct gaps in {len(both)} prompts"
    held = set(heads.values()) == {"float32"} and distinct == len(both)
    figures = {"head_dtypes": heads, "prompts": len(both), "distinct": distinct}
    return Finding(sentence, held, figures)


def against_transformers(at: Machine) -> Finding:
    """Not further from a forward pass in float32 than transformers in the same dtype."""
    pairs, engine = at.pairs(100), at.engine(at.judge)
    ours = p_bar(engine.ask(what="gaps", pairs=pairs, together=TOGETHER)["gaps"])
    dtype = engine.said["dtype"]
    device = "cpu" if at.small else "cuda"
    at.close()  # A GPU has no room for both.
    exact = transformers(at.judge, pairs, dtype="float32", device=device)
    theirs = transformers(at.judge, pairs, dtype=dtype, device=device)
    off, their_off = (float(np.median(np.abs(p - exact))) for p in (ours, theirs))
    sentence = (
        f"{at.judge.name} in {dtype}: p differs by {off:.1e} in the median from transformers in "
        f"float32, and transformers in {dtype} by {their_off:.1e}"
    )
    figures = {"median": off, "transformers_median": their_off, "pairs": len(pairs)}
    return Finding(sentence, off <= max(SAME_P, WORSE * their_off), figures)


def runners(at: Machine) -> Finding:
    """vLLM's model runner V2, which it takes on CUDA, has the gaps of V1."""
    if at.small:
        raise NotRunError("vLLM's CPU build has model runner V1 only")
    figures, said, held = {}, [], True
    for model in dict.fromkeys((DEMO, at.judge)):
        two, one = (
            at.engine(model, VLLM_USE_V2_MODEL_RUNNER=setting).ask(
                what="gaps", pairs=at.pairs(100), together=TOGETHER
            )["gaps"]
            for setting in "10"
        )
        off, p_off = np.abs(np.subtract(two, one)), np.abs(p_bar(two) - p_bar(one))
        figures[model.name] = {
            "gap_largest": float(off.max()),
            "gap_median": float(np.median(off)),
            "p_largest": float(p_off.max()),
        }
        held &= float(np.median(p_off)) <= SAME_P
        said.append(f"{model.name}: gaps differ by {np.median(off):.1e} in the median, ")
        said[-1] += f"{off.max():.1e} at most"
    return Finding("; ".join(said), held, figures)


def labels(at: Machine) -> Finding:
    """Each label request returns its two labels, also beside requests for text."""
    found = at.engine(at.judge).ask(what="labels", pairs=at.pairs(32))
    sentence = (
        f"{found['right']} of {found['prompts']} prompts returned exactly their two labels, beside "
        f"{found['texts']} texts"
    )
    return Finding(sentence, found["right"] == found["prompts"] and found["texts"] == 16, found)


def noise(at: Machine, **environment: str) -> Finding:
    """How much a score depends on the batch around it."""
    pairs, engine = at.pairs(200, seed=9), at.engine(at.judge, **environment)
    asked = {
        "alone": engine.ask(what="gaps", pairs=pairs, together=1, forget=True),
        f"in {TOGETHER}s": engine.ask(what="gaps", pairs=pairs, together=TOGETHER, forget=True),
        "from the cache": engine.ask(what="gaps", pairs=pairs, together=TOGETHER),
    }
    scores = [
        [Score(gap_fwd=a, gap_rev=b, label_mass=1.0) for a, b in zip(*each["gaps"], strict=True)]
        for each in asked.values()
    ]
    # At a threshold that accepts half of the pairs, most pairs are near it.
    found = Noise.of(scores, threshold=None)
    sentence = (
        f"gaps of {len(pairs)} pairs {', '.join(asked)} differ by {found.largest:.1e} at most, "
        f"{found.p95:.1e} at the 95th percentile; {found.flip_share:.1%} get another verdict "
        f"(warned above {MOST_FLIPS:.0%})"
    )
    seconds = {way: each["seconds"] for way, each in asked.items()}
    return Finding(sentence, found.warning is None, {**asdict(found), "seconds": seconds})


def invariance(at: Machine) -> Finding:
    """The same with vLLM's batch invariance."""
    if at.small:
        raise NotRunError("VLLM_BATCH_INVARIANT=1 ends vLLM's CPU build")
    return noise(at, VLLM_BATCH_INVARIANT="1")


def speed(at: Machine) -> Finding:
    """Tokens a second, cold and with a shared beginning, and a pair on its own."""
    at.close()
    memory = float(at.gpus[0]["memory.total"].split()[0]) * 2**20 if at.gpus else 0.0
    peak = next((peak for name, peak in PEAKS.items() if name in str(at.gpus)), None)
    figures: dict[str, Any] = {"tokens": TOKENS, "shared": SHARED, "peak": peak}
    said, shares = [], []
    for name in ["tiny"] if at.small else ["7B", "14B", "32B"]:
        shape = SHAPES[name]
        weights = shape.body + 2 * shape.vocab_size * shape.hidden_size
        if not at.small and 2 * weights > 0.85 * memory:
            continue
        engine = at.engine(made_config(at.folder / f"speed-{name}", name), arguments=DUMMY)
        prompts = 8 if at.small else int(READ_TOKENS / TOKENS * min(1.0, 7e9 / shape.body))

        ask = partial(engine.ask, what="tokens", vocabulary=shape.vocab_size)
        ask(prompts=min(64, prompts), seed=1)
        figures[name] = {
            "cold": ask(prompts=prompts, seed=2),
            "shared": ask(prompts=prompts, seed=3, shared=SHARED),
            "two prompts at a time": ask(prompts=min(200, prompts), seed=4, at_once=2),
        }
        rate = figures[name]["cold"]["tokens_per_s"]
        said.append(f"{name} {rate:,.0f} tokens a second")
        if peak is not None:
            shares.append(2 * shape.body * rate / peak)
            said[-1] += f", {shares[-1]:.1%} of the peak"
    sentence = f"{'; '.join(said)} (aim {SHARE:.0%} of the peak)"
    return Finding(sentence, all(share >= SHARE for share in shares), figures)


def kills(at: Machine) -> Finding:
    """No process that is killed leaves memory on the GPU behind."""
    seconds: dict[str, float | None] = {}
    titles = {"service": "", "engine": "EngineCore"}
    titles |= {"worker": "Worker"} if len(at.gpus) >= 2 else {}
    for victim, title in titles.items():
        settings = {"SCOPE_TENSOR_PARALLEL": "2"} if victim == "worker" else {}
        at.close()
        before = memory_mib(at)
        with at.service(**settings) as server:
            service = psutil.Process(server.pid)
            children = service.children(recursive=True)
            named = [x for x in children if title in f"{' '.join(x.cmdline())} {x.name()}"]
            os.kill((named[0] if title else service).pid, signal.SIGKILL)
            begun, seconds[victim] = time.monotonic(), None
            while seconds[victim] is None and time.monotonic() - begun < 60:
                family = [x for x in (service, *children) if x.is_running()]
                alive = [x for x in family if x.status() != psutil.STATUS_ZOMBIE]
                if not alive and memory_mib(at) <= before + NOISE_MIB:
                    seconds[victim] = time.monotonic() - begun
                time.sleep(0.05)
    # The aim is about a GPU's memory; a rehearsal asks only whether anything is left.
    most = 60.0 if at.small else EMPTY_S
    held = all(each is not None and each <= most for each in seconds.values())
    sentence = f"seconds until all was gone after SIGKILL: {seconds} (aim {EMPTY_S:g} on a GPU)"
    return Finding(sentence, held, {"seconds": seconds})


def memory_mib(at: Machine) -> float:
    """Memory in use on all GPUs."""
    return sum(float(line.split()[0]) for line in smi("memory.used")) if at.gpus else 0.0


def thoughts(at: Machine) -> Finding:
    """Labels, one thought and four on the same pairs: AUROC, coverage, and its price."""
    at.close()
    options, figures = THINKS, at.folder / "thoughts.json"
    if at.small:
        from tests.demo_judge.train_thinking import LONGEST_THOUGHT, trained

        judge = trained(at.folder / "thinking")
        options = (
            *("--model", str(judge), "--prompt-file", str(judge / "prompt.toml")),
            *("--pairs", "sums", "--think-tokens", str(LONGEST_THOUGHT)),
            *("--calibrated", "100", "--fresh", "100"),
        )
    else:
        try:
            model_folder(Settings(model=THINKER))
        except StartupError as exc:
            raise NotRunError(exc.detail) from exc
    command = [sys.executable, "-m", "tests.demo_judge.measure_thoughts", "--json", str(figures)]
    with (at.folder / "thoughts.log").open("wb") as log:
        subprocess.run([*command, *options], stdout=log, stderr=log, check=True)
    kinds = json.loads(figures.read_text(encoding="utf-8"))
    said = [
        f"{kind['name']}: AUROC {kind['auroc']}, coverage {kind['coverage']:.3f} at "
        f"{kind['seconds']:.2f} s a pair, {kind['unfinished']:.1%} unfinished"
        for kind in kinds
    ]
    held = all(kind["unfinished"] < 0.5 for kind in kinds)
    return Finding("; ".join(said), held, {"kinds": kinds})


STEPS: dict[str, Callable[[Machine], Finding]] = {
    "machine": machine,
    "demo": demo,
    "start": start,
    "head": head,
    "transformers": against_transformers,
    "runners": runners,
    "labels": labels,
    "noise": noise,
    "invariance": invariance,
    "speed": speed,
    "kills": kills,
    "thoughts": thoughts,
}


def outcome_of(name: str, at: Machine) -> dict[str, Any]:
    """Runs a step; whatever goes wrong is its outcome, and the next step can run."""
    begun, figures = time.monotonic(), {}
    try:
        finding = STEPS[name](at)
        status, sentence = "passed" if finding.held else "failed", finding.sentence
        figures = dict(finding.figures)
    except NotRunError as exc:
        status, sentence = "not run", str(exc)
    except (Exception, SystemExit) as exc:  # noqa: BLE001
        lines = [line for line in str(exc).splitlines() if line.strip()]
        status, sentence = "failed", f"{type(exc).__name__}: {(lines or ['without words'])[-1]}"
    if status == "failed":
        # The next step must not meet a broken judge.
        at.close()
    seconds = time.monotonic() - begun
    return {"status": status, "sentence": sentence, "figures": figures, "seconds": seconds}


def main() -> None:
    """Runs the steps; the status is 1 if one failed."""
    parser = argparse.ArgumentParser(prog="make gpu", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=STEPS, default=list(STEPS), metavar="NAME")
    parser.add_argument("--write", action="store_true", help="write the file, also on a CPU")
    given = parser.parse_args()
    at = Machine(Path(tempfile.mkdtemp(prefix="scope-judge-gpu-")))
    facts, failed = about(repeats=1), False
    run = {key: facts[key] for key in ("made", "commit", "machine", "versions")}
    try:
        for name in given.only:
            outcome = outcome_of(name, at)
            failed |= outcome["status"] == "failed"
            print(f"{outcome['status']:8} {name}: {outcome['sentence']}", flush=True)
            if given.write or not at.small:
                runs = json.loads(FILE.read_text(encoding="utf-8"))
                device = "cpu" if at.small else "gpu"
                steps = (runs[device] or {}).get("steps", {}) | {name: {**outcome, **run}}
                runs[device] = {**run, "steps": steps}
                text = json.dumps(runs, indent=1, allow_nan=False, default=str)
                FILE.write_text(text + "\n", encoding="utf-8")
    finally:
        at.close()
    if failed:
        sys.exit(f"the logs of the judges are in {at.folder}")
    shutil.rmtree(at.folder)


if __name__ == "__main__":
    main()
