"""Judges the parts of a bulk run on the machines of a Ray cluster, with Ray Data."""

import logging
import os
import queue
import socket
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

import ray
import ray.data
import ray.exceptions
from ray.util.annotations import RayDeprecationWarning

from app.core.errors import StartupError
from app.fleet.job import Job, judges_on
from app.fleet.parts import Part
from app.fleet.worker import PartOutcome, PartWorker
from app.observability.logs import log_defect
from app.settings import Settings

logger = logging.getLogger("app.fleet")

# Longest time between two finished parts. It starts with the first part: loading a judge has no
# limit.
_PATIENCE_S = 1800.0
# Timeout of the first connection to a cluster whose address is given.
_REACHED_IN_S = 10.0
# Parts of one judge at a time: the next ones are read and tokenised while one is judged.
_AT_ONCE = 2
_WAITING = 4
_ON_A_GPU = ("vllm", "transformers")
# CPUs that one judge reserves on a cluster without GPUs.
_CPUS_OF_A_JUDGE = 1


class Cluster:
    """A Ray cluster that this process has joined."""

    def __init__(self, settings: Settings) -> None:
        self._gpus = settings.tensor_parallel if settings.engine in _ON_A_GPU else 0

    @property
    def machines(self) -> int:
        """Number of live machines."""
        return sum(node["Alive"] for node in ray.nodes())

    def judges(self) -> int:
        """Number of judges that fit: one for each group of GPUs, or without GPUs one a machine.

        Raises:
            StartupError: There are GPUs, but no machine has enough for one judge.
        """
        alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        gpus = [int(resources.get("GPU", 0)) for resources in alive]
        return judges_on(gpus, of_each=self._gpus) if self._gpus and any(gpus) else len(alive)

    def judge(self, job: Job, parts: Mapping[int, Part], *, judges: int) -> Iterator[PartOutcome]:
        """Judges each part once; the parts of a lost machine have no outcome.

        A lost judge is started again if there is room. Its parts are not kept for it, because
        without room they would wait forever.

        Args:
            job: Settings, criterion and folder of the run.
            parts: Number -> part.
            judges: Largest number of judges.

        Raises:
            StartupError: No part was finished for half an hour.
        """
        outcomes = self._mapped(job, parts, judges=min(judges, len(parts)))
        finished: queue.Queue[PartOutcome | None] = queue.Queue()

        def read() -> None:
            try:
                for row in outcomes.iter_rows():
                    finished.put(row["outcome"])
            except ray.exceptions.RayError as exc:
                logger.warning("this pass was cut short: %s", type(exc).__name__)
            except Exception as exc:  # noqa: BLE001
                # Logged here, because nothing waits for the result of this thread.
                log_defect(exc)
                logger.warning("this pass was cut short: unforeseen %s", type(exc).__name__)
            finally:
                finished.put(None)

        # A thread, because Ray may wait forever for lost judges and has no timeout.
        threading.Thread(target=read, daemon=True).start()
        patience_s = None
        try:
            while (outcome := finished.get(timeout=patience_s)) is not None:
                yield outcome
                patience_s = _PATIENCE_S
        except queue.Empty:
            raise StartupError(
                f"no part was finished for {_PATIENCE_S:g} s: run the same command again to "
                "continue"
            ) from None

    def _mapped(self, job: Job, parts: Mapping[int, Part], *, judges: int) -> ray.data.Dataset:
        rows = [{"number": number, "part": part} for number, part in parts.items()]
        with_gpu = ray.cluster_resources().get("GPU", 0) > 0
        with warnings.catch_warnings():
            # Until Ray 2.64 the only way to keep parts from waiting for a lost judge.
            warnings.simplefilter("ignore", RayDeprecationWarning)
            return ray.data.from_items(rows, override_num_blocks=len(rows)).map(
                PartWorker,
                fn_constructor_args=(job,),
                compute=ray.data.ActorPoolStrategy(
                    size=judges,
                    max_tasks_in_flight_per_actor=_WAITING,
                    max_concurrent_calls_per_actor=_AT_ONCE,
                    enable_true_multi_threading=True,
                ),
                num_gpus=self._gpus if with_gpu else 0,
                num_cpus=0 if self._gpus and with_gpu else _CPUS_OF_A_JUDGE,
                ray_remote_args_fn=lambda: {"max_restarts": -1, "max_task_retries": 0},
            )


def _check_reachable(address: str | None) -> None:
    """Refuses an address at which nothing listens; Ray itself would retry forever."""
    place = urlsplit(f"//{(address or '').removeprefix('ray://')}")
    try:
        if place.hostname and place.port:
            socket.create_connection((place.hostname, place.port), timeout=_REACHED_IN_S).close()
    except (OSError, ValueError) as exc:
        raise StartupError(f"no Ray cluster at {address}: {exc}") from exc


@contextmanager
def joined(address: str | None, settings: Settings) -> Iterator[Cluster]:
    """Joins a Ray cluster and leaves it at the end of the block.

    Args:
        address: Address of the cluster; None joins the cluster on this machine, or starts one.
        settings: Settings of the judge.

    Raises:
        StartupError: No cluster can be joined.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
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
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # The run continues without the parts of a lost machine.
    context.max_errored_blocks = -1
    try:
        yield Cluster(settings)
    finally:
        ray.shutdown()
