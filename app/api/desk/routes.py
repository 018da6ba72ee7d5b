"""GET /desk and the files below it; they hold no data, so they need no key."""

from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from app.api.problems import no_route

router = APIRouter(include_in_schema=False)

_FOLDER = Path(__file__).parent / "static"
_STATIC = StaticFiles(directory=_FOLDER)
# Scripts, style sheets and the icon; the folder also has notes and licenses.
FILES = frozenset(
    path.relative_to(_FOLDER).as_posix()
    for path in _FOLDER.rglob("*")
    if path.suffix in (".js", ".css", ".svg")
)
_HEADERS = {
    # Texts of users are on this page, so nothing but its own files can run, and nothing can be sent
    # to another host.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; worker-src 'self'; img-src 'self' data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    # The browser asks each time, and gets 304 until an upgrade changes the file.
    "Cache-Control": "no-cache",
}


# The page's links are relative, so that it also works below a proxy's prefix.
@router.get("/desk")
async def desk(request: Request) -> Response:
    """The page."""
    return await _answer("index.html", request)


@router.get("/desk/{file:path}")
async def desk_file(file: str, request: Request) -> Response:
    """A script, a style sheet or the icon of the page."""
    if file not in FILES:
        raise no_route(f"/desk/{file}")
    return await _answer(file, request)


async def _answer(file: str, request: Request) -> Response:
    response = await _STATIC.get_response(file, request.scope)
    response.headers.update(_HEADERS)
    return response
