"""What an engine adapter is, and what all that speak HTTP share.

A new engine is one file in this folder with `Options` (a pydantic model, its part of the configuration) and `Adapter`, a
subclass of `Engine`. The file's name is what the configuration calls `adapter`.
"""

from __future__ import annotations

import abc
import asyncio
import email.utils
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Optional

import aiohttp
import orjson

from ..config import EngineConfig, Timeouts
from ..faults import EngineFault
from ..sse import Event, SseParser
from ..trace import Trace

#: vLLM and uvicorn close idle connections after 5 s; a client that keeps them longer sends into closed ones.
KEEPALIVE_S = 4.0
#: An engine's answer, when it is not a stream, must fit in memory, bytes.
MAX_ANSWER_BYTES = 64 * 1024 * 1024
#: Retry-After beyond this is taken as this, seconds.
MAX_RETRY_AFTER_S = 600.0
_DETAIL_LENGTH = 300


@dataclass(frozen=True)
class Usage:
    """Tokens of one request. estimated: counted by the proxy because the engine sent none."""

    prompt: int
    completion: int
    estimated: bool = False

    def as_dict(self) -> dict[str, Any]:
        """As OpenAI writes it; `estimated` is added only when it is true."""
        usage: dict[str, Any] = {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
        }
        if self.estimated:
            usage["estimated"] = True
        return usage


