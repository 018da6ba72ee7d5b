"""Writes docs/reference/ from the code: settings, HTTP API, commands, metrics and error codes.

Usage: python docs/make_reference.py. tests/unit/docs/test_reference.py compares the pages.
"""

import inspect
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase

from app.api.auth.needs import NEEDS
from app.cli import COMMANDS
from app.cli import command as loaded_command
from app.core import errors
from app.main import build
from app.observability.gauges import CalibrationFigures, TrafficFigures
from app.observability.telemetry import Telemetry
from app.service.services import Services
from app.settings import Settings
from app.wire.problems import STATUS
from app.wire.requests import NOT_BLANK
from docs.http_examples import Example, examples, pretty

FOLDER = Path(__file__).with_name("reference")
# Title and code of a problem in the description of a response.
_PROBLEM = re.compile(r"(?:^|; )([^;]+?) \((`\w+`)\)")
# The top of the page has the fields and problems of so many routes.
_SHARED_BY = 4
# Name, whether it is required, values and meaning of a field.
Row = tuple[str, str, str, str]
T = TypeVar("T")

# The setting that begins a group -> the group's heading.
SETTING_GROUPS = {
    "engine": "Judge",
    "openai_urls": "OpenAI-compatible servers",
    "prompt_file": "Prompt",
    "store_url": "Calibration store",
    "default_alpha": "Defaults of a judgment",
    "reward_end_markers": "Rewards",
    "max_batch": "Limits and deadlines",
    "drain_lag_s": "Shutdown",
    "api_keys_file": "Access",
    "metrics": "Monitoring",
    "host": "Network and log",
}

# The need of a route -> its wording on the page.
KEY_NEEDED = {
    "key": "any key",
    "nothing": "none",
    "switch": "any key, unless `SCOPE_METRICS` says otherwise",
}


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; cells must not hold line ends."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def page(title: str, introduction: str, *parts: str) -> str:
    """A whole page."""
    note = "<!-- Written by docs/make_reference.py. Change the code, then run it again. -->"
    return "\n".join([f"# {title}\n", note + "\n", introduction.strip() + "\n", *parts])


def one_line(text: str | None) -> str:
    """A text in one line that is safe in a cell of a table."""
    return " ".join((text or "").split()).replace("|", "\\|")


# --- Settings


def settings_page() -> str:
    """Every setting with its default, its values and its meaning."""
    groups: dict[str, list[tuple[str, str, str, str]]] = {}
    properties = Settings.model_json_schema()["properties"]
    for name, field in Settings.model_fields.items():
        if name in SETTING_GROUPS:
            heading = SETTING_GROUPS[name]
        default = "" if field.default in (None, "") else f"`{field.default}`"
        values = kind(properties[name]).removesuffix(" or `null`")
        row = (f"`SCOPE_{name.upper()}`", default, values)
        groups.setdefault(heading, []).append((*row, one_line(field.description)))
    introduction = """
Each setting is an environment variable. `make serve NAME=value` passes it on, too. The service
refuses to start if a value is invalid, or if a variable with the prefix `SCOPE_` is not a setting.
A setting without a default may be empty, which means unset.
"""
    parts = [
        f"## {heading}\n\n" + table(("variable", "default", "values", "meaning"), rows)
        for heading, rows in groups.items()
    ]
    return page("Settings", introduction, *parts)


# --- HTTP API


def document() -> dict[str, Any]:
    """The OpenAPI document of the service."""

    def never() -> AbstractAsyncContextManager[Services]:
        raise AssertionError("the document needs no services")

    settings = Settings(engine="scripted", store_url="memory://")
    return build(settings, never, keys=None).openapi()


