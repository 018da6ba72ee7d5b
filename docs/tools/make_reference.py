"""Writes docs/reference/ from the code: settings, HTTP API, commands and error codes.

Usage: python docs/tools/make_reference.py. tests/unit/docs/test_reference.py compares the pages.
"""

import re
import sys
import textwrap
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from app.api.access import NEEDS
from app.api.application import create_application
from app.api.problems import STATUS
from app.cli import COMMANDS
from app.core import errors
from app.judging.services import Services
from app.settings import Settings
from docs.tools.http_examples import Example, examples, pretty

FOLDER = Path(__file__).parents[1] / "reference"
# The top of a page has the fields and options of so many sections.
_SHARED_BY = 2
# Objects in requests whose fields are not listed: messages, which the introduction explains, and
# closings, which a sentence explains.
_UNLISTED = {"TurnIn", "MessageIn", "AuditClosingIn"}
# A larger maximum says nothing.
_LARGEST_SHOWN = 10**9
# Route of one task -> the section about that task. `/docs` has the fields of such a route.
SHOWN_ELSEWHERE = {
    "POST /rewards/openrlhf": "../integrations/openrlhf.md",
    "POST /v1/systemone": "../integrations/decisions.md",
    "POST /v1/decisions": "../integrations/decisions.md",
    "POST /scores": "../guides/cascade.md#what-it-does",
    "POST /calibrations/{name}/cascade": "../guides/cascade.md#plan",
    "POST /calibrate/scores": "../guides/client.md#calibration",
    "GET /calibrations/{name}/examples": "../guides/sets.md#move-a-set",
    "POST /calibrations/{name}/examples": "../guides/sets.md#move-a-set",
}
# The fields of a criterion, which routes take together.
_CRITERION = ["`alpha`", "`guarantee`", "`delta`", "`calibration`"]
# Name and meaning of a field or an option.
Row = tuple[str, str]

# The setting that begins a group -> the group's heading.
SETTING_GROUPS = {
    "engine": "Judge",
    "openai_urls": "Servers of `openai` and `decisions`",
    "prompt_file": "Prompt",
    "escalate_url": "Cascade",
    "store_url": "Calibration store",
    "default_alpha": "Defaults of a judgment",
    "max_body_bytes": "Limits and deadlines",
    "drain_lag_s": "Shutdown",
    "api_keys_file": "Access",
    "host": "Network and log",
}

_IGNORED = "Ignored."
# Mark of a field; Markdown shows a star.
_REQUIRED = "\\*"

# The need of a route -> its wording on the page.
KEY_NEEDED = {
    "key": "Any key.",
    "any key": "Any key.",
    "calibrate or label": "Role `calibrate` or `label`.",
    "nothing": "No key.",
}


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; cells must not hold line ends."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (headings, *rows)]
    return "\n".join([lines[0], "|---" * len(headings) + "|", *lines[1:]]) + "\n"


def listing(rows: Iterable[Row]) -> str:
    """A Markdown list of names with their meanings, one a line."""
    return "".join(f"- {name}: {meaning}\n" for name, meaning in rows).replace("\\|", "|")


def page(title: str, introduction: str, *parts: str) -> str:
    """A whole page."""
    note = "<!-- Written by docs/tools/make_reference.py. Change the code, then run it again. -->"
    return "\n".join([f"# {title}\n", note + "\n", introduction.strip() + "\n", *parts])


def one_line(text: str | None) -> str:
    """A text in one line that is safe in a cell of a table."""
    return " ".join((text or "").split()).replace("|", "\\|")


# --- Settings


def settings_page() -> str:
    """Every setting with its default and its meaning."""
    groups: dict[str, list[tuple[str, str, str]]] = {}
    properties = Settings.model_json_schema()["properties"]
    for name, field in Settings.model_fields.items():
        if name in SETTING_GROUPS:
            heading = SETTING_GROUPS[name]
        default = "" if field.default in (None, "") else f"`{field.default}`"
        meaning = one_line(field.description)
        meaning += _values(properties[name], meaning)
        groups.setdefault(heading, []).append((f"`SCOPE_{name.upper()}`", default, meaning))
    introduction = """
Settings are environment variables, which `make serve NAME=value` also passes on. The service does
not start if a value is invalid or a `SCOPE_` variable is unknown. Empty means unset.
"""
    parts = [
        f"## {heading}\n\n" + table(("variable", "default", "meaning"), rows)
        for heading, rows in groups.items()
    ]
    return page("Settings", introduction, *parts)


# --- HTTP API


def document() -> dict[str, Any]:
    """The OpenAPI document of the service."""

    def never() -> AbstractAsyncContextManager[Services]:
        raise AssertionError("the document needs no services")

    settings = Settings(engine="scripted", store_url="memory://")
    return create_application(settings, never, keys=None).openapi()


