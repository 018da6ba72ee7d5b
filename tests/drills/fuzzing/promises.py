"""The promises that every answer keeps, whatever was sent: the oracle of all fuzzing."""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import jsonschema_rs

from app.api.problems import STATUS

STATUS_OF_CODE = {error.code: status for error, status in STATUS.items()}
# An error describes the fault; it never repeats the request.
LONGEST_PROBLEM_BYTES = 4096
# Uvicorn's own answer to bytes that are not a request; it has no route and is not a problem.
NO_HTTP = (400, b"Invalid HTTP request received.")


_QUERY = re.compile(r"\?.*", re.DOTALL)
_PARAMETER = re.compile(r"\{\w+\}")


class Answer(NamedTuple):
    """A received answer.

    Args:
        status: HTTP status.
        headers: Headers by lower-case name.
        body: The whole body.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


class Document:
    """The OpenAPI document, as a specification of answers.

    Args:
        content: Content of /openapi.json.
    """

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content
        self._validator = cache(self._make_validator)

    @property
    def routes(self) -> list[str]:
        """The routes in the form "POST /judge"."""
        return [
            f"{method.upper()} {path}"
            for path, methods in self.content["paths"].items()
            for method in methods
        ]

    def route_of(self, method: str, target: bytes) -> str | None:
        """The documented route of a request; None if there is none."""
        path = _QUERY.sub("", target.decode("latin-1"))
        for route in self.routes:
            verb, _, template = route.partition(" ")
            if verb == method and re.fullmatch(_PARAMETER.sub("[^/]+", template), path):
                return route
        return None

    def faults(self, route: str | None, answer: Answer) -> list[str]:
        """The differences between an answer and the document; route None is in no document."""
        if answer.status >= 400:
            return problem_faults(answer) + self._undocumented(route, answer)
        if route is None:
            return [] if answer.status == 200 else [f"status {answer.status} at an unknown path"]
        return self._undocumented(route, answer) or self._success_faults(route, answer)

    def _undocumented(self, route: str | None, answer: Answer) -> list[str]:
        documented = {str(answer.status), f"{answer.status // 100}XX"}
        if route is None or not documented.isdisjoint(self._responses(route)):
            return []
        return [f"status {answer.status} is not documented for {route}"]

    def _success_faults(self, route: str, answer: Answer) -> list[str]:
        content = self._responses(route)[str(answer.status)].get("content", {})
        if not content:
            return [f"{answer.status} with a body"] if answer.body else []
        kind = answer.headers.get("content-type", "").partition(";")[0]
        if kind not in content:
            return [f"content type {kind!r} is not documented for {route}"]
        if kind != "application/json":
            return []
        try:
            found = strict_json(answer.body)
        except ValueError as exc:
            return [f"the answer is not JSON: {exc}"]
        error = next(iter(self._validator(route, str(answer.status)).iter_errors(found)), None)
        return [] if error is None else [f"the answer is not as documented: {error.message[:200]}"]

    def _responses(self, route: str) -> dict[str, Any]:
        method, _, path = route.partition(" ")
        responses: dict[str, Any] = self.content["paths"][path][method.lower()]["responses"]
        return responses

    def _make_validator(self, route: str, status: str) -> jsonschema_rs.Validator:
        schema = self._responses(route)[status]["content"]["application/json"]["schema"]
        components = {"components": self.content["components"]}
        return jsonschema_rs.validator_for({**schema, **components})


def strict_json(body: bytes) -> Any:
    """Parses JSON strictly: UTF-8, and neither NaN nor Infinity.

    Raises:
        ValueError: The body is not JSON.
    """

    def refuse(name: str) -> float:
        raise ValueError(f"{name} is not JSON")

    return json.loads(body.decode("utf-8"), parse_constant=refuse)


def problem_faults(answer: Answer) -> list[str]:
    """The differences between an error and RFC 9457 or the table of codes."""
    kind = answer.headers.get("content-type")
    if kind != "application/problem+json":
        return [f"an error of content type {kind!r}"]
    if len(answer.body) > LONGEST_PROBLEM_BYTES:
        return [f"an error of {len(answer.body)} bytes"]
    try:
        body = strict_json(answer.body)
    except ValueError as exc:
        return [f"a problem that is not JSON: {exc}"]
    code = body.get("code")
    if STATUS_OF_CODE.get(code) != answer.status or body.get("status") != answer.status:
        return [f"code {code!r} and status {body.get('status')} with HTTP {answer.status}"]
    if body.get("type") != f"urn:scope-judge:problem:{code}":
        return [f"type {body.get('type')!r} for {code!r}"]
    if not (body.get("title") and body.get("detail")):
        return ["a problem without a detail"]
    retried = answer.status in (429, 503, 504)
    if retried != ("retry-after" in answer.headers):
        return [f"Retry-After {'is missing' if retried else 'is there'} with {answer.status}"]
    if (answer.status == 405) != bool(answer.headers.get("allow")):
        return [f"Allow is {answer.headers.get('allow')!r} with {answer.status}"]
    return []
