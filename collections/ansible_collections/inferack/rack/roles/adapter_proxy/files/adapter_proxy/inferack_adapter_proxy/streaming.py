"""A stream on its way to the caller: held back until the first content, then committed.

Before the first content nothing has been sent, so another engine may still answer, and an error is a plain status. After it,
a fault is an error event without `[DONE]`: a replay would repeat text, and a silent end would pass for a whole answer.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Optional

import orjson
from aiohttp import web

from .engines.base import Piece, Usage, estimate
from .faults import EngineFault, ProxyFault
from .requests import ChatRequest
from .routing import Candidate
from .service import Record, Service
from .sse import DONE, event
from .trace import Trace
from .watchdog import Watchdog

#: How long a caller may take for the last event of a stream that was cut, seconds.
FAREWELL_S = 2.0
HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    # nginx would otherwise hold tokens back.
    "X-Accel-Buffering": "no",
}


class Writer:
    """The caller's side of one stream."""

    def __init__(self, request: web.Request, chat: ChatRequest, name: str, trace: Trace, record: Record) -> None:
        self.request = request
        self.chat = chat
        self.name = name
        self.trace = trace
        self.record = record
        self._id = f"chatcmpl-{trace.trace_id}"
        self._created = int(time.time())
        self._usage: Optional[Usage] = None
        self._text: list[str] = []
        self._role_sent = False

    def data(self, piece: Piece) -> bytes:
        """The events for one piece; none for one that only carries usage, which comes last if it was asked for."""
        if piece.usage is not None:
            self._usage = piece.usage
        if piece.text:
            self._text.append(piece.text)
        if piece.chunk is None:
            return self._made(piece)
        same_name = piece.chunk.get("model") == self.name
        if piece.raw is not None and same_name and "usage" not in piece.chunk:
            return event(piece.raw)
        chunk: dict[str, Any] = {**piece.chunk, "model": self.name}
        chunk.pop("usage", None)
        if not chunk.get("choices"):
            return b""
        return event(orjson.dumps(chunk))

    def _made(self, piece: Piece) -> bytes:
        """Events for engines that do not speak OpenAI."""
        events = b""
        if not self._role_sent:
            self._role_sent = True
            events += event(self._chunk({"role": "assistant", "content": ""}, None))
        if piece.text:
            events += event(self._chunk({"content": piece.text}, None))
        if piece.finish_reason:
            events += event(self._chunk({}, piece.finish_reason))
        return events

    def _chunk(self, delta: dict[str, Any], finish: Optional[str]) -> bytes:
        return orjson.dumps(
            {
                "id": self._id,
                "object": "chat.completion.chunk",
                "created": self._created,
                "model": self.name,
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
            }
        )

    def settle(self) -> Usage:
        """What the stream used so far, as the engine counted it, else estimated."""
        if self._usage is None:
            prompt = " ".join(str(message.get("content") or "") for message in self.chat.messages)
            self._usage = estimate(prompt, "".join(self._text))
        return self._usage

    async def begin(self) -> web.StreamResponse:
        """Commit: send status and headers."""
        response = web.StreamResponse(status=200, headers=HEADERS)
        self.record.committed = True
        await response.prepare(self.request)
        return response

    async def end(self, response: web.StreamResponse) -> None:
        """The closing events of a whole answer."""
        closing = b""
        if self.chat.show_usage:
            closing += event(
                orjson.dumps(
                    {
                        "id": self._id,
                        "object": "chat.completion.chunk",
                        "created": self._created,
                        "model": self.name,
                        "choices": [],
                        "usage": self.settle().as_dict(),
                    }
                )
            )
        await response.write(closing + event(DONE))
        await response.write_eof()

    async def interrupted(self, response: web.StreamResponse, fault: ProxyFault) -> None:
        """The closing event of an answer that was cut; there is no `[DONE]`.

        A caller that reads nothing any more does not get it: the connection is closed.
        """

        async def write() -> None:
            await response.write(event(orjson.dumps(fault.body(self.trace.trace_id))))
            await response.write_eof()

        try:
            await asyncio.wait_for(write(), FAREWELL_S)
        except asyncio.TimeoutError:
            if self.request.transport is not None:
                self.request.transport.abort()


async def relay(service: Service, writer: Writer, candidate: Candidate, total_at: float, redact: Any) -> web.StreamResponse:
    """One engine's stream to the caller. Raises EngineFault only before the first content."""
    state = candidate.state
    loop = asyncio.get_running_loop()
    record = writer.record
    pieces = state.engine.stream(candidate.model, writer.chat.ask(writer.trace))
    held: list[Piece] = []
    response: Optional[web.StreamResponse] = None
    try:
        with Watchdog(state.name, total_at) as dog:
            dog.arm("ttft", state.timeouts.ttft_s)
            async for piece in pieces:
                if response is None:
                    held.append(piece)
                    if not piece.content:
                        continue
                    dog.rest()
                    record.first_content_s = loop.time()
                    response = await writer.begin()
                    data = b"".join(map(writer.data, held))
                    held.clear()
                else:
                    data = writer.data(piece)
                if data:
                    dog.rest()
                    await response.write(data)
                dog.arm("idle", state.timeouts.idle_s)
            dog.rest()
            if response is None:  # a whole answer without any content
                response = await writer.begin()
                await response.write(b"".join(map(writer.data, held)))
            await writer.end(response)
        return response
    except EngineFault as fault:
        if response is None:
            raise
        service.note(candidate, fault, record)
        service.metrics.interrupted.labels(state.name).inc()
        record.code = "interrupted"
        message = redact(f"interrupted: {fault.message}")
        await writer.interrupted(response, ProxyFault(fault.status, "interrupted", message, engine=state.name))
        return response
    finally:
        await pieces.aclose()  # type: ignore[attr-defined]
        if response is not None:
            record.usage = writer.settle()