def http_page() -> str:
    """Every route of the HTTP API with the fields of its request and an example.

    The schemas of the answers are left to `/docs`.
    """
    openapi = document()
    routes = [
        Route(method=method.upper(), path=path, operation=operation)
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    ]
    introduction = """
Requests and answers are JSON. If the service has a [key file](../guides/keys.md), send
`Authorization: Bearer KEY`. Open `/docs`, which also has the types and the fields of answers, on a
service without one, because a browser sends no key; `/openapi.json` is the schema. Errors are
[problems with a stable `code`](errors.md). In the examples, `...` stands for more items or fields.
Some routes have a link to their guide instead of fields.
"""
    schemas = openapi["components"]["schemas"]
    fields = {
        route.name: _fields_of(route, schemas)
        for route in routes
        if route.name not in SHOWN_ELSEWHERE
    }
    rows = ({each.row for each in of_route} for of_route in fields.values())
    repeated = _common_rows(rows, _SHARED_BY)
    shown = examples()
    sections = []
    for route in routes:
        need = NEEDS[route.method, route.path]
        begin, *more = route.paragraphs
        begin += f" {KEY_NEEDED.get(need, f'Role `{need}`.')}"
        if route.name in SHOWN_ELSEWHERE:
            begin += f" [Use]({SHOWN_ELSEWHERE[route.name]})."
            parts = [_paragraph(begin)]
        else:
            parts = [_paragraph(begin), *(f"{paragraph}\n" for paragraph in more)]
            parts += _objects(fields[route.name], repeated)
            if route.name in shown:
                parts.append(_shown(route, shown[route.name]))
        sections.append("\n".join([f"## {route.name}\n", *parts]))
    every = dict.fromkeys(each.row for each in chain(*fields.values()) if each.row in repeated)
    return page(
        "HTTP API",
        introduction,
        "## Common fields\n",
        _paragraph(
            "The sections below only name these fields. The *criterion* is "
            f"{', '.join(_CRITERION[:-1])} and {_CRITERION[-1]}. A *message* is an object with "
            "`role` (`system`, `user` or `assistant`) and `content`. Fields with "
            f"{_REQUIRED} are required."
        ),
        listing(every),
        *sections,
    )


def _common_rows(of_sections: Iterable[Iterable[Row]], least: int) -> set[Row]:
    """Returns the rows that at least so many sections share; of one name, the most frequent."""
    counted = Counter(chain(*of_sections))
    first = {row[0]: row for row, _ in reversed(counted.most_common())}
    return {row for row in first.values() if counted[row] >= least}


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """One operation of the OpenAPI document."""

    method: str
    path: str
    operation: dict[str, Any]

    @property
    def name(self) -> str:
        """Method and path."""
        return f"{self.method} {self.path}"

    @property
    def paragraphs(self) -> list[str]:
        """The description."""
        described: str = self.operation["description"]
        return described.split("\n\n")


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldRow:
    """A field of a request.

    Args:
        within: The list or object that has the field, such as `examples[]`; empty at the top.
        row: Name and meaning.
    """

    within: str = ""
    row: Row


def _fields_of(route: Route, schemas: dict[str, Any]) -> list[FieldRow]:
    """The parameters of the query, the fields of the body, and those of the objects in it."""
    fields = [
        FieldRow(row=_row(each["name"], each["required"], each["schema"], each["description"]))
        for each in route.operation.get("parameters", ())
        if each["in"] == "query"
    ]
    body = _body(route)
    if body is not None and body not in _UNLISTED:
        fields += [FieldRow(row=row) for row in _rows(schemas[body])]
        for name, about in schemas[body]["properties"].items():
            within = f"{name}[]" if "'array'" in str(about) else name
            for inner in _objects_in(about, schemas):
                fields += [FieldRow(within=within, row=row) for row in _rows(inner)]
    # Some routes take the same options in the query and in the body.
    return [each for each in dict.fromkeys(fields) if each.row[1] != _IGNORED]


