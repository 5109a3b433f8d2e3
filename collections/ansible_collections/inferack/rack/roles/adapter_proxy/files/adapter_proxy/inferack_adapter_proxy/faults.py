"""What can go wrong, what the caller is told, and what is done about it.

`CallerFault` is what the caller got wrong; `EngineFault` is what an engine did. Both end as an error in OpenAI's shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional


@dataclass(frozen=True)
class Rule:
    """What a kind of engine fault means.

    status: HTTP status for the caller when nothing else helped.
    code: stable machine-readable code for the caller.
    next_engine: another engine may do better.
    again: waiting and asking the same engine again may help.
    dead: counts towards opening the engine's breaker.
    """

    status: int
    code: str
    next_engine: bool
    again: bool
    dead: bool


#: Kinds of engine faults. A caller's fault (4xx) never counts against the engine, or one bad caller would close it for
#: all; 429 and 503 mean busy, not dead.
RULES: dict[str, Rule] = {
    "connect": Rule(502, "engine_unreachable", next_engine=True, again=True, dead=True),
    "closed": Rule(502, "engine_closed_connection", next_engine=True, again=True, dead=True),
    "timeout": Rule(504, "engine_timeout", next_engine=True, again=False, dead=True),
    "busy": Rule(503, "engine_busy", next_engine=True, again=True, dead=False),
    "failed": Rule(502, "engine_failed", next_engine=True, again=True, dead=True),
    # An engine that answers 500 to malformed inputs too (Triton): worth another engine, not a blind repetition.
    "rejected": Rule(502, "engine_rejected", next_engine=True, again=False, dead=False),
    "garbled": Rule(502, "engine_answer_invalid", next_engine=True, again=False, dead=False),
    "key": Rule(502, "engine_refused_key", next_engine=True, again=False, dead=False),
    "no_model": Rule(502, "engine_lacks_model", next_engine=True, again=False, dead=False),
    "unsupported": Rule(400, "unsupported_parameter", next_engine=True, again=False, dead=False),
    "bad_request": Rule(400, "invalid_request", next_engine=False, again=False, dead=False),
}


class ProxyFault(Exception):
    """A request that ends with an error: everything the answer says."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        param: Optional[str] = None,
        engine: Optional[str] = None,
        retry_after: Optional[float] = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.engine = engine
        self.retry_after = retry_after

    @property
    def type(self) -> str:
        """OpenAI's coarse kind: `invalid_request_error` for the caller's faults, else `engine_error` or `server_error`."""
        if self.status < 500:
            return "invalid_request_error"
        return "engine_error" if self.engine else "server_error"

    def body(self, trace_id: str) -> dict[str, Any]:
        """The error as OpenAI writes it, with the engine's name and the trace id beside."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "code": self.code,
                "param": self.param,
                "engine": self.engine,
                "trace_id": trace_id,
            }
        }


class CallerFault(ProxyFault):
    """The caller's request is wrong: 4xx, and no engine is asked."""


class EngineFault(ProxyFault):
    """An engine could not answer.

    kind: a key of `RULES`. detail: what happened, without any key. retry_after: seconds the engine asked for.
    phase: for time-outs, which timer ran out.
    """

    def __init__(
        self,
        kind: str,
        engine: str,
        detail: str,
        param: Optional[str] = None,
        retry_after: Optional[float] = None,
        phase: str = "",
    ) -> None:
        rule = RULES[kind]
        super().__init__(rule.status, rule.code, f"engine {engine}: {detail}", param, engine, retry_after)
        self.kind = kind
        self.rule = rule
        self.phase = phase
        #: The engine may be broken although it looks healthy: probe it now.
        self.suspect = kind in ("rejected", "garbled", "connect", "closed", "no_model", "key")
