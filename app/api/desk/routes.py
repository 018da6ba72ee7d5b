"""GET /desk and the files below it; they hold no data, so they need no key."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.api.desk.files import PAGE, DeskFile, read_files
from app.api.problems import no_route

router = APIRouter(include_in_schema=False)

_FILES = read_files()


# The page's links are relative, so that it also works below a proxy's prefix.
@router.get("/desk")
async def desk(request: Request) -> Response:
    """The page."""
    return _answer(request, _FILES[PAGE])


@router.get("/desk/{file:path}")
async def desk_file(file: str, request: Request) -> Response:
    """A script, a style sheet or the icon of the page."""
    if file not in _FILES or file == PAGE:
        raise no_route(f"/desk/{file}")
    return _answer(request, _FILES[file])


def _answer(request: Request, file: DeskFile) -> Response:
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=file.headers)
    packs = "gzip" in request.headers.get("accept-encoding", "")
    return Response(
        file.packed if packs else file.content,
        media_type=file.media_type,
        headers={**file.headers, "Content-Encoding": "gzip"} if packs else file.headers,
    )
