"""Judges comparisons with the judges of a Ray cluster; `scope-judge judge --ray` is the driver.

The driver reads the input and writes the results, so the machines share no files. A lost judge is
replaced where there is room, and its batches go to the others.
"""

import logging
import os
import socket
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import ray
import ray.exceptions
from pydantic import ValidationError

from app.api.problems import invalid_request
from app.api.requests.models import JudgeBatchIn
from app.core.errors import StartupError
from app.fleet.worker import BulkJudge
from app.settings import Settings
from app.wiring.stores import is_shared

logger = logging.getLogger("app.fleet")

# Longest time between two finished batches.
_PATIENCE_S = 1800.0
# Timeout of the first connection to a cluster whose address is given.
_REACHED_IN_S = 10.0
# Batches of one judge at a time: the next one is tokenized while one is judged.
_AT_ONCE = 2
# A batch that has ended that many judges would end the next one, too.
_MOST_LOSSES = 3
_ON_A_GPU = ("vllm",)


class RayJudges:
    """The judges of one run; see `joined`."""

    def __init__(
        self,
        settings: Settings,
        criterion: Mapping[str, Any],
        *,
        replicas: int | None,
        batch_size: int,
    ) -> None:
        alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        gpus = [int(resources.get("GPU", 0)) for resources in alive]
        of_each = settings.tensor_parallel if settings.engine in _ON_A_GPU and any(gpus) else 0
        fitting = judges_on(gpus, of_each=of_each) if of_each else len(alive)
        self._arguments = (everywhere(settings), dict(criterion))
        self._resources = {
            "num_gpus": of_each,
            "num_cpus": 0 if of_each else 1,
            "scheduling_strategy": "SPREAD",
        }
        self._batch_size = batch_size
        check_store(settings, criterion, machines=len(alive))
        self._loading: dict[ray.ObjectRef, Any] = {}
        self._judges: list[Any] = []
        for _ in range(replicas or fitting):
            self._load()
        self.fingerprint = ""
        while not self._judges:
            self._take_loaded()

    def ask(self, comparisons: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields the key and the result of each comparison as batches are judged.

        Raises:
            StartupError: A batch failed three times, or no batch was finished for half an hour.
        """
        keys = list(comparisons)
        starts = range(0, len(keys), self._batch_size)
        waiting = deque((keys[start : start + self._batch_size], 0) for start in starts)
        asked: dict[ray.ObjectRef, tuple[Any, tuple[list[str], int]]] = {}
        while waiting or asked:
            for judge in self._judges:
                busy = sum(other is judge for other, _ in asked.values())
                for _ in range(min(_AT_ONCE - busy, len(waiting))):
                    batch = waiting.popleft()
                    fields = [comparisons[key] for key in batch[0]]
                    asked[judge.judge.remote(fields)] = (judge, batch)
            ended, _ = ray.wait([*asked, *self._loading], timeout=_PATIENCE_S)
            if not ended:
                raise StartupError(
                    f"no batch was finished for {_PATIENCE_S:g} s: rerun the command to resume"
                )
            if ended[0] in self._loading:
                self._take_loaded()
                continue
            judge, (batch_keys, losses) = asked.pop(ended[0])
            try:
                results, failure = ray.get(ended[0])
            except ray.exceptions.RayError as exc:
                logger.warning("a judge was lost: %s", type(exc).__name__)
                if judge in self._judges:
                    # Another one gets batches once it is loaded: there may be no room.
                    self._judges.remove(judge)
                    self._load()
                if losses + 1 == _MOST_LOSSES:
                    raise StartupError(
                        f"{_MOST_LOSSES} judges were lost while they judged the same batch"
                    ) from None
                waiting.append((batch_keys, losses + 1))
                continue
            if failure:
                raise StartupError(failure)
            yield from zip(batch_keys, results, strict=True)

    def _load(self) -> None:
        actor = ray.remote(BulkJudge).options(max_concurrency=_AT_ONCE + 1, **self._resources)
        judge = actor.remote(*self._arguments)
        self._loading[judge.ready.remote()] = judge

    def _take_loaded(self) -> None:
        """Waits for one of the judges that are loading."""
        (first,), _ = ray.wait([*self._loading])
        judge = self._loading.pop(first)
        try:
            fingerprint, refusal = ray.get(first)
        except ray.exceptions.RayError as exc:
            logger.warning("a judge was lost while it loaded: %s", type(exc).__name__)
            if not self._judges and not self._loading:
                raise StartupError("all judges were lost: rerun the command to resume") from None
            return
        if refusal:
            raise StartupError(refusal)
        self.fingerprint = self.fingerprint or fingerprint
        if fingerprint != self.fingerprint:
            raise StartupError("the machines of the cluster have different judges")
        self._judges.append(judge)


@contextmanager
def joined(
    address: str | None,
    settings: Settings,
    criterion: Mapping[str, Any],
    *,
    replicas: int | None,
    batch_size: int,
) -> Iterator[RayJudges]:
    """Joins a Ray cluster, loads judges, and leaves it at the end of the block.

    Args:
        address: Address of the cluster; None joins the cluster on this machine, or starts one.
        settings: Settings of the judge and its store.
        criterion: Fields of the criterion that the command line sets.
        replicas: Number of judges; None for as many as fit.
        batch_size: Number of comparisons in a batch.

    Raises:
        InvalidRequestError: The criterion is not valid.
        StartupError: No cluster can be joined, or no judge can be loaded.
    """
    try:
        JudgeBatchIn.model_validate({**criterion, "comparisons": []})
    except ValidationError as exc:
        raise invalid_request(exc.errors()) from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    _check_reachable(address)
    try:
        ray.init(
            address,
            include_dashboard=None if address else False,
            log_to_driver=False,
            logging_level="error",
        )
    except (ConnectionError, ValueError, RuntimeError) as exc:
        raise StartupError(f"no Ray cluster at {address or 'this machine'}: {exc}") from exc
    try:
        yield RayJudges(settings, criterion, replicas=replicas, batch_size=batch_size)
    finally:
        ray.shutdown()


def judges_on(gpus: Sequence[int], *, of_each: int) -> int:
    """Number of judges that fit, at least one; the GPUs of one judge are all on one machine."""
    judges = sum(on_machine // of_each for on_machine in gpus)
    if judges == 0:
        raise StartupError(
            f"no machine of the cluster has {of_each} GPUs, which SCOPE_TENSOR_PARALLEL asks for; "
            f"the largest has {max(gpus, default=0)}"
        )
    return judges


def check_store(settings: Settings, criterion: Mapping[str, Any], *, machines: int) -> None:
    """Refuses a store that is local to one machine, unless no calibration is read."""
    calibrated = criterion.get("alpha", settings.default_alpha) is not None
    if machines > 1 and calibrated and not is_shared(settings.store_url):
        raise StartupError(
            "several machines need a store that all of them can reach: set "
            "SCOPE_STORE_URL=redis://host:port/db, or judge with --no-alpha"
        )


def everywhere(settings: Settings) -> Settings:
    """The settings with absolute paths, which mean the same in every process of a cluster."""
    changed: dict[str, Any] = {}
    for name in ("model", "tokenizer", "prompt_file"):
        value = getattr(settings, name)
        # A model may be a hub id or a folder. "demo" always means the bundled judge.
        if value and str(value) != "demo" and Path(value).exists():
            changed[name] = type(value)(Path(value).absolute())
    path = settings.store_url.removeprefix("sqlite:///")
    if path != settings.store_url:
        changed["store_url"] = f"sqlite:///{Path(path).absolute()}"
    return settings.model_copy(update=changed)


def _check_reachable(address: str | None) -> None:
    """Refuses an address at which nothing listens; Ray itself would retry forever."""
    place = urlsplit(f"//{(address or '').removeprefix('ray://')}")
    try:
        if place.hostname and place.port:
            socket.create_connection((place.hostname, place.port), timeout=_REACHED_IN_S).close()
    except (OSError, ValueError) as exc:
        raise StartupError(f"no Ray cluster at {address}: {exc}") from exc
