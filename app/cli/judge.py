"""`scope-judge judge` and `calibrate`: files to a running service and back."""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.markup import escape

from app.cli.bulk import judge_in_bulk
from app.cli.console import console, failure, print_thresholds, progress_bar
from app.cli.result_file import result_file, would_overwrite
from app.wire.answers import ItemErrorOut, JudgmentOut

DEFAULT_URL = "http://127.0.0.1:8000"
_JUDGE_FIELDS = (
    "id",
    "question",
    "response_a",
    "response_b",
    "alpha",
    "guarantee",
    "delta",
    "calibration",
)
_EXAMPLE_FIELDS = ("question", "response_a", "response_b", "label", "id")
_NOT_KEPT = {*_JUDGE_FIELDS, *JudgmentOut.model_fields, *ItemErrorOut.model_fields}
# In the environment only: an option would stand in the list of processes, for all to see.
_KEY_VARIABLE = "SCOPE_API_KEY"
_TRIES = 6
_TIMEOUT_S = 600.0

Url = Annotated[str, typer.Option(help="Address of the running service.")]


def judge(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="JSONL with question, response_a, response_b; - is stdin. With --ray: any number "
            "of JSONL or Parquet files, or folders of them.",
        ),
    ] = None,
    question: Annotated[str | None, typer.Option(help="Judge one pair: its question,")] = None,
    a: Annotated[str | None, typer.Option(help="response A,")] = None,
    b: Annotated[str | None, typer.Option(help="and response B.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Instead of the service's default.")] = None,
    no_alpha: Annotated[bool, typer.Option(help="Answer always, and promise nothing.")] = False,
    guarantee: Annotated[str | None, typer.Option(help="marginal or pac.")] = None,
    delta: Annotated[float | None, typer.Option(help="With pac.")] = None,
    calibration: Annotated[str | None, typer.Option(help="Name of the calibration set.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="JSONL to write, replaced once all is judged; stdout if left out. With --ray: a "
            "folder."
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Comparisons in one request, 100; with --ray in one part, 1000."),
    ] = None,
    url: Url = DEFAULT_URL,
    ray: Annotated[
        bool, typer.Option("--ray", help="Judge here, with a judge of its own, on a Ray cluster.")
    ] = False,
    address: Annotated[
        str | None, typer.Option(help="With --ray: of the cluster; one is made if left out.")
    ] = None,
    replicas: Annotated[
        int | None, typer.Option(min=1, help="With --ray: judges; as many as fit if left out.")
    ] = None,
) -> None:
    """Judge one pair, or a JSONL file, with a running service; or with --ray files in bulk.

    Each output line is the input's further fields with the judgment, or with an `error`; the exit
    status is 1 if any line has an error. A line's own id, alpha, guarantee, delta and calibration
    go before the options. A line that is no JSON object stops it before anything is judged.

    With --ray no service is asked: SCOPE_* variables say which judge is loaded. What is done is
    kept: stopped in the middle, the same command goes on with the rest.
    """
    if no_alpha and alpha is not None:
        raise failure("give --alpha or --no-alpha, not both")
    given = {"alpha": alpha, "guarantee": guarantee, "delta": delta, "calibration": calibration}
    criterion: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if no_alpha:
        criterion["alpha"] = None
    if ray:
        if not files or (question, a, b) != (None, None, None) or url != DEFAULT_URL:
            raise failure("--ray takes files or folders, and no --question, --a, --b or --url")
        judge_in_bulk(files, criterion, out, batch_size, address=address, replicas=replicas)
        return
    if address is not None or replicas is not None:
        raise failure("--address and --replicas need --ray")
    lines = _given_lines(files or [], out, question, a, b)
    _judge_by_service(lines, criterion, out, batch_size or 100, url=url)


def _given_lines(
    files: list[Path], out: Path | None, question: str | None, a: str | None, b: str | None
) -> list[dict[str, Any]]:
    if len(files) + (question is not None) != 1:
        raise failure("give either a JSONL file (or -), or --question with --a and --b")
    if files:
        if out is not None and would_overwrite(files[0], out):
            raise failure(f"--out {out} would overwrite the file that is judged; name another one")
        return _read_jsonl(files[0])
    if a is None or b is None:
        raise failure("--question needs --a and --b")
    return [{"question": question, "response_a": a, "response_b": b}]


def _judge_by_service(
    lines: list[dict[str, Any]],
    criterion: dict[str, Any],
    out: Path | None,
    batch_size: int,
    *,
    url: str,
) -> None:
    failed = 0
    with (
        _client(url) as client,
        nullcontext(sys.stdout) if out is None else result_file(out) as output,
        progress_bar() as progress,
    ):
        task = progress.add_task("judging", total=len(lines))
        for some in _batches(lines, min(batch_size, client.max_batch)):
            items = [{k: line[k] for k in _JUDGE_FIELDS if k in line} for line in some]
            answer = _post(client, "/judge/batch", {**criterion, "comparisons": items})
            for line, result in zip(some, answer["results"], strict=True):
                # A judged file may be judged again: nothing of an earlier result stays.
                extras = {k: v for k, v in line.items() if k not in _NOT_KEPT}
                failed += "error" in result
                print(_json_line({**extras, **result}), file=output)
            # A run that is killed leaves every result that it has received.
            output.flush()
            progress.advance(task, len(some))
    if failed:
        raise failure(f"{failed} of {len(lines)} comparisons got no judgment; see their `error`")


