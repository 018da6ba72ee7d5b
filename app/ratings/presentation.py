"""A publisher's additions to a leaderboard's page: a title, a text, facts about the models."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from app.core.errors import InvalidRequestError
from app.files.labels import is_empty
from app.files.reading import FileRow, read_rows
from app.ratings.results import Rating

_LONGEST_ABOUT = 100_000
# Both spellings of the columns.
_ORGANIZATION = ("organization", "organisation")
_LICENSE = ("license", "licence")


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
        known: True ratings by model, if they are known, in points of the Elo scale. Their zero is
            free, because only differences count.
    """

    title: str | None = None
    about: str | None = None
    models: Mapping[str, ModelFacts] = field(default_factory=dict)
    known: Mapping[str, float] = field(default_factory=dict)


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
            organization=_text(row, *_ORGANIZATION),
            license=_text(row, *_LICENSE),
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


def read_known(path: Path, encoding: str | None = None) -> dict[str, float]:
    """Known ratings by model, from rows with `model` and `rating`.

    Raises:
        InvalidRequestError: The file cannot be read, or a row cannot be used.
    """
    return {model: _rating(row) for row, model in _models_of(path, encoding)}


def on_the_scale(known: Mapping[str, float], ratings: tuple[Rating, ...]) -> dict[str, float]:
    """Known ratings with the zero of a view: the mean that has the score `centre` is theirs, too.

    Args:
        known: Known ratings by model.
        ratings: The ratings of a view, of one component.
    """
    rated = [each for each in ratings if each.model in known]
    gaps = [
        (each.score - known[each.model], 1.0 if each.centre_share is None else each.centre_share)
        for each in rated
        if each.score is not None
    ]
    whole = sum(share for _, share in gaps)
    if not whole:
        return {}
    shift = sum(gap * share for gap, share in gaps) / whole
    return {each.model: known[each.model] + shift for each in rated}


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


def _text(row: FileRow, *names: str) -> str | None:
    value = next((row.fields[name] for name in names if name in row.fields), None)
    if is_empty(value):
        return None
    if not isinstance(value, str):
        raise InvalidRequestError(f"{row.place}: {names[0]} is not a text")
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


def _rating(row: FileRow) -> float:
    value: Any = row.fields.get("rating")
    try:
        rating = float(value)
    except (TypeError, ValueError):
        rating = math.nan
    if isinstance(value, bool) or not math.isfinite(rating):
        raise InvalidRequestError(f"{row.place}: rating is not a finite number")
    return rating