def http_page() -> str:
    """Every route of the HTTP API with the fields of its request and an example."""
    openapi = document()
    routes = [
        Route(method=method.upper(), path=path, operation=operation)
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    ]
    introduction = """
Requests and answers are JSON. `/docs` of a running service explains every field of every answer
and sends requests for you; `/openapi.json` is the same for programs. Send a key as
`Authorization: Bearer KEY` where the service has a [key file](../guides/keys.md). An error is an
[RFC 9457](https://www.rfc-editor.org/rfc/rfc9457) problem with a stable [`code`](errors.md).

In the examples, a scripted judge answers, and `...` stands for further items of a list.
"""
    common = _common(route.problems for route in routes)
    titles = {code: title for route in routes for code, title in route.problems.items()}
    schemas = openapi["components"]["schemas"]
    rows = {route.name: _rows(route, schemas) for route in routes}
    repeated = _common(rows.values())
    shown, told = examples(), set[str]()
    sections = []
    for route in routes:
        fields = [row for row in rows[route.name] if row not in repeated]
        parts = [
            f"## {route.name}\n",
            route.operation["description"] + "\n",
            *_objects(fields, [row[0] for row in rows[route.name] if row in repeated]),
            *_nested(route, schemas, told),
        ]
        if route.name in shown:
            parts.append(_shown(route, shown[route.name]))
        own = sorted(set(route.problems) - common)
        if own:
            listed = ", ".join(f"{status} {code}" for status, code in own)
            parts.append(_paragraph(f"Problems of its own: {listed}."))
        sections.append("\n".join(parts))
    bodies = {body: anchor(route.name) for route in routes if (body := _body(route))}
    every = [row for row in dict.fromkeys(chain(*rows.values())) if row in repeated]
    text = page(
        "HTTP API",
        introduction,
        "## Routes\n\n" + table(("route", "key", "what it does"), map(_route_row, routes)),
        "## Common fields\n\nSections below only name the ones that their route takes.\n",
        _field_table(every),
        "## Common problems\n\nNearly every route may answer these.\n",
        table(("status", "code", "title"), [(*code, titles[code]) for code in sorted(common)]),
        *sections,
    )
    for body, section in bodies.items():
        text = text.replace(f"[{body}](#{body.lower()})", f"[{body}](#{section})")
    return text


def _common(of_routes: Iterable[Iterable[T]]) -> set[T]:
    """Returns what several routes share, and the page says only once."""
    counted = Counter(chain(*of_routes))
    return {each for each, number in counted.items() if number >= _SHARED_BY}


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
    def problems(self) -> dict[tuple[str, str], str]:
        """Status and code in backquotes -> title."""
        return {
            (status, code): title
            for status, response in self.operation["responses"].items()
            if int(status) >= 400
            for title, code in _PROBLEM.findall(response["description"])
        }


def _route_row(route: Route) -> tuple[str, str, str]:
    need = NEEDS[route.method, route.path]
    first = one_line(route.operation["description"].split("\n\n")[0])
    return f"[`{route.name}`](#{anchor(route.name)})", KEY_NEEDED.get(need, f"role `{need}`"), first


def anchor(heading: str) -> str:
    """The anchor that the site gives to a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _rows(route: Route, schemas: dict[str, Any]) -> list[Row]:
    """The parameters of the query and the fields of the body."""
    rows = [
        _row(each["name"], each["required"], each["schema"], each["description"])
        for each in route.operation.get("parameters", ())
        if each["in"] == "query"
    ]
    body = _body(route)
    # Some routes take the same options in the query and in the body.
    return list(dict.fromkeys(rows + ([] if body is None else _fields(schemas[body]))))


def _body(route: Route) -> str | None:
    """Name of the schema of the request's JSON body; None without one."""
    content = route.operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema")
    if schema is None:
        return None
    name: str = schema["$ref"].rpartition("/")[2] if "$ref" in schema else schema["title"]
    return name


def _objects(rows: Sequence[Row], repeated: Sequence[str]) -> Iterator[str]:
    if rows:
        yield _field_table(rows)
    if repeated:
        yield _paragraph(f"{'Also' if rows else 'Fields'}: {', '.join(repeated)}.")


def _nested(route: Route, schemas: dict[str, Any], told: set[str]) -> Iterator[str]:
    """Yields a section for each object in the request that no earlier route has."""
    body = _body(route)
    if body is None:
        return
    told.add(body)
    for name in [*_new_objects(schemas[body], schemas, told)]:
        yield f"### {name}\n\n{schemas[name]['description']}\n"
        yield _field_table(_fields(schemas[name]))


