"""A publisher's text in Markdown as HTML that holds no markup of its own, image or script."""

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from app.core.printable import printable
from app.ratings.presentation import is_web_address


def about_html(text: str) -> Markup:
    """The text as HTML.

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
