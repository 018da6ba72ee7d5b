"""Logs unexpected errors without their messages."""

import logging
import traceback

logger = logging.getLogger("app.defects")


def log_defect(exc: BaseException) -> None:
    """Logs the type and traceback of an unexpected error.

    The message is left out, because it may contain a question or a response.
    """
    places = "".join(traceback.format_tb(exc.__traceback__))
    logger.error("unexpected %s at\n%s", type(exc).__qualname__, places)
