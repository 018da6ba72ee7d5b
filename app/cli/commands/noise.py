"""`scope-judge noise`: a second person labels sure pairs of a set again, to measure label noise.

The number of pairs is fixed before the first of them is shown. Each answer is kept in a journal
beside the file, so an interrupted run resumes where it stopped.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.console import CommandError, say
from app.cli.effects import (
    EvenIfInfeasible,
    Yes,
    ask,
    note_other_change,
    show_change,
    show_thresholds,
)
from app.cli.labelled_rows import checked_pairs
from app.cli.labelling.terminal import check_terminal
from app.cli.running.options import (
    ColumnMap,
    Encoding,
    OnContradictions,
    ShapeName,
    given_contradictions,
    given_format,
)
from app.cli.running.run import journal_path
from app.cli.service_client import (
    DEFAULT_URL,
    PATIENCE_S,
    Patience,
    ServiceClient,
    Url,
    connected,
    read,
)
from app.cli.set_transfer import set_path, set_rows
from app.cli.stopping import resumable
from app.core.fingerprint import example_digest
from app.files.journal import Journal
from app.files.labelled import FilePair
from app.service.labelling.answers import Answers
from app.service.labelling.pairs import BlindPair, drawn, left_side

# The help of the command needs its options only: functions import the modules that need numpy.
if TYPE_CHECKING:
    from app.core.noise import SecondLabels

# A noise of 10% is then known to be above 6% in half of the cases.
_USUAL_PAIRS = 100
# With fewer, the noise is known to be above nothing.
_FEWEST = 10


def noise(
    files: Annotated[
        list[Path],
        typer.Argument(help="Files with the labeled pairs of the set."),
    ],
    name: Annotated[str, typer.Option(help="Name of the calibration set.")],
    pairs: Annotated[
        int,
        typer.Option(min=_FEWEST, help="Number of pairs. Choose it before you start."),
    ] = _USUAL_PAIRS,
    seed: Annotated[int, typer.Option(help="Seed for the drawn pairs and their sides.")] = 0,
    shape: ShapeName = None,
    columns: ColumnMap = None,
    encoding: Encoding = None,
    contradictions: OnContradictions = "drop",
    overwrite: Annotated[bool, typer.Option(help="Discard the answers so far.")] = False,
    even_if_infeasible: EvenIfInfeasible = False,
    yes: Yes = False,
    patience: Patience = PATIENCE_S,
    url: Url = DEFAULT_URL,
) -> None:
    """Measure a set's label noise: a second person labels some of its pairs again.

    Draws from the quarter of the pairs on which the judge is most certain, and shows them blind.
    At the end, shows the effect on the thresholds and asks.
    """
    check_terminal(files, otherwise='POST /calibrations/{name}/examples takes "second_labels"')
    form = given_format(shape, columns, encoding)
    rows = checked_pairs(files, form, given_contradictions(contradictions))
    kept = journal_path(files, f"noise-{name}.journal")
    with connected(url, patience_s=patience) as service:
        first = _first_labels(rows.labelled, service.fingerprint)
        settings = {"judge": service.fingerprint, "calibration": name, "seed": seed, "pairs": pairs}
        with Journal(kept, settings, replace=overwrite) as journal:
            blind = [
                BlindPair(key=digest, fields=row.fields, left=left_side(seed + 1, digest))
                for digest, row in first.items()
            ]
            answers = Answers(journal, blind)
            with resumable(f"your answers are in {kept}; rerun the command to resume"):
                if not answers.pooled:
                    _draw(service, name, answers, first, most=pairs, seed=seed)
                found = _second_labels(answers, first)
        _set(service, name, found, even_if_infeasible=even_if_infeasible, yes=yes)


def _first_labels(rows: Sequence[FilePair], fingerprint: str) -> Mapping[str, FilePair]:
    """Digest -> row of each pair of which the first person preferred a side."""
    return {
        example_digest(fingerprint, row.comparison): row
        for row in rows
        if row.comparison is not None and row.label in ("A", "B")
    }


def _draw(
    service: ServiceClient,
    name: str,
    answers: Answers,
    first: Mapping[str, FilePair],
    *,
    most: int,
    seed: int,
) -> None:
    """Draws the pairs, keeps which ones they are, and says what they can prove."""
    from app.core.noise import LabelNoiseBounds
    from app.service.labelling.second_labels import surest, uncertainties

    _, *examples = set_rows(service, name)
    labelled = {row["digest"]: row for row in examples if row["label"] in ("A", "B")}
    sure = surest(uncertainties(labelled))
    known = [
        digest
        for digest in sure
        if digest in first and first[digest].label == labelled[digest]["label"]
    ]
    if len(known) < min(most, len(sure)):
        say(
            f"{len(sure) - len(known)} of the {len(sure)} surest pairs of {name} are not in the "
            "files, or have another label there: they are not drawn."
        )
    chosen = drawn(known, most=most, seed=seed)
    if len(chosen) < _FEWEST:
        raise CommandError(
            f"{len(chosen)} pairs are too few: the surest quarter of {name} has {len(sure)} "
            "labelled pairs; give the files that the set was calibrated with, or label more"
        )
    answers.add_digests({digest: digest for digest in chosen})
    most_noise = LabelNoiseBounds.of(0, len(chosen)).high
    say(
        (f"{len(chosen)} of the {len(known)} surest pairs get a second label.", "bold"),
        f" If it agrees with the first on all of them, at most {most_noise:.1%} of the labels of "
        "sure pairs are wrong (95%).",
    )


def _second_labels(answers: Answers, first: Mapping[str, FilePair]) -> "SecondLabels":
    """Asks for the labels that are missing, and counts those that name the other side.

    A tie is not among them: a label noise above the real one would break the promise.
    """
    from app.cli.labelling.screen import PairScreen
    from app.core.noise import SecondLabels
    from app.service.labelling.second_labels import SecondSession

    session = SecondSession(answers)
    drawn_pairs = list(answers.pooled.values())
    session.ask([pair for pair in drawn_pairs if answers.label(pair) is None])
    try:
        if session.current is not None:
            PairScreen(session).run()
    except EOFError:
        # The terminal was closed: nobody reads a message.
        raise typer.Exit(1) from None
    missing = sum(answers.label(pair) is None for pair in drawn_pairs)
    if missing:
        say(
            f"{len(drawn_pairs) - missing} of {len(drawn_pairs)} pairs have a second label. "
            "Nothing follows before all have one: rerun the command to continue."
        )
        raise typer.Exit(0)
    return SecondLabels(
        pairs=len(drawn_pairs),
        disagreements=sum(
            answers.label(pair) not in (first[pair.key].label, "tie") for pair in drawn_pairs
        ),
    )


def _set(
    service: ServiceClient, name: str, found: "SecondLabels", *, even_if_infeasible: bool, yes: bool
) -> None:
    """Shows what the second labels prove and what that does to the set; asks, and sets it."""
    from app.cli.set_answers import Sets
    from app.core.noise import LabelNoiseBounds
    from scope_judge import CalibrationReport

    bounds = LabelNoiseBounds.of(found.disagreements, found.pairs)
    say(
        (
            f"The two people prefer different sides on {found.disagreements} of "
            f"{found.pairs} pairs.",
            "bold",
        ),
        f" At least {bounds.low:.1%} and at most {bounds.high:.1%} of the labels of sure pairs are "
        "wrong (95% each). The lower one is safe: with a label noise above the real one, more "
        "verdicts than alpha are wrong.",
    )
    path = set_path(name, "/examples")
    body: dict[str, Any] = {
        "fingerprint": service.fingerprint,
        "examples": [],
        "second_labels": {"pairs": found.pairs, "disagreements": found.disagreements},
        "even_if_infeasible": even_if_infeasible,
    }
    would = read(CalibrationReport, service.post(path, {**body, "dry_run": True}))
    sets = read(Sets, service.get("/calibrations")).calibrations
    before = next((one for one in sets if one.name == name), None)
    if before is not None and not would.effects:
        show_thresholds(before, would)
    show_change(name, would)
    ask(
        f"Give {name} the label noise {would.label_noise:.4f}?", yes=yes, otherwise="nothing is set"
    )
    with resumable(f"{name} may have changed already: look at `scope-judge sets versions {name}`"):
        made = read(CalibrationReport, service.change_once(path, body))
    note_other_change(name, shown=would.version, made=made.version)
    say((f"{name}, version {made.version}: label noise {made.label_noise:.4f}", "bold"))
