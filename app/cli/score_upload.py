"""Adds judged examples to a set of a running service, in as few versions as possible."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from app.cli.console import console
from app.cli.service_client import ServiceClient, written

# Room for the fields around the examples.
_RESERVED_BYTES = 1000


class Upload(NamedTuple):
    """The outcome of an upload.

    Args:
        answer: The last answer of the service: the set with its thresholds.
        counts: Numbers of added, updated, tied and removed examples.
    """

    answer: dict[str, Any]
    counts: Counter[str]


def set_path(name: str, below: str = "") -> str:
    """The path of a calibration set, or of a route below it."""
    return f"/calibrations/{quote(name, safe='')}{below}"


def upload(
    service: ServiceClient,
    name: str,
    examples: Sequence[Mapping[str, Any]],
    *,
    judge: str,
    fingerprint: str,
    label_noise: float | None,
    clusters: str | None = None,
) -> Upload:
    """Adds judged examples in one version, or in a few if they do not fit into one request.

    Args:
        service: The service.
        name: Name of the calibration set; a missing set is made.
        examples: Judged examples and ties, as POST /calibrations/{name}/examples takes them.
        judge: Name of the judge that scored them.
        fingerprint: Fingerprint of that judge.
        label_noise: Label noise of the whole set; None keeps the current one.
        clusters: How "pac" counts pairs of one question; None keeps the current rule.

    Raises:
        typer.Exit: The service does not answer for too long, or answers with an error.
    """
    common: dict[str, Any] = {"judge": judge, "fingerprint": fingerprint}
    if label_noise is not None:
        common["label_noise"] = label_noise
    if clusters is not None:
        common["clusters"] = clusters
    parts = list(_parts(examples, service.max_body_bytes - _RESERVED_BYTES))
    if len(parts) > 1:
        console.print(
            f"{len(examples)} examples are more than one request may hold "
            f"({service.max_body_bytes} bytes): they become {len(parts)} versions",
            highlight=False,
        )
    counts: Counter[str] = Counter()
    answer: dict[str, Any] = {}
    for part in parts:
        answer = service.post(set_path(name, "/examples"), {**common, "examples": part})
        counts.update({count: answer[count] for count in ("added", "updated", "ties", "removed")})
    return Upload(answer, counts)


def _parts(
    examples: Sequence[Mapping[str, Any]], most_bytes: int
) -> Iterator[Sequence[Mapping[str, Any]]]:
    start, size = 0, 0
    for end, example in enumerate(examples):
        # One more byte for the comma.
        needed = len(written(example)) + 1
        if size + needed > most_bytes and end > start:
            yield examples[start:end]
            start, size = end, 0
        size += needed
    yield examples[start:]
