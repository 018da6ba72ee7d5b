"""What a bulk run is to do, written so that every machine understands the same."""

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


@dataclass(frozen=True, slots=True)
class Job:
    """What every machine is to do.

    Args:
        settings: Of the judge and its store; its paths are absolute.
        criterion: What verdicts must meet, in full, as in the body of /judge/batch.
        out: The run's folder, the same on every machine.
    """

    settings: Settings
    criterion: Mapping[str, Any]
    out: Path

    @classmethod
    def of(cls, settings: Settings, given: Mapping[str, Any], out: Path) -> "Job":
        """A job with what is given, and the settings where nothing is.

        Raises:
            InvalidRequestError: What is given makes no sense.
        """
        return cls(_everywhere(settings), _criterion(given, settings), out.absolute())

    def manifest(self, whole: Cut, *, rows_per_part: int) -> dict[str, Any]:
        """All that another run must have in common with this one to go on with its folder."""
        return {
            "input": [
                {"shard": shard.name, "rows": shard.rows, "sha256": shard.sha256}
                for shard in whole.shards
            ],
            "rows_per_part": rows_per_part,
            "criterion": {
                **self.criterion,
                # Of rows that ask for "pac" themselves.
                "default_delta": self.settings.default_delta,
                "min_label_mass": self.settings.min_label_mass,
            },
        }

    def check_store(self, *, machines: int) -> None:
        """Raises StartupError unless all machines can judge by the same calibration."""
        shared = self.settings.store_url.startswith(("redis://", "rediss://"))
        if machines > 1 and not shared and self.criterion["alpha"] is not None:
            raise StartupError(
                "on several machines the calibration has to be in a store that all of them reach: "
                "SCOPE_STORE_URL=redis://host:port/db (or judge with --no-alpha)"
            )


def judges_on(gpus: Sequence[int], *, of_each: int) -> int:
    """How many judges fit on machines with so many GPUs; one judge's are all of one machine.

    Raises:
        StartupError: None does.
    """
    judges = sum(on_machine // of_each for on_machine in gpus)
    if judges == 0:
        raise StartupError(
            f"no machine of the cluster has {of_each} GPUs, which SCOPE_TENSOR_PARALLEL asks for; "
            f"the largest has {max(gpus, default=0)}"
        )
    return judges


def _criterion(given: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    defaults = CriterionDefaults(
        settings.default_alpha, settings.default_guarantee, settings.default_delta
    )
    try:
        batch = JudgeBatchIn.model_validate({**given, "comparisons": []})
    except ValidationError as exc:
        raise invalid_request(exc.errors()) from None
    return asdict(batch.criterion(defaults))


def _everywhere(settings: Settings) -> Settings:
    """The settings with paths that mean the same in every process of a cluster."""
    changed: dict[str, Any] = {}
    for name in ("model", "tokenizer", "prompt_file"):
        value = getattr(settings, name)
        # A name of the hub may be a folder, too; "demo" never is.
        if value and str(value) != "demo" and Path(value).exists():
            changed[name] = type(value)(Path(value).absolute())
    path = settings.store_url.removeprefix("sqlite:///")
    if path != settings.store_url:
        changed["store_url"] = f"sqlite:///{Path(path).absolute()}"
    return settings.model_copy(update=changed)