def calibrate(
    file: Annotated[
        Path, typer.Argument(help="JSONL with question, response_a, response_b, label; - is stdin.")
    ],
    name: Annotated[str, typer.Option(help="Name of the calibration set.")] = "default",
    label_noise: Annotated[
        float | None, typer.Option(help="Probability that a label is flipped, of the whole set.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples in one request.")] = 100,
    url: Url = DEFAULT_URL,
) -> None:
    """Add labelled pairs to a calibration set of a running service.

    Stopped in the middle, it can be run again: an example that is there is not counted twice.
    """
    lines = _read_jsonl(file)
    counts = dict.fromkeys(("added", "updated", "ties", "removed", "failed"), 0)
    body: dict[str, Any] = {"calibration": name}
    if label_noise is not None:
        body["label_noise"] = label_noise
    answer: dict[str, Any] = {}
    with _client(url) as client, progress_bar() as progress:
        task = progress.add_task("calibrating", total=len(lines))
        done = 0
        # An empty file still sends one request: it may change the label noise.
        for some in _batches(lines, min(batch_size, client.max_batch)) if lines else [[]]:
            examples = [{k: line[k] for k in _EXAMPLE_FIELDS if k in line} for line in some]
            answer = _post(client, "/calibrate", {**body, "examples": examples})
            for count in counts:
                counts[count] += answer[count]
            for entry in answer["errors"][:3]:
                place = f"example {done + entry['index'] + 1}"
                detail = escape(entry["error"]["detail"])
                progress.console.print(f"[yellow]not added:[/] {place}: {detail}")
            done += len(some)
            progress.update(task, completed=done)
    print_thresholds(name, answer["version"], answer["n"], answer["thresholds"])
    console.print(", ".join(f"{count} {value}" for count, value in counts.items()))
    if counts["failed"]:
        raise typer.Exit(1)


def _read_jsonl(file: Path) -> list[dict[str, Any]]:
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise failure(f"{file} cannot be read: {exc}") from None
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise failure(f"{file}, line {number}: this is no JSON object")
        rows.append(row)
    return rows


def _json_line(row: dict[str, Any]) -> str:
    # Half of a surrogate pair has no UTF-8 and goes out as the escape that it came in as.
    text = json.dumps(row, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _batches(rows: list[dict[str, Any]], size: int) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


class _Client(httpx.Client):
    """A client that knows how many comparisons the service takes at once."""

    max_batch = sys.maxsize


@contextmanager
def _client(url: str) -> Iterator[_Client]:
    """A client of a service that answers and takes the key, if it wants one.

    Nothing is opened or overwritten before it does.
    """
    try:
        client = _Client(base_url=url, timeout=_TIMEOUT_S, headers=_key_header())
    except httpx.InvalidURL as exc:
        raise failure(f"--url {url} is no address: {exc}") from None
    with client:
        try:
            response = client.get("/info")
        except httpx.HTTPError as exc:
            raise _no_answer(url, exc) from None
        if response.status_code == 401:
            raise _no_key(url)
        # What is no answer of ours is told where it matters, by the first request that does work.
        with suppress(ValueError, KeyError, TypeError):
            client.max_batch = int(response.json()["limits"]["max_batch"])
        yield client


def _key_header() -> dict[str, str]:
    key = os.environ.get(_KEY_VARIABLE, "").strip()
    if not key.isascii() or not key.isprintable():
        raise failure(f"{_KEY_VARIABLE} holds characters that no key has")
    return {"Authorization": f"Bearer {key}"} if key else {}


def _no_key(url: object) -> typer.Exit:
    if os.environ.get(_KEY_VARIABLE, "").strip():
        return failure(f"unauthenticated: {url} does not know the key in {_KEY_VARIABLE}")
    return failure(
        f"unauthenticated: {url} wants a key: put it into {_KEY_VARIABLE}. "
        "Whoever runs the service makes one with `scope-judge keys add`"
    )


def _no_answer(url: object, exc: httpx.HTTPError) -> typer.Exit:
    if isinstance(exc, httpx.UnsupportedProtocol):
        return failure(f"--url {url} needs http:// or https:// before it")
    return failure(
        f"no answer from {url} ({type(exc).__name__}): start the service with "
        "`scope-judge serve`, or give its address with --url"
    )


def _post(client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Posts, waits as long as the service asks where it is busy, and gives up with its words."""
    for attempt in range(_TRIES):
        try:
            # ASCII with NaN allowed: what is wrong in a line is for the service to say.
            response = client.post(
                path, content=json.dumps(body), headers={"Content-Type": "application/json"}
            )
        except httpx.HTTPError as exc:
            raise _no_answer(client.base_url, exc) from None
        if response.status_code not in (429, 503) or attempt == _TRIES - 1:
            break
        time.sleep(float(response.headers.get("Retry-After", 1)))
    if response.status_code == 401:
        raise _no_key(client.base_url)
    try:
        answer: dict[str, Any] = response.json()
    except ValueError:
        raise failure(f"{client.base_url} answered {response.status_code} and no JSON") from None
    if response.is_error:
        raise failure(f"{answer.get('code', response.status_code)}: {answer.get('detail', '')}")
    return answer