def estimate(prompt: str, completion: str) -> Usage:
    """About four bytes of UTF-8 a token, at least one for a text that is not empty; marked as an estimate."""
    count = [-(-len(text.encode("utf-8", "replace")) // 4) for text in (prompt, completion)]
    return Usage(count[0], count[1], estimated=True)


@dataclass(frozen=True)
class Ask:
    """What a caller wants, engine-neutral.

    messages: chat messages in OpenAI's form. options: every other field of a chat completion but model and streaming.
    text: the plain text of `/infer`, else None. trace: goes on to the engine.
    """

    messages: list[dict[str, Any]]
    options: dict[str, Any]
    trace: Trace
    text: Optional[str] = None


@dataclass(frozen=True)
class Answer:
    """A whole answer. body: the chat completion as the engine wrote it, when it speaks OpenAI."""

    text: str
    finish_reason: str = "stop"
    usage: Optional[Usage] = None
    body: Optional[dict[str, Any]] = None


class Piece:
    """A part of a stream.

    text: new text. content: this is content (text, a tool call, reasoning), so that from here on nothing can be repeated.
    finish_reason: set on the last one. usage: when the engine counts.
    chunk: the event as the engine wrote it, when it speaks OpenAI; raw: the same as bytes, fit to be passed on as it is.
    """

    __slots__ = ("chunk", "content", "finish_reason", "raw", "text", "usage")

    def __init__(
        self,
        text: str = "",
        content: bool = False,
        finish_reason: Optional[str] = None,
        usage: Optional[Usage] = None,
        chunk: Optional[dict[str, Any]] = None,
        raw: Optional[bytes] = None,
    ) -> None:
        self.text = text
        self.content = content
        self.finish_reason = finish_reason
        self.usage = usage
        self.chunk = chunk
        self.raw = raw


class Engine(abc.ABC):
    """One engine, for as long as a configuration lasts.

    Every method raises only EngineFault (and CancelledError); cancelling ends the engine's work where the engine can.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.name = config.name

    def served(self, model: str) -> str:
        """The engine's own name of a model."""
        return self.config.served_as.get(model, model)

    @abc.abstractmethod
    async def complete(self, model: str, ask: Ask) -> Answer:
        """One whole answer."""

    @abc.abstractmethod
    def stream(self, model: str, ask: Ask) -> AsyncIterator[Piece]:
        """The answer piece by piece; an async generator, which ends after the last piece and raises when cut short."""

    @abc.abstractmethod
    async def ready(self, canary: bool) -> Mapping[str, str]:
        """For each model the reason why it cannot answer now, empty when it can. canary: ask it a real question."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Let go of connections."""


@dataclass
class _Call:
    """Whether a request went over a connection that had been used before."""

    reused: bool = field(default=False)


async def _mark_reused(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: Any) -> None:
    if isinstance(context.trace_request_ctx, _Call):
        context.trace_request_ctx.reused = True


def retry_after(value: Optional[str], now: Optional[float] = None) -> Optional[float]:
    """Seconds in a Retry-After header, which holds seconds or a date; capped, None when there is none or it is unreadable."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - (time.time() if now is None else now)
        except (TypeError, ValueError):
            return None
    if seconds != seconds:  # nan
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S)


def said(error: Any) -> str:
    """The message in an engine's error, on one line and not too long. Never used for refused keys, which it may repeat."""
    for _ in range(2):  # an error may lie in an error
        if isinstance(error, dict):
            error = error.get("message") or error.get("detail") or error.get("error") or error
    words = error if isinstance(error, str) else orjson.dumps(error, default=str).decode()
    text = " ".join(re.sub(r"[\x00-\x1f\x7f]", " ", words).split())
    return text if len(text) <= _DETAIL_LENGTH else text[: _DETAIL_LENGTH - 1] + "…"


def loads(data: bytes) -> Any:
    """JSON; bytes that are not UTF-8 are replaced rather than refused. Raises ValueError."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return orjson.loads(data.decode("utf-8", "replace"))


class HttpEngine(Engine):
    """Connections, headers and the meaning of HTTP statuses, for engines that speak HTTP."""

    #: What a plain 500 means here.
    status_500 = "failed"

    def __init__(self, config: EngineConfig, timeouts: Timeouts, key: Optional[str]) -> None:
        super().__init__(config)
        self.base_url = config.base_url
        self._connect_s = timeouts.connect_s
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "inferack-adapter-proxy"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._session: Optional[aiohttp.ClientSession] = None

    def session(self) -> aiohttp.ClientSession:
        """The engine's own client session, made when it is first needed (inside the event loop)."""
        if self._session is None:
            tracing = aiohttp.TraceConfig()
            tracing.on_connection_reuseconn.append(_mark_reused)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
                # Only the connection: the other timers belong to the watchdog, which knows the phases.
                timeout=aiohttp.ClientTimeout(total=None, connect=self._connect_s, sock_connect=self._connect_s),
                trace_configs=[tracing],
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=True,
                trust_env=False,
            )
        return self._session

    async def close(self) -> None:
        """Close the session; requests in progress have ended before."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    @asynccontextmanager
    async def request(
        self, method: str, path: str, body: Optional[bytes] = None, trace: Optional[Trace] = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A response whose status is 200; everything else is raised as an EngineFault.

        A connection that the engine closed while it lay idle is replaced once; nothing had been answered on it.
        Leaving the block early closes the connection, which is how an engine learns that nobody waits.
        """
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
        if trace is not None:
            headers["traceparent"] = trace.traceparent
        response = await self._send(method, path, body, headers)
        try:
            if response.status != 200:
                raise await self._status_fault(response)
            try:
                yield response
            except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:
                raise EngineFault("closed", self.name, f"the connection ended early ({_plain(error)})") from error
        finally:
            response.release()

    async def _send(self, method: str, path: str, body: Optional[bytes], headers: dict[str, str]) -> aiohttp.ClientResponse:
        repeated = False
        while True:
            call = _Call()
            try:
                return await self.session().request(
                    method,
                    self.base_url + path,
                    data=body,
                    headers=headers,
                    allow_redirects=False,
                    trace_request_ctx=call,
                )
            except asyncio.TimeoutError as error:
                detail = f"no connection within {self._connect_s:g} s"
                raise EngineFault("timeout", self.name, detail, phase="connect") from error
            except (aiohttp.ClientConnectorError, aiohttp.InvalidURL) as error:
                raise EngineFault("connect", self.name, f"cannot be reached ({_plain(error)})") from error
            except (aiohttp.ServerDisconnectedError, ConnectionResetError, BrokenPipeError, aiohttp.ClientOSError) as error:
                if call.reused and not repeated:
                    repeated = True
                    continue
                raise EngineFault("closed", self.name, "closed the connection without an answer") from error
            except aiohttp.ClientError as error:
                raise EngineFault("garbled", self.name, f"answered with invalid HTTP ({_plain(error)})") from error

    async def read(self, response: aiohttp.ClientResponse) -> bytes:
        """The whole body. Raises EngineFault when it is larger than memory allows."""
        parts: list[bytes] = []
        size = 0
        async for part in response.content.iter_any():
            size += len(part)
            if size > MAX_ANSWER_BYTES:
                raise EngineFault("garbled", self.name, f"an answer of more than {MAX_ANSWER_BYTES} bytes")
            parts.append(part)
        return b"".join(parts)

    def events(self, parser: SseParser, chunk: Optional[bytes] = None) -> list[Event]:
        """The events of one more chunk, or without a chunk what is left at the end. Raises EngineFault for a monstrous one."""
        try:
            return parser.close() if chunk is None else parser.feed(chunk)
        except ValueError as error:
            raise EngineFault("garbled", self.name, f"sent {error}") from error

    async def _status_fault(self, response: aiohttp.ClientResponse) -> EngineFault:
        text = b""
        # The status alone says enough when its explanation does not arrive.
        with suppress(aiohttp.ClientError, OSError, asyncio.TimeoutError):
            text = await response.content.read(65536)
        try:
            body: Any = loads(text)
        except ValueError:
            body = text.decode("utf-8", "replace")
        error = body.get("error", body) if isinstance(body, dict) else body
        return self.fault_of(response.status, error, retry_after(response.headers.get("Retry-After")))

    def fault_of(self, status: int, error: Any, after: Optional[float] = None) -> EngineFault:
        """What a status, of HTTP or inside an error event, means."""
        detail = f"{status}: {said(error)}" if error else f"{status} without an explanation"
        if status in (401, 403):
            # The engine's words may repeat the key.
            return EngineFault("key", self.name, f"{status}: refused our key; check the engine's key")
        if status == 404:
            return EngineFault("no_model", self.name, detail)
        if status in (429, 503):
            return EngineFault("busy", self.name, detail, retry_after=after)
        if status in (408, 504):
            return EngineFault("timeout", self.name, detail, phase="engine")
        if 300 <= status < 400:
            return EngineFault("garbled", self.name, f"{status}: redirects elsewhere; check the base URL")
        if 400 <= status < 500:
            param = error.get("param") if isinstance(error, dict) else None
            return EngineFault("bad_request", self.name, detail, param=param if isinstance(param, str) else None)
        if status == 500:
            return EngineFault(self.status_500, self.name, detail)
        return EngineFault("failed", self.name, detail)


def _plain(error: BaseException) -> str:
    """An exception in a few words: the operating system's where there are any, without addresses of objects."""
    cause = getattr(error, "os_error", None) or error
    words = getattr(cause, "strerror", None)
    return str(words) if words else type(error).__name__
