"""The demo judge on real vLLM answers the examples of the pages as the pages show."""

import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from decimal import Decimal
from io import StringIO
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from tests.integration.processes.server import Server
from tests.unit.docs import markdown
from tests.unit.docs.markdown import ROOT

pytestmark = pytest.mark.vllm

# Routes that judge; the others change a set that all tests share.
_JUDGES = ("/judge", "/rewards/", "/v1/")
_CURL = re.compile(
    r"curl (?:http://)?localhost:8000(/\S+)[^']*(?:'Content-Type[^']*'[^']*)'(\{.*?\})'", re.DOTALL
)
# Fields of a request that a page shows as JSON -> the route of the trainer that sends it.
_ROUTES = {
    frozenset(("query", "prompts", "labels")): "/rewards/openrlhf",
    frozenset(("groups", "opponents", "alpha")): "/rewards/groups",
}
# Python that changes a set does not run.
_CHANGES = re.compile(r"\.(?:calibrate|calibration|pool|audits|label_audits|absorb)\(")
# An earlier request for the same comparison changes these.
_VARY = frozenset(("cached", "usage"))
_SHOWN = re.compile(r"\bprint\(.*\)\s+# (.+)$")


class Example(NamedTuple):
    """A request on a page, and the answer that the page shows.

    Args:
        place: Page and line.
        path: Path of the route.
        body: The request.
        shown: The answer, with decimal numbers as they are written; None if the page shows none.
    """

    place: str
    path: str
    body: dict[str, Any]
    shown: Any


SUM = {"question": "What is 48 + 27?", "response_a": "75", "response_b": "76"}
TULIP = {"question": "Write this word backwards: tulip", "reference": "pilut"}
# Page, words of a sentence about an answer, and the route, request and answer that it means.
CLAIMS = [
    (
        *("README.md", "Asked for 48 + 27 with the answers 75 and 76"),
        *("/judge", SUM, {"verdict": "abstain", "reason": "uncertain"}),
    ),
    (
        *("docs/guides/rewards.md", "as both are here"),
        *("/rewards/reference", {**TULIP, "responses": ["piltu", "tulip"]}, {"rewards": [-1, -1]}),
    ),
]


def examples() -> Iterator[Example]:
    """The requests of all pages to routes that judge."""
    for file in markdown.files():
        blocks = list(markdown.blocks(file.read_text(encoding="utf-8")))
        for block, after in pairwise([*blocks, markdown.Block(0, "", "", "")]):
            for path, body in requests_in(block):
                is_answer = after.section == block.section and after.language == "json"
                place = f"{file.relative_to(ROOT)}:{block.number}"
                yield Example(place, path, body, parsed(after.text) if is_answer else None)


def requests_in(block: markdown.Block) -> Iterator[tuple[str, dict[str, Any]]]:
    """The requests of a command or of JSON: path and body."""
    if block.language == "bash":
        for path, body in _CURL.findall(block.text):
            if path.startswith(_JUDGES):
                yield path, json.loads(body)
    elif block.language == "json":
        body = parsed(block.text)
        route = _ROUTES.get(frozenset(body)) if isinstance(body, dict) else None
        if route is not None:
            yield route, json.loads(block.text)


def parsed(text: str) -> Any:
    """JSON with its decimal numbers as they are written; None if it is shortened to no JSON."""
    try:
        return json.loads(text, parse_float=Decimal)
    except ValueError:
        return None


def differences(shown: Any, answer: Any, at: str = "") -> Iterator[str]:
    """Yields each part of a shown answer that the answer has not, to the last shown digit."""
    if isinstance(shown, dict):
        for name, value in shown.items():
            if name in _VARY:
                continue
            inside = answer.get(name, "nothing") if isinstance(answer, dict) else "nothing"
            yield from differences(value, inside, f"{at}.{name}")
    elif isinstance(shown, list) and isinstance(answer, list) and len(shown) == len(answer):
        for i, (value, inside) in enumerate(zip(shown, answer, strict=True)):
            yield from differences(value, inside, f"{at}[{i}]")
    elif isinstance(shown, Decimal) and isinstance(answer, int | float):
        exponent = shown.as_tuple().exponent
        assert isinstance(exponent, int)
        # The page may cut where others round, and vLLM differs by the machine in later digits.
        if abs(Decimal(answer) - shown) > Decimal(1).scaleb(exponent):
            yield f"{at} is {answer}, and the page shows {shown}"
    elif shown != answer:
        yield f"{at} is {answer!r}, and the page shows {shown!r}"


SHOWN = [each for each in examples() if each.shown is not None]
assert len(SHOWN) >= 3, "no example would be no test, if blocks were written or read otherwise"


@pytest.mark.parametrize("example", SHOWN, ids=lambda each: each.place)
def test_a_request_of_a_page_gets_the_answer_that_the_page_shows(
    example: Example, demo_server: Server
) -> None:
    answer = demo_server.client.post(example.path, json=example.body)
    assert answer.status_code == 200, answer.text
    assert list(differences(example.shown, answer.json())) == []


@pytest.mark.parametrize(("page", "words", "path", "body", "shown"), CLAIMS)
def test_a_sentence_of_a_page_about_an_answer_is_true(
    page: str,
    words: str,
    path: str,
    body: dict[str, Any],
    shown: dict[str, Any],
    demo_server: Server,
) -> None:
    assert words in " ".join((ROOT / page).read_text(encoding="utf-8").split())
    answer = demo_server.client.post(path, json=body)
    assert list(differences(shown, answer.json())) == []


@pytest.mark.parametrize("page", ["docs/guides/client.md", "clients/python/README.md"])
def test_the_python_of_a_page_prints_the_comments_beside_it(page: str, demo_server: Server) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    compared, url = 0, demo_server.url
    for block in markdown.blocks((ROOT / page).read_text(encoding="utf-8")):
        if block.language != "python" or _CHANGES.search(block.text):
            continue
        printed = StringIO()
        with redirect_stdout(printed):
            exec(block.text.replace("http://127.0.0.1:8000", url), names)
        shown = [found[1] for line in block.text.splitlines() if (found := _SHOWN.search(line))]
        compared += len(shown)
        assert [line for line in shown if line not in printed.getvalue().splitlines()] == []
    assert compared, "a page without a shown line tests nothing"
    if "client" in names:
        names["client"].close()
