"""GET /openapi.json and GET /docs, which is Swagger UI with files from this package.

FastAPI's pages load Swagger UI from the Internet and are blank without it.
"""

from pathlib import Path

from fastapi import APIRouter
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response

from app.api.problems import no_route

router = APIRouter(include_in_schema=False)

# swagger-ui-dist 5.35.0 of the npm registry, unchanged.
_FOLDER = Path(__file__).parents[1] / "swagger_ui"
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
