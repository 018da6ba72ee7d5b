"""Formats of the service's log: lines of text, or a JSON object a line."""

import json
import logging
from datetime import UTC, datetime
from typing import Literal

LogFormat = Literal["text", "json"]


def formatter_of(kind: LogFormat) -> logging.Formatter:
    """The formatter of a format; both begin with the time in UTC."""
    return JsonFormatter() if kind == "json" else TextFormatter()


class TextFormatter(logging.Formatter):
    """Time, level and message: `2026-01-31T09:05:07.123Z INFO     the message`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-8s %(message)s")

    def formatTime(  # noqa: N802 - the name is logging's
        self, record: logging.LogRecord, _datefmt: str | None = None
    ) -> str:
        """The time of the record."""
        return _time_of(record)


class JsonFormatter(logging.Formatter):
    """One JSON object in one line, with `time`, `level`, `logger` and `message`.

    `exception` has the traceback, if the record has one.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line of the record."""
        fields = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def _time_of(record: logging.LogRecord) -> str:
    """The time of a record in UTC, as in ISO 8601, with milliseconds."""
    time = datetime.fromtimestamp(record.created, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
