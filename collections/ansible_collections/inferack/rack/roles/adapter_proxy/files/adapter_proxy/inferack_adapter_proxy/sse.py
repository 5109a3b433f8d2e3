"""Server-sent events: an incremental parser and the proxy's own events.

Written to the HTML standard (section 9.2, event streams): any chunking; CR, LF and CRLF; comments; multi-line data.
"""

from __future__ import annotations

from typing import NamedTuple

#: A single event larger than this is no token of text, bytes.
MAX_EVENT_BYTES = 8 * 1024 * 1024
DONE = b"[DONE]"


class Event(NamedTuple):
    """One event: its name (`message` unless it has another) and its data, lines joined by LF."""

    name: bytes
    data: bytes


class SseParser:
    """Bytes in, events out. Raises ValueError for an event beyond `MAX_EVENT_BYTES`."""

    def __init__(self) -> None:
        self._rest = b""
        self._after_cr = False
        self._start = True
        self._data: list[bytes] = []
        self._size = 0
        self._name = b""

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that are complete now."""
        if not chunk:
            return []
        if self._after_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]  # the second half of a CRLF
        self._after_cr = chunk[-1:] == b"\r"
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        text = self._rest + chunk
        if self._start and len(text) >= 3:
            self._start = False
            if text.startswith(b"\xef\xbb\xbf"):
                text = text[3:]
        lines = text.split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) + self._size > MAX_EVENT_BYTES:
            raise ValueError(f"an event of more than {MAX_EVENT_BYTES} bytes")
        events: list[Event] = []
        for line in lines:
            self._line(line, events)
        return events

    def close(self) -> list[Event]:
        """What is left at the end of the stream: some servers leave out the last empty line."""
        events: list[Event] = []
        if self._rest:
            self._line(self._rest, events)
            self._rest = b""
        self._line(b"", events)
        return events

    def _line(self, line: bytes, events: list[Event]) -> None:
        if not line:
            if self._data:
                events.append(Event(self._name or b"message", b"\n".join(self._data)))
                self._data = []
                self._size = 0
            self._name = b""
            return
        field, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if field == b"data":
            self._data.append(value)
            self._size += len(value)
            if self._size > MAX_EVENT_BYTES:
                raise ValueError(f"an event of more than {MAX_EVENT_BYTES} bytes")
        elif field == b"event":
            self._name = value


def event(data: bytes) -> bytes:
    """One event as it goes to the caller. `data` is one line."""
    return b"data: " + data + b"\n\n"