def _field_table(rows: Iterable[Row]) -> str:
    return table(("field", "required", "values", "meaning"), rows)


def _paragraph(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False) + "\n"


def _shown(route: Route, example: Example) -> str:
    request = f"{route.method} {example.target}"
    if example.body is not None:
        request += "\n" + pretty(example.body)
    answer = "" if example.answer is None else pretty(example.answer)
    return f"```text\n{request}\n```\n\n```json\n{answer}\n```\n"


def _fields(schema: dict[str, Any]) -> list[Row]:
    required = schema.get("required", [])
    return [
        _row(field, field in required, about, about["description"])
        for field, about in schema["properties"].items()
    ]


def _row(name: str, is_required: bool, schema: dict[str, Any], meaning: str) -> Row:
    default = f", default `{schema['default']}`" if schema.get("default") is not None else ""
    return f"`{name}`", "yes" if is_required else "no", kind(schema) + default, one_line(meaning)


def _new_objects(schema: dict[str, Any], schemas: dict[str, Any], told: set[str]) -> Iterator[str]:
    """Yields the objects inside a request that no earlier section has shown."""
    # Some are references, and some are written out under their title.
    for name in re.findall(r"'(?:#/components/schemas/)?(\w+)'", str(schema["properties"])):
        if name in schemas and name not in told:
            told.add(name)
            yield name
            yield from _new_objects(schemas[name], schemas, told)


def kind(schema: dict[str, Any]) -> str:
    """The values of a JSON schema, in words."""
    if "$ref" in schema:
        return _linked(schema["$ref"].rpartition("/")[2])
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        return " or ".join(kind(branch) for branch in branches)
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        if "prefixItems" in schema:
            return " and ".join(kind(each) for each in schema["prefixItems"])
        return f"list of {kind(schema['items'])}"
    if "properties" in schema:
        return _linked(schema["title"])
    of_type = schema.get("type", "any value")
    name = {"null": "`null`", "object": "object"}.get(of_type, of_type)
    bounds = ", ".join(_bounds(schema))
    return f"{name} ({bounds})" if bounds else name


