"""JSON answers about the trail of a calibration set."""

from app.core.clusters import ClusterRule
from app.service.calibration.trail import Change
from app.wire.answers import Out


class VersionOut(Out):
    """One change in the trail of a calibration set.

    `action` is "calibrate", "pool", "import", "absorb", "rollback" or "delete"; a later release may
    add others. `by` is the name of the key that sent the request. `batch_digest` is the SHA-256 of
    the labelled batch; a pool, an import or an absorption has none. A deletion also takes a version
    number; its `write_id`, `label_noise` and `thresholds_after` are null. Thresholds are
    "guarantee:alpha" -> nats, null if infeasible, without those that depend on missing labels. They
    were computed with `min_label_mass`, the setting of the service that made the change.
    """

    version: int
    write_id: str | None
    action: str
    at: str
    by: str
    batch_digest: str | None
    added: int
    updated: int
    ties: int
    removed: int | None
    failed: int
    n: int
    label_noise: float | None
    min_label_mass: float | None
    judge: str | None
    fingerprint: str | None
    rolled_back_to: int | None
    thresholds_before: dict[str, float | None] | None
    thresholds_after: dict[str, float | None] | None
    unlabelled: int
    clusters: ClusterRule

    @classmethod
    def of(cls, change: Change) -> "VersionOut":
        """Converts a change, which has the same fields."""
        return cls(**{field: getattr(change, field) for field in cls.model_fields})


class VersionsOut(Out):
    """The changes of a calibration set, newest first; unreadable changes are left out."""

    name: str
    versions: list[VersionOut]

    @classmethod
    def of(cls, name: str, changes: list[Change]) -> "VersionsOut":
        """Converts one page of a trail."""
        return cls(name=name, versions=[VersionOut.of(change) for change in changes])
