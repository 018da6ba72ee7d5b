"""The job of a bulk run, in a form that means the same on every machine."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from app.core.comparison import CriterionDefaults
from app.core.errors import StartupError
from app.fleet.parts import Cut
from app.settings import Settings
from app.wire.problems import invalid_request
from app.wire.requests import JudgeBatchIn
from app.wiring.stores import is_shared


@dataclass(frozen=True, slots=True)
class Job:
    """One bulk run: judge, criterion and folder.

    Args:
        settings: Settings of the judge and its store, with absolute paths.
        criterion: All fields of the criterion, as in the body of /judge/batch.
        out: Absolute path of the run's folder, the same on every machine.
    """

    settings: Settings
    criterion: Mapping[str, Any]
    out: Path

    @classmethod
    def of(cls, settings: Settings, options: Mapping[str, Any], out: Path) -> "Job":
        """Makes a job; the settings provide the fields of the criterion that are not given.

        Args:
            settings: Settings of the judge and its store.
            options: Fields of the criterion that the user set.
            out: Folder of the run.

        Raises:
            InvalidRequestError: The fields are not a valid criterion.
        """
        return cls(_everywhere(settings), _criterion(options, settings), out.absolute())

    def manifest(self, whole: Cut, *, rows_per_part: int) -> dict[str, Any]:
        """The facts that a later run must share with this one to continue in its folder."""
        return {
            "input": [
                {
                    "shard": shard.source.name,
                    "rows": shard.rows,
                    "sha256": shard.sha256,
                    # Folders of earlier releases have no shape.
                    **({} if shard.source.shape == "pairs" else {"shape": shard.source.shape}),
                }
                for shard in whole.shards
            ],
            "rows_per_part": rows_per_part,
            "criterion": {
                **self.criterion,
                # Used by rows that set "guarantee": "pac" themselves.
                "default_delta": self.settings.default_delta,
                "min_label_mass": self.settings.min_label_mass,
            },
        }

    def check_store(self, *, machines: int) -> None:
        """Checks that all machines can read the same calibration.

        Raises:
            StartupError: The store is local to one machine.
        """
        shared = is_shared(self.settings.store_url)
        if machines > 1 and not shared and self.criterion["alpha"] is not None:
            raise StartupError(
                "several machines need a store that all of them can reach: set "
                "SCOPE_STORE_URL=redis://host:port/db, or judge with --no-alpha"
            )


def judges_on(gpus: Sequence[int], *, of_each: int) -> int:
    """Number of judges that fit; the GPUs of one judge are all on one machine.

    Raises:
        StartupError: Not even one judge fits.
    """
    judges = sum(on_machine // of_each for on_machine in gpus)
    if judges == 0:
        raise StartupError(
            f"no machine of the cluster has {of_each} GPUs, which SCOPE_TENSOR_PARALLEL asks for; "
            f"the largest has {max(gpus, default=0)}"
        )
    return judges


def _criterion(options: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    defaults = CriterionDefaults(
        alpha=settings.default_alpha,
        guarantee=settings.default_guarantee,
        delta=settings.default_delta,
    )
    try:
        batch = JudgeBatchIn.model_validate({**options, "comparisons": []})
    except ValidationError as exc:
        raise invalid_request(exc.errors()) from None
    criterion = batch.criterion(defaults)
    if batch.delta_for is None:
        return asdict(criterion)
    # Undivided: a row may have its own delta, which is divided, too.
    whole = batch.model_copy(update={"delta_for": None}).criterion(defaults)
    return {**asdict(whole), "delta_for": batch.delta_for}


def _everywhere(settings: Settings) -> Settings:
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