def _linked(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _bounds(schema: dict[str, Any]) -> Iterator[str]:
    limits = {
        "exclusiveMinimum": "above",
        "minimum": "at least",
        "exclusiveMaximum": "below",
        "maximum": "at most",
    }
    for bound, words in limits.items():
        if bound in schema:
            yield f"{words} {schema[bound]:.17g}"
    if schema.get("pattern") == NOT_BLANK:
        yield "not blank"
    elif "pattern" in schema:
        yield f"`{schema['pattern']}`"
    if "maxLength" in schema:
        yield f"at most {schema['maxLength']} characters"


# --- Commands


def cli_page() -> str:
    """Every command with its arguments and options."""
    introduction = """
`make setup` puts the command into `.venv/bin`. `scope-judge COMMAND --help` prints the same.
Results go to standard output; progress and notes go to standard error.
"""
    return page(
        "Command line",
        introduction,
        *_commands({name: loaded_command(name) for name in COMMANDS}, ""),
    )


def _commands(group: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, command in group.items():
        full = f"{path} {name}".strip()
        if hasattr(command, "commands"):
            yield from _commands(command.commands, full)
        else:
            yield _command(full, command)


def _command(name: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    words = [_argument(each) for each in arguments]
    usage = " ".join(["scope-judge", name, *words, "[OPTIONS]"])
    rows = []
    for each in command.params:
        named = ", ".join(f"`{option}`" for option in (*each.opts, *each.secondary_opts))
        shown = f"`{_argument(each)}`" if each in arguments else named
        rows.append((shown, _default(each), one_line(each.help)))
    text = inspect.cleandoc(command.help or "")
    return (
        f"## scope-judge {name}\n\n```text\n{usage}\n```\n\n{text}\n\n"
        f"{table(('argument or option', 'default', 'meaning'), rows)}"
    )


def _argument(parameter: Any) -> str:
    name = parameter.name.upper()
    return f"{name}..." if parameter.nargs == -1 else name


def _default(parameter: Any) -> str:
    if parameter.envvar:
        return f"`{parameter.envvar}`"
    if parameter.required:
        return "required"
    value = parameter.default
    return "" if value is None or value is False or value == () else f"`{value}`"


# --- Metrics


def metrics_page() -> str:
    """Every metric of the service, as Prometheus sees it."""
    telemetry = Telemetry.on_own_registry()
    families = []
    for collector in telemetry._registry._collector_to_names:
        if isinstance(collector, MetricWrapperBase):
            families += [(metric, _labels(collector)) for metric in collector.describe()]
    families += [(metric, _labels(metric)) for metric in _collected_metrics()]
    rows = []
    for metric, labels in families:
        name = metric.name + ("_total" if metric.type == "counter" else "")
        shown = ", ".join(f"`{label}`" for label in labels)
        rows.append((f"`{name}`", metric.type, shown, one_line(metric.documentation)))
    introduction = """
`/metrics` shows these in Prometheus's text format, together with `process_*` and `python_*` of
the API process and vLLM's own `vllm:*` metrics where vLLM runs inside the service. The values of
a label are a closed set, except `calibration`: callers choose these names, and the service shows
at most 100 sets, those that are in use first. No metric holds a text.
[Monitoring](../guides/monitoring.md) explains alerts and the dashboard.
"""
    return page("Metrics", introduction, table(("metric", "type", "labels", "meaning"), rows))


def _labels(metric: Any) -> Sequence[str]:
    # prometheus_client has no public name for them.
    found: Sequence[str] = metric._labelnames
    return found


def _collected_metrics() -> list[Metric]:
    """The families that the service makes when metrics are read."""
    telemetry = Telemetry.on_own_registry()
    traffic = TrafficFigures(200, 0.1, 0.1, 0.3, 0.3)
    figures = CalibrationFigures("default", 1, 1, 0.0, 0.0, [("marginal", 0.1, 0.1)], traffic)
    telemetry.show_calibrations(lambda: [figures], count=lambda: 1, lost=lambda: ["default"])
    telemetry.show_monitors(list)
    telemetry.show_waiting(list)
    telemetry.show_drift(list)
    telemetry.show_dropped_lines(lambda: 0)
    added = [
        collector
        for collector in telemetry._registry._collector_to_names
        if not isinstance(collector, MetricWrapperBase)
    ]
    return [family for collector in added for family in collector.collect()]


# --- Error codes


def errors_page() -> str:
    """Every error code with its HTTP status."""
    groups = {
        errors.RequestError: (
            "Errors of the request",
            "The caller can correct these. The same request fails again.",
        ),
        errors.UnavailableError: (
            "The service is unavailable",
            "Nothing is wrong with the request. Try again after the seconds in `Retry-After`.",
        ),
        errors.DefectError: (
            "Defects",
            "The service or the judge is at fault. The log has the place, without any text.",
        ),
    }
    introduction = """
An error is a problem in the format of [RFC 9457](https://www.rfc-editor.org/rfc/rfc9457), with the
media type `application/problem+json`. Programs read `code`, which is stable; people read `detail`.
In a batch the problem takes the place of one item's result. An error is never a verdict.
"""
    parts = []
    for group, (heading, about) in groups.items():
        rows = [
            (
                f"`{error.code}`",
                str(status),
                error.title,
                one_line(error.__doc__).split(" Args:")[0],
            )
            for error, status in STATUS.items()
            if issubclass(error, group)
        ]
        headings = ("code", "status", "title", "meaning")
        parts.append(f"## {heading}\n\n{about}\n\n{table(headings, rows)}")
    return page("Error codes", introduction, *parts)


PAGES = {
    "settings.md": settings_page,
    "http-api.md": http_page,
    "cli.md": cli_page,
    "metrics.md": metrics_page,
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
