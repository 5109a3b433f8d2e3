"""Trace ids: W3C Trace Context, https://www.w3.org/TR/trace-context/ (version 00)."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Optional

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True)
class Trace:
    """One request's place in a trace. trace_id: 32 hex digits; span_id: 16, the proxy's own; flags: 2."""

    trace_id: str
    span_id: str
    flags: str

    @property
    def traceparent(self) -> str:
        """The header that names this span as the parent."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


def start(traceparent: Optional[str]) -> Trace:
    """The trace the caller belongs to, or a new one when there is none or the header is invalid."""
    span_id = os.urandom(8).hex()
    if traceparent:
        match = _TRACEPARENT.fullmatch(traceparent.strip().lower())
        if match:
            version, trace_id, parent, flags, more = match.groups()
            valid = version != "ff" and trace_id != "0" * 32 and parent != "0" * 16 and not (version == "00" and more)
            if valid:
                return Trace(trace_id, span_id, flags)
    return Trace(os.urandom(16).hex(), span_id, "01")
