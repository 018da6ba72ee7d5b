"""A publisher's additions to a leaderboard's page: a title, a text, facts about the models."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from app.core.errors import InvalidRequestError
from app.core.printable import printable
from app.files.labels import is_empty
from app.files.reading import FileRow, read_rows

_LONGEST_ABOUT = 100_000


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """Facts about a model that its row shows.

    Args:
        organization: Its maker.
        license: Name of its license.
        link: Address of its page, with http or https.
    """

    organization: str | None = None
    license: str | None = None
    link: str | None = None


@dataclass(frozen=True, kw_only=True)
class Presentation:
    """The additions of a publisher to the page.

    Args:
        title: Title of the page; None to name the judge.
        about: A text in Markdown, shown below the title.
        models: Facts by model.
    """

    title: str | None = None
    about: str | None = None
    models: Mapping[str, ModelFacts] = field(default_factory=dict)


def read_about(path: Path) -> str:
    """The text of a file in Markdown.

    Raises:
        InvalidRequestError: It cannot be read as UTF-8, or is too long for a page.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidRequestError(f"{path} is not UTF-8") from None
    except OSError as exc:
        raise InvalidRequestError(f"{path} cannot be read: {exc.strerror}") from None
    if len(text) > _LONGEST_ABOUT:
        raise InvalidRequestError(
            f"{path} has {len(text):,} characters: at most {_LONGEST_ABOUT:,} fit on the page"
        )
    return text


def read_models(path: Path, encoding: str | None = None) -> dict[str, ModelFacts]:
    """Facts by model, from rows with `model` and any of organization, license and link.

    Raises:
        InvalidRequestError: The file cannot be read, or a row cannot be used.
    """
    found = {
        model: ModelFacts(
            organization=_text(row, "organization"),
            license=_text(row, "license"),
            link=_link(row),
        )
        for row, model in _models_of(path, encoding)
    }
    if all(facts == ModelFacts() for facts in found.values()):
        raise InvalidRequestError(
            f"{path} has no information about the models: besides the column model, give "
            f"organization, license or link"
        )
    return found


def _models_of(path: Path, encoding: str | None) -> Iterator[tuple[FileRow, str]]:
    seen = set()
    for row in read_rows(path, encoding):
        model = row.fields.get("model")
        if not isinstance(model, str) or not model.strip():
            raise InvalidRequestError(f"{row.place}: model is missing, or is not a text")
        if model in seen:
            raise InvalidRequestError(f"{row.place}: the model {model!r} occurs twice")
        seen.add(model)
        yield row, model


def _text(row: FileRow, name: str) -> str | None:
    value = row.fields.get(name)
    if is_empty(value):
        return None
    if not isinstance(value, str):
        raise InvalidRequestError(f"{row.place}: {name} is not a text")
    return value


def _link(row: FileRow) -> str | None:
    link = _text(row, "link")
    if link is not None and not is_web_address(link):
        raise InvalidRequestError(
            f"{row.place}: link is {link[:80]!r}, and must begin with http:// or https://"
        )
    return link


def is_web_address(link: str) -> bool:
    """Whether a link leads to a host by http or https."""
    try:
        parts = urlsplit(link)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)


def about_html(text: str) -> Markup:
    """A text in Markdown as HTML that holds no markup of its own, image or script.

    HTML in it is text, links lead to http and https only, and an image is a link. Its headings
    begin at the second level: the page has the first.
    """
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    tokens = markdown.parse(printable(text))
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 1)}"
        for inner in token.children or ():
            if inner.type == "link_open":
                _keep_to_the_web(inner)
    return Markup(markdown.renderer.render(tokens, markdown.options, {}))


def _keep_to_the_web(link: Token) -> None:
    """Takes its address from a link that leads elsewhere, such as into a folder or a mail."""
    if is_web_address(str(link.attrGet("href"))):
        link.attrSet("rel", "nofollow noopener")
    else:
        link.attrs.clear()
