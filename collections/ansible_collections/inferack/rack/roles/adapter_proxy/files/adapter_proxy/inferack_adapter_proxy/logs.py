"""One JSON object per line on standard output, and no key in any of them."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable
from typing import Any

import orjson

_HIDDEN = "***"


class Redactor:
    """Replaces known keys, in whatever text they turn up: messages, exceptions, tracebacks."""

    def __init__(self) -> None:
        self._keys: list[str] = []

    def know(self, keys: Iterable[str]) -> None:
        """Add keys; old ones stay known, since requests that use them may still run."""
        # In a JSON line a key may stand escaped.
        forms = {form for key in keys for form in (key, orjson.dumps(key)[1:-1].decode())}
        self._keys = sorted({*self._keys, *forms}, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text without keys."""
        for key in self._keys:
            if key in text:
                text = text.replace(key, _HIDDEN)
        return text


class JsonFormatter(logging.Formatter):
    """A record as JSON: time, level, message, and the mapping in `extra={"fields": …}`."""

    def __init__(self, redact: Redactor) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            line.update(fields)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return self._redact(orjson.dumps(line, default=str).decode())


def set_up(level: str, redact: Redactor) -> None:
    """Send every logger of the process through the formatter."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter(redact))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # aiohttp's access log would repeat each request without saying anything about engines.
    logging.getLogger("aiohttp.access").disabled = True
