"""Open audits for another labelling tool, and the answers that it gives back."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.cli.console import CommandError
from app.cli.labelling.audit_requests import listed_audits
from app.cli.labelling.audits import drawn_pairs, open_audits
from app.cli.labelling.kept_pairs import kept_pairs
from app.cli.running.rows import check_output
from app.cli.service_client import ServiceClient
from app.files.labelling_tools import TOOLS, Tool, read_answers, settings_path, write_pairs
from app.service.labelling.answers import NONE
from app.service.labelling.checking import CheckedRows, Contradictions, checked
from app.service.labelling.pairs import BlindPair
from app.service.labelling.tickets import AuditRow, audit_row, comparison_id


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenPairs:
    """Pairs whose audits are open.

    Args:
        pairs: The pairs, oldest draws first.
        told: A sentence about the open audits that are not among them; "" if there are none.
    """

    pairs: Sequence[BlindPair]
    told: str


def given_tool(name: str) -> Tool:
    """The tool of a name.

    Raises:
        CommandError: The tool does not exist.
    """
    for known, tool in TOOLS.items():
        if name == known:
            return tool
    raise CommandError(f"--to must be {' or '.join(TOOLS)}, got {name!r}")


def check_tool_output(out: Path, tool: Tool, files: Sequence[Path], *, overwrite: bool) -> None:
    """Refuses files that cannot or must not be written.

    Raises:
        CommandError: The file of the pairs or that of the settings is refused.
    """
    if not out.name.endswith(".json"):
        raise CommandError(f"--out {out} must end in .json, which {tool.title} imports")
    check_output(out, files, overwrite=overwrite)
    beside = settings_path(out, tool)
    if beside.exists() and not (overwrite and beside.is_file()):
        raise CommandError(f"{beside} already exists: name another --out, or give --overwrite")


def open_pairs(
    service: ServiceClient, files: Sequence[Path], *, name: str | None, seed: int
) -> OpenPairs:
    """The pairs whose audits are open, in the order of the draws.

    Args:
        service: The service.
        files: Files of drawn pairs; none for the texts that the service keeps.
        name: Only audits of this calibration set; None for all sets.
        seed: Decides for each pair which response is on the left.

    Raises:
        CommandError: The service does not answer for too long, or there is nothing to label.
        InvalidRequestError: A file cannot be read, or has something else.
    """
    return _of_files(service, files, name, seed) if files else _of_service(service, name, seed)


def _of_service(service: ServiceClient, name: str | None, seed: int) -> OpenPairs:
    kept = kept_pairs(service, name, seed)
    kept.check()
    if not kept.pairs:
        raise CommandError("no audit is open: there is nothing to label")
    return OpenPairs(pairs=kept.pairs, told=kept.told)


def _of_files(
    service: ServiceClient, files: Sequence[Path], name: str | None, seed: int
) -> OpenPairs:
    pairs = {pair.key: pair for pair in drawn_pairs(files, seed)}
    ids = open_audits(service, list(pairs.values()), name)
    known = [pairs[each] for each in ids if each in pairs]
    if not known:
        raise CommandError(
            f"none of the {len(pairs)} pairs has an open audit: there is nothing to label"
        )
    absent = len(ids) - len(known)
    told = f"{absent} open audits are not in these files." if absent else ""
    return OpenPairs(pairs=known, told=told)


def export_pairs(out: Path, pairs: Sequence[BlindPair], tool: Tool) -> None:
    """Writes pairs and settings for a tool.

    Raises:
        CommandError: A file cannot be written.
    """
    try:
        write_pairs(out, pairs, tool)
    except OSError as exc:
        raise CommandError(f"{out} cannot be written: {exc.strerror}") from None


def checked_answers(
    service: ServiceClient, files: Sequence[Path], contradictions: Contradictions
) -> CheckedRows[AuditRow]:
    """The answers in files of a tool after the check, in the order of the draws.

    Raises:
        CommandError: The service does not answer for too long.
        InvalidRequestError: A file cannot be read, or is of no tool. Or people contradict each
            other, and that is to be refused.
    """
    answers = [answer for path in files for answer in read_answers(path)]
    # The last answer of a pair is that of the last time; without times, that of the last row.
    rows = [audit_row(answer) for answer in sorted(answers, key=lambda answer: answer.at)]
    audits = list(listed_audits(service))
    places = {comparison_id(audit.id): place for place, audit in enumerate(audits)}
    expired = {comparison_id(audit.id) for audit in audits if audit.status == "expired"}
    known = [_known(row, places.keys(), expired) for row in rows]
    found = checked(known, contradictions)
    return replace(found, labelled=sorted(found.labelled, key=lambda row: places[row.name or ""]))


def _known(row: AuditRow, audits: Collection[str], expired: Collection[str]) -> AuditRow:
    if row.problem is not None or row.name is None:
        return row
    if row.name not in audits:
        return replace(row, problem="the service has no such audit, or the key may not use its set")
    return replace(row, problem="the audit has expired") if row.name in expired else row


def label_of(row: AuditRow) -> dict[str, Any]:
    """A row as POST /audits/labels takes it."""
    if row.reason is not None:
        return {"id": row.audit, "label": NONE, "reason": row.reason}
    return {"id": row.audit, "label": row.label}
