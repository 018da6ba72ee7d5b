"""No name from outside steers the terminal, forges a line, or is taken for markup.

The names are those of columns, models, files, sets and judges, and the texts of a service's
answers. Every command prints them: a new one needs a row in `OUTPUTS`.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typer.testing import CliRunner, Result

from app.cli import COMMANDS, app, command
from app.cli import console as output
from app.stores.memory import MemoryStore
from tests.serving import application_of
from tests.unit.api.problems import examples
from tests.unit.cli.listening import listening
from tests.unit.ratings.arena import simulated, write

# A title for the terminal, a colour in one byte, an override of the order, markup of Rich with a
# link and a faulty end, the code of an emoji, half of a surrogate pair, and a line of its own.
STEERING = "\x1b]0;owned\x07\x9b31m\x7f\u202e\u2066[red]x[/red][/][link=http://x.y]z:warning:\ud800"
EVIL = f"{STEERING}<img src=x>\r\nFORGED\tline"
# A name of a file has no "/".
EVIL_FILE = EVIL.replace("/", "").replace("\ud800", "\udc80")
ALLOWED = frozenset("\n\t")
# Sequences with which Rich draws styles and a live line; the hostile texts have none of them.
DRAWN = re.compile(r"\x1b\[([\d;]*m|2K|1A|\?25[lh])|\r")
# Fields of answers that the commands compute with.
KEPT = frozenset(
    {
        "verdict",
        "preferred",
        "fingerprint",
        "label",
        "digest",
        "id",
        "at",
        "guarantee",
        "on_alarm",
        "default_guarantee",
        "code",
        "question",
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """The service and the files that the commands use.

    Args:
        url: Service whose answers have hostile texts.
        folder: A new folder.
        pairs: Labeled pairs with a hostile column, and a row that is none.
        judged: The same pairs with judgments.
        strange: Rows whose columns are all hostile.
        battles: Battles of models.
        judged_battles: Rows of `scope-judge battles`.
        keys: File of keys.
    """

    url: str
    folder: Path
    pairs: Path
    judged: Path
    strange: Path
    battles: Path
    judged_battles: Path
    keys: Path


class HostileAnswers:
    """An application whose JSON answers have hostile texts.

    Args:
        app: The application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one ASGI connection."""
        started: list[Message] = []
        body = b""

        async def changed(message: Message) -> None:
            nonlocal body
            if scope["type"] != "http":
                await send(message)
            elif message["type"] == "http.response.start":
                started.append(message)
            else:
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    await send({**started[0], "headers": []})
                    await send({"type": "http.response.body", "body": _hostile(body)})

        await self._app(scope, receive, changed)


def _hostile(body: bytes) -> bytes:
    return json.dumps(_changed(json.loads(body))).encode() if body else body


def _changed(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _changed(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_changed(each, key) for each in value]
    return value + EVIL if isinstance(value, str) and key not in KEPT else value


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("hostile")
    rows: list[dict[str, Any]] = [{**each, EVIL: EVIL} for each in examples(60)]
    rows.append({**rows[0], "response_b": True})
    service = application_of(store=MemoryStore())
    with listening(HostileAnswers(service)) as url:
        httpx.post(f"{url}/calibrate", json={"examples": examples(60)}).raise_for_status()
        httpx.post(
            f"{url}/calibrate", json={"calibration": "other", "examples": examples(3)}
        ).raise_for_status()
        pairs = write(folder / f"pairs{EVIL_FILE}.jsonl", rows)
        judged = folder / f"judged{EVIL_FILE}.jsonl"
        run("judge", pairs, "--out", judged, "--url", url)
        battles = [{**each, "model_a": f"a{EVIL}", "model_b": EVIL} for each in rows[:-1]]
        for each in battles:
            del each["label"]
        arena = simulated(battles=300).rows(judge=f"judge{EVIL}")
        for row in arena:
            row |= {side: row[side] + EVIL for side in ("model_a", "model_b")}
        yield World(
            url=url,
            folder=folder,
            pairs=pairs,
            judged=judged,
            strange=write(folder / f"strange{EVIL_FILE}.jsonl", [{EVIL: "x", f"other{EVIL}": "y"}]),
            battles=write(folder / f"battles{EVIL_FILE}.jsonl", battles),
            judged_battles=write(folder / f"arena{EVIL_FILE}.jsonl", arena),
            keys=folder / f"keys{EVIL_FILE}.json",
        )


def run(*arguments: object, **options: Any) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), **options)


def of(*arguments: object, **options: Any) -> str:
    result = run(*arguments, **options)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


# Command -> outputs, each of which has a hostile name.
OUTPUTS: dict[str, Callable[[World], list[str]]] = {
    "serve": lambda world: [of("serve", env={"SCOPE_API_KEYS_FILE": str(world.pairs)})],
    "fetch": lambda world: [of("fetch", env={"SCOPE_MODEL": f"{world.strange}"})],
    "check": lambda world: [
        of("check", "--url", world.url),
        of("check", "--calibration", EVIL_FILE, "--url", world.url),
    ],
    "judge": lambda world: [
        of("judge", world.strange, "--url", world.url),
        of("judge", world.pairs, "--url", world.url),
        of("judge", world.pairs, "--out", world.pairs),
        of("judge", world.pairs, "--alpha", "7", "--url", world.url),
    ],
    "filter": lambda world: [
        of("filter", world.strange, "--out", world.folder / "f.jsonl", "--url", world.url),
        of("filter", world.pairs, "--out", world.pairs, "--url", world.url),
    ],
    "pairs": lambda world: [
        of("pairs", world.strange, "--out", world.folder / "dpo.jsonl", "--url", world.url)
    ],
    "battles": lambda world: [
        of("battles", world.strange, "--out", world.folder / "b.jsonl", "--url", world.url),
        of(
            "battles",
            world.battles,
            "--overwrite",
            "--out",
            world.folder / f"b{EVIL_FILE}.jsonl",
            "--url",
            world.url,
        ),
    ],
    "cascade plan": lambda world: [of("cascade", "plan", world.strange, "--url", world.url)],
    "calibrate": lambda world: [
        of("calibrate", world.strange, "--url", world.url),
        of("calibrate", world.pairs, "--name", "new", "--url", world.url),
    ],
    "curve": lambda world: [
        of("curve", world.strange, "--url", world.url),
        of("curve", world.judged),
    ],
    "evaluate": lambda world: [
        of(
            "evaluate",
            "--from",
            world.judged,
            "--splits",
            "5",
            "--out",
            world.folder / f"e{EVIL_FILE}",
        ),
        of("evaluate", "--from", world.strange, "--splits", "5", "--out", world.folder / "e2"),
    ],
    "leaderboard": lambda world: [
        of(
            "leaderboard",
            world.judged_battles,
            "--rounds",
            "100",
            "--out",
            world.folder / f"board{EVIL_FILE}",
        ),
        of("leaderboard", world.strange, "--out", world.folder / "board"),
    ],
    "noise-check": lambda world: [
        of("noise-check", "--judge", world.strange, env={"SCOPE_ENGINE": "vllm"})
    ],
    "sets list": lambda world: [of("sets", "list", "--url", world.url)],
    "sets show": lambda world: [
        of("sets", "show", "other", "--url", world.url),
        of("sets", "show", "absent", "--url", world.url),
    ],
    "sets versions": lambda world: [of("sets", "versions", "other", "--url", world.url)],
    "sets rollback": lambda world: [of("sets", "rollback", EVIL_FILE, "1", "--url", world.url)],
    "sets delete": lambda world: [of("sets", "delete", EVIL_FILE, "--yes", "--url", world.url)],
    "sets export": lambda world: [
        of("sets", "export", "other", "--url", world.url),
        of("sets", "export", "other", "--out", world.folder / EVIL_FILE, "--url", world.url),
    ],
    "sets import": lambda world: [of("sets", "import", world.strange, "--url", world.url)],
    "audits status": lambda world: [of("audits", "status", EVIL_FILE, "--url", world.url)],
    "audits label": lambda world: [
        of("audits", "label", world.strange, "--yes", "--url", world.url),
    ],
    "audits close": lambda world: [
        of("audits", "close", "x", "--reason", EVIL_FILE, "--url", world.url)
    ],
    "audits absorb": lambda world: [
        of("audits", "absorb", EVIL_FILE, "--url", world.url),
    ],
    "audits resume": lambda world: [
        of("audits", "resume", "absent", "--reason", "new labels", "--url", world.url)
    ],
    "audits trail": lambda world: [of("audits", "trail", EVIL_FILE, "--url", world.url)],
    "backup": lambda world: [
        of("backup", world.pairs, "--store", "memory://"),
        of("backup", world.folder / "x", "--store", f"sqlite:///{world.folder}/{EVIL_FILE}"),
    ],
    "restore": lambda world: [
        of("restore", world.pairs, "--store", "memory://"),
        of("restore", world.folder / EVIL_FILE, "--store", "memory://"),
    ],
    "keys add": lambda world: [of("keys", "add", "a", "--file", world.keys)],
    "keys list": lambda world: [of("keys", "list", "--file", world.pairs)],
    "keys revoke": lambda world: [of("keys", "revoke", "none", "--file", world.keys)],
}


def every_command() -> list[str]:
    found = []
    for name in COMMANDS:
        within = getattr(command(name), "commands", None)
        found += [name] if within is None else [f"{name} {each}" for each in within]
    return found


def check(text: str) -> None:
    shown = DRAWN.sub("", text)
    steering = {char for char in shown if not char.isprintable() and char not in ALLOWED}
    assert not steering, ascii(shown)
    assert not re.search("^FORGED", shown, re.MULTILINE), ascii(shown)


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("name", every_command())
def test_a_command_prints_hostile_names_as_text(
    name: str, terminal: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    if terminal:
        monkeypatch.setenv("TTY_COMPATIBLE", "1")
        monkeypatch.setattr(output, "on_a_terminal", lambda: True)
    for text in OUTPUTS[name](world):
        check(text)
        # Neither is this test void, nor was the markup taken for markup, or the code for an emoji.
        found = re.sub(r"[\s│┃]", "", DRAWN.sub("", text))
        assert "owned" in found, ascii(text)
        assert "[red]x[" in found, ascii(text)
        assert ":warning:" in found, ascii(text)


@pytest.mark.parametrize("name", every_command())
def test_a_file_whose_name_is_taken_for_an_option_is_refused_as_text(name: str) -> None:
    check(of(*name.split(), f"--{EVIL_FILE}"))


@pytest.mark.parametrize(
    ("name", "page"),
    [
        pytest.param("leaderboard", f"board{EVIL_FILE}/leaderboard.html", id="leaderboard"),
        pytest.param("evaluate", f"e{EVIL_FILE}/report.md", id="evaluate"),
    ],
)
def test_a_page_shows_hostile_names_as_text(name: str, page: str, world: World) -> None:
    OUTPUTS[name](world)
    text = (world.folder / page).read_text(encoding="utf-8")
    assert not {char for char in text if not char.isprintable()} - ALLOWED
    assert "owned" in text
    assert "<img" not in text


def test_every_command_has_a_row() -> None:
    assert list(OUTPUTS) == every_command()


def test_rows_on_the_terminal_are_json_with_the_same_value(world: World) -> None:
    for line in of("judge", world.pairs, "--url", world.url).splitlines():
        if line.startswith("{"):
            assert json.loads(line)[EVIL] == EVIL
