"""`scope-judge pairs`: makes preference pairs from prompts with several responses."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.connection import DEFAULT_URL, PATIENCE_S, Patience, Url, connected
from app.cli.console import CommandError, say
from app.cli.progress import progress_bar
from app.cli.running import options
from app.cli.running.rows import check_output, write_all
from app.cli.summary import REASONS, infeasible_in_words
from app.core.errors import InvalidComparisonError, InvalidRequestError
from app.core.messages import question_of, response_of
from app.files.reading import FileRow, files_of, read_rows
from app.files.shapes import listed

# The help of a command needs its options only: functions import the client.
if TYPE_CHECKING:
    from scope_judge import ItemError, Rewards
    from scope_judge.records import Problem

_FAILED = "no judgment"


def pairs(
    files: options.Inputs,
    out: Annotated[Path, typer.Option(help="File for the pairs; its extension sets the format.")],
    responses: Annotated[
        str, typer.Option(help="Column with the list of responses; in a table, a list in JSON.")
    ] = "responses",
    prompt: Annotated[str, typer.Option(help="Column with the prompt.")] = "prompt",
    opponents: Annotated[
        int | None,
        typer.Option(min=1, help="Opponents of each response.  [default: all others]"),
    ] = None,
    alpha: options.Alpha = None,
    guarantee: options.Guarantee = None,
    delta: options.Delta = None,
    calibration: options.CalibrationSet = None,
    encoding: options.Encoding = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace --out.")] = False,
    patience: Patience = PATIENCE_S,
    url: Url = DEFAULT_URL,
) -> None:
    """Make preference pairs for DPO from prompts with several responses.

    Of each prompt's accepted verdicts, the one between the responses with the largest difference
    of rewards becomes a pair: prompt, chosen, rejected. Prompts without one are counted. If no
    prompt has one, nothing is written and the exit status is 1.
    """
    from scope_judge import Rewards

    given = {"alpha": alpha, "guarantee": guarantee, "delta": delta}
    criterion = options.given_criterion({**given, "calibration": calibration})
    paths = files_of(files)
    check_output(out, paths, overwrite=overwrite)
    rows = [row for path in paths for row in read_rows(path, encoding)]
    groups = [_group(row, prompt, responses) for row in rows]
    made: list[dict[str, Any]] = []
    left_out = Counter[str]()
    first_of: dict[str, str] = {}
    rule: dict[str, Any] = {**criterion, "opponents": opponents or "all", "comparisons": True}
    with connected(url, patience_s=patience) as client, progress_bar() as bar:
        shown = bar.add_task("judging prompts", total=len(groups))
        answers = client.rewards_many(groups, **rule)
        for row, (question, texts), found in zip(rows, groups, answers, strict=True):
            bar.advance(shown)
            if (problem := _problem(found)) is not None:
                reason = f"{_FAILED} ({problem.code})"
                first_of.setdefault(reason, f", as in {row.place}: {problem.detail}")
                left_out[reason] += 1
                continue
            assert isinstance(found, Rewards)
            basis = found.basis
            if "infeasible" in found.reasons and basis and basis.alpha and basis.calibration:
                # So it is for every other prompt, too.
                used = basis.calibration
                raise CommandError(infeasible_in_words(basis.alpha, basis.delta, used.name, used.n))
            best = found.best_pair
            if best is None:
                left_out[_reason(found)] += 1
                continue
            chosen, rejected = best
            made.append(
                {
                    "prompt": question,
                    "chosen": _completion(texts[chosen], question),
                    "rejected": _completion(texts[rejected], question),
                    "chosen_reward": found.rewards[chosen],
                    "rejected_reward": found.rewards[rejected],
                }
            )
    say((f"{len(made):,} of {len(rows):,} prompts", "bold"), " have a pair")
    for reason, count in left_out.most_common():
        say(f"{count:,} without: {reason}{first_of.get(reason, '')}")
    if not made:
        raise CommandError(f"no prompt has a pair, and {out} was not written")
    write_all(out.resolve(), made)
    say(
        f"They are in {out}. The promise is about all accepted verdicts on pairs like the labeled "
        "ones, not about these, which were chosen."
    )
    if failed := sum(count for reason, count in left_out.items() if reason.startswith(_FAILED)):
        raise CommandError(f"{failed:,} prompts could not be judged")


def _group(row: FileRow, prompt: str, responses: str) -> tuple[Any, list[Any]]:
    """The prompt and the responses of a row; raises InvalidRequestError if it has none."""
    absent = [name for name in (prompt, responses) if name not in row.fields]
    if absent:
        raise InvalidRequestError(
            f"{row.place}: {' and '.join(absent)} missing; there is {listed(row.fields)}: name the "
            "columns with --prompt and --responses"
        )
    if row.fields[prompt] is None:
        raise InvalidRequestError(f"{row.place}: {prompt} is empty")
    texts = row.fields[responses]
    if isinstance(texts, str):
        try:
            texts = json.loads(texts)
        except ValueError:
            texts = None
    if not isinstance(texts, list) or not texts:
        raise InvalidRequestError(
            f"{row.place}: {responses} is no list of responses, as in JSON: "
            '["the first", "the second"]'
        )
    try:
        question = question_of(row.fields[prompt], prompt)
        for text in texts:
            response_of(text, responses)
    except InvalidComparisonError as exc:
        raise InvalidRequestError(f"{row.place}: {exc.detail}") from None
    return question, texts


def _completion(response: Any, prompt: Any) -> Any:
    """The response as TRL reads it: messages if the prompt is messages."""
    if isinstance(prompt, str) or isinstance(response, list):
        return response
    is_text = isinstance(response, str)
    return [{"role": "assistant", "content": response} if is_text else response]


def _problem(found: "Rewards | ItemError") -> "Problem | None":
    """Why a prompt could not be judged at all."""
    from scope_judge import ItemError

    if isinstance(found, ItemError):
        return found.error
    return found.errors[0].error if found.errors and not any(found.accepted) else None


def _reason(found: "Rewards") -> str:
    if any(found.accepted):
        return "accepted verdicts that contradict the rewards, or tie"
    if "suspended" in found.reasons:
        return REASONS["suspended"]
    if not any(found.compared):
        return "no two different responses"
    return "no accepted verdict: a larger alpha accepts more"