def _objects_in(about: dict[str, Any], schemas: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the schemas of the objects in a field whose fields the page lists."""
    # A schema is a reference, or written out under its title, which ends in "In". Other titles are
    # those of fields: the title of `calibration` is the name of a record.
    for name in dict.fromkeys(re.findall(r"'(?:#/components/schemas/)?(\w+In)'", str(about))):
        if name in schemas and name not in _UNLISTED:
            yield schemas[name]


def _body(route: Route) -> str | None:
    """Name of the schema of the request's JSON body; None without one."""
    content = route.operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema")
    if schema is None:
        return None
    name: str = schema["$ref"].rpartition("/")[2] if "$ref" in schema else schema["title"]
    return name


def _objects(fields: Sequence[FieldRow], repeated: Container[Row]) -> Iterator[str]:
    """Yields the fields of a route, and the names of the fields that the page shows above."""
    rows = dict[Row, None]()
    common = dict[str, list[str]]()
    for field in fields:
        name, meaning = field.row
        if field.row in repeated:
            common.setdefault(field.within, []).append(name.removesuffix(_REQUIRED))
        else:
            named = f"`{field.within}.{name.removeprefix('`')}" if field.within else name
            rows[named, meaning] = None
    if rows:
        yield listing(rows)
    lists = [
        (f"in `{within}` " if within else "") + ", ".join(_with_criterion(names))
        for within, names in common.items()
    ]
    if lists:
        yield _paragraph(f"{'Also' if rows else 'Fields'}: {'; '.join(lists)}.")


def _with_criterion(names: list[str]) -> list[str]:
    """The names of fields, those of a criterion as one."""
    others = [name for name in names if name not in _CRITERION]
    return ["the criterion", *others] if len(names) - len(others) == len(_CRITERION) else names


def _paragraph(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False) + "\n"


def _shown(route: Route, example: Example) -> str:
    request = f"```text\n{route.name}\n{pretty(example.body)}\n```\n"
    return f"{request}\n```json\n{pretty(example.answer)}\n```\n"


def _rows(schema: dict[str, Any]) -> list[Row]:
    required = schema.get("required", [])
    return [
        _row(field, field in required, about, about["description"])
        for field, about in schema["properties"].items()
    ]


def _row(name: str, is_required: bool, schema: dict[str, Any], meaning: str) -> Row:
    meaning = one_line(meaning)
    # Every probability is in (0, 1), as its meaning says.
    values = _values(schema, meaning) if "'number'" not in str(schema) else ""
    # False, null and an empty text are the usual defaults.
    default = f" Default: `{schema['default']}`." if schema.get("default") else ""
    return f"`{name}`" + (_REQUIRED if is_required else ""), f"{meaning}{values}{default}"


def _values(schema: dict[str, Any], meaning: str) -> str:
    """A sentence with the names and the bounds that the meaning of a field does not have."""
    branches = schema.get("anyOf", [schema])
    names = [f"`{name}`" for branch in branches for name in _names(branch)]
    if names and not all(name in meaning for name in names):
        return f" Values: {', '.join(names)}."
    bounds = [interval for branch in branches if (interval := _interval(branch))]
    return f" Values: {', '.join(bounds)}." if bounds else ""


def _names(schema: dict[str, Any]) -> list[Any]:
    return list(schema.get("enum", [schema["const"]] if "const" in schema else []))


def _interval(schema: dict[str, Any]) -> str:
    """The bounds as `1 to 100`, or for a number as `(0, 1]`; empty without an upper bound."""
    low = schema.get("exclusiveMinimum", schema.get("minimum"))
    high = schema.get("exclusiveMaximum", schema.get("maximum"))
    if low is None or high is None or high > _LARGEST_SHOWN:
        return ""
    if schema["type"] == "integer":
        return f"{low:.17g} to {high:.17g}"
    opened = "(" if "exclusiveMinimum" in schema else "["
    closed = ")" if "exclusiveMaximum" in schema else "]"
    return f"{opened}{low:.17g}, {high:.17g}{closed}"


# --- Commands


def cli_page() -> str:
    """Every command with its purpose; subcommands and options are left to `--help`."""
    introduction = """
`make setup` installs the command in `.venv/bin`. `scope-judge COMMAND --help` has the options and
subcommands of a command. Results go to standard output, progress and notes to standard error. If a
command that judges or labels is interrupted, rerun it to resume.
"""
    rows = ((f"`{name}`", purpose) for name, purpose in COMMANDS.items())
    return page("Command line", introduction, table(("command", "what it does"), rows))


# --- Error codes


def errors_page() -> str:
    """Every error code with its HTTP status."""
    groups = {
        errors.RequestError: (
            "Errors of the request",
            "The caller can correct these. A repeated request fails again.",
        ),
        errors.UnavailableError: (
            "The service is unavailable",
            "Repeat the request after the seconds in `Retry-After`.",
        ),
        errors.DefectError: (
            "Defects",
            "The service or the judge is at fault. The log says where in the code.",
        ),
    }
    introduction = """
Errors are [RFC 9457](https://www.rfc-editor.org/rfc/rfc9457) problems with the media type
`application/problem+json`. Programs read `code`, which is stable; people read `detail`. In a batch,
the problem replaces the result of one item. An error is never a verdict.
"""
    parts = []
    for group, (heading, about) in groups.items():
        rows = [
            (
                f"`{error.code}`",
                str(status),
                one_line(error.__doc__ or f"{error.title}.").split(" Args:")[0],
            )
            for error, status in STATUS.items()
            if issubclass(error, group)
        ]
        headings = ("code", "status", "meaning")
        parts.append(f"## {heading}\n\n{about}\n\n{table(headings, rows)}")
    return page("Error codes", introduction, *parts)


PAGES = {
    "settings.md": settings_page,
    "http-api.md": http_page,
    "cli.md": cli_page,
    "errors.md": errors_page,
}


def main() -> None:
    """Writes all pages."""
    FOLDER.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        text = make()
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(f"{FOLDER / name}: {len(text.splitlines())} lines", file=sys.stderr)


if __name__ == "__main__":
    main()
