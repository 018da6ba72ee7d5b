"""The OpenAPI document, and GET /docs: Swagger UI with files from this package.

FastAPI's pages load Swagger UI from the Internet and are blank without it.
"""

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any, ClassVar

from fastapi import APIRouter, FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response

from app.api.problems import STATUS, no_route
from scope_judge import records

router = APIRouter(include_in_schema=False)

# swagger-ui-dist 5.35.0 of the npm registry, unchanged.
_FOLDER = Path(__file__).parent / "swagger_ui"
_DAY_S = 24 * 60 * 60
_SCRIPT, _STYLE, _ICON = _FILES = ("swagger-ui-bundle.js", "swagger-ui.css", "favicon-32x32.png")
# The links are relative, so that they also work below a proxy's prefix.
_PAGE = get_swagger_ui_html(
    openapi_url="openapi.json",
    title="scope-judge",
    swagger_js_url=f"docs/{_SCRIPT}",
    swagger_css_url=f"docs/{_STYLE}",
    swagger_favicon_url=f"docs/{_ICON}",
).body


@router.get("/openapi.json")
async def openapi(request: Request) -> Response:
    """The OpenAPI document."""
    return Response(request.app.state.openapi, media_type="application/json")


@router.get("/docs")
async def docs() -> Response:
    """A page that describes the HTTP API and sends requests."""
    return HTMLResponse(_PAGE)


@router.get("/docs/{name}")
async def docs_file(name: str) -> Response:
    """A file of Swagger UI."""
    if name not in _FILES:
        raise no_route(f"/docs/{name}")
    return FileResponse(_FOLDER / name, headers={"Cache-Control": f"max-age={_DAY_S}"})


class DocumentedApplication(FastAPI):
    """An application whose document has the docstrings of answers and the codes of problems."""

    # Shared by all applications of a process, because making it takes 0.1 s.
    _document: ClassVar[dict[str, Any] | None] = None

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, with the security scheme of a service with a key file."""
        if DocumentedApplication._document is None:
            DocumentedApplication._document = _described(super().openapi())
        return DocumentedApplication._document


def _described(document: dict[str, Any]) -> dict[str, Any]:
    description = "Required if the service has a key file."
    key = {"type": "http", "scheme": "bearer", "description": description}
    document["components"]["securitySchemes"] = {"key": key}
    document["security"] = [{}, {"key": []}]
    schemas = document["components"]["schemas"]
    for name, schema in schemas.items():
        record = getattr(records, name, None)
        if isinstance(record, type) and dataclasses.is_dataclass(record):
            about, _, _ = inspect.cleandoc(record.__doc__ or "").partition("\n\nArgs:\n")
            schema["description"] = _in_json(about)
            for field, meaning in record_meanings(record).items():
                if field in schema["properties"]:
                    schema["properties"][field]["description"] = meaning
    schemas["Problem"]["properties"]["code"]["enum"] = [error.code for error in STATUS]
    return document


def record_meanings(record: type) -> dict[str, str]:
    """The meaning of each field of a record, from its docstring or those of its bases."""
    names = (field.name for field in dataclasses.fields(record))
    meanings = {
        name: _in_json(records.MEANINGS[name]) for name in names if name in records.MEANINGS
    }
    for kind in reversed(record.__mro__[:-1]):
        _, _, arguments = inspect.cleandoc(kind.__doc__ or "").partition("Args:\n")
        section, _, _ = arguments.partition("\n\n")
        for name, meaning in re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE):
            meanings[name] = _in_json(meaning)
    return meanings


def _in_json(text: str) -> str:
    """The text in one line, with the word that JSON has for None."""
    return re.sub(r"\bNone\b", "null", re.sub(r"\s+", " ", text))
