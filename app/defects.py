"""Logs errors that nobody foresaw."""

import logging
import traceback

logger = logging.getLogger("app.defects")


def log_defect(exc: BaseException) -> None:
    """Logs where an unforeseen error came from; never its message, which may hold a text."""
    places = "".join(traceback.format_tb(exc.__traceback__))
    logger.error("unforeseen %s at\n%s", type(exc).__qualname__, places)
