"""Engines that speak OpenAI's API or Triton's, and fail in a chosen way; and the proxy before them.

Each engine is a real server on loopback. What the next requests do is queued in `script`; without a script they succeed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import struct
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
from aiohttp import web
from inferack_adapter_proxy.config import Loaded, parse
from inferack_adapter_proxy.logs import Redactor
from inferack_adapter_proxy.server import Proxy
from inferack_adapter_proxy.sse import SseParser

Behaviour = Callable[["FakeEngine", web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]
KEY = 'sk-secret-Key/with"quote-0123456789'


class FakeEngine(ABC):
    """One engine."""

    def __init__(self, models: list[str]) -> None:
        self.models = models
        self.script: deque[Behaviour] = deque()
        self.probe_status = 200
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[Any] = []
        self.left = asyncio.Event()
        self.asked = asyncio.Event()
        self.url = ""
        self.connections: set[Any] = set()
        self.key = ""
        self.canaries = 0

    @abstractmethod
    def application(self) -> web.Application:
        """The engine's routes."""

    async def handle(self, request: web.Request, default: Behaviour) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.headers.append(request.headers.copy())
        self.connections.add(request.transport)
        self.asked.set()
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return await status(401, {"error": {"message": f"Incorrect API key provided: {self.key}"}})(self, request, {})
        behaviour = self.script.popleft() if self.script else default
        try:
            return await behaviour(self, request, self.bodies[-1])
        except (asyncio.CancelledError, ConnectionResetError):
            self.left.set()
            raise


class FakeOpenAI(FakeEngine):
    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.chat)
        app.router.add_post("/openai/v1/chat/completions", self.chat)
        app.router.add_get("/v1/models", self.list)
        app.router.add_get("/openai/v1/models", self.list)
        return app

    async def list(self, request: web.Request) -> web.Response:
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": {"message": f"bad key {self.key}"}}, status=401)
        return web.json_response({"object": "list", "data": [{"id": model} for model in self.models]}, status=self.probe_status)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        return await self.handle(request, chat_ok("Hello ", "world"))


class FakeTriton(FakeEngine):
    def __init__(self, models: list[str]) -> None:
        super().__init__(models)
        self.answer = b"echo"

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v2/models/{model}/ready", self.ready)
        app.router.add_post("/v2/models/{model}/infer", self.infer)
        app.router.add_post("/v2/models/{model}/generate_stream", self.generate)
        return app

    async def ready(self, request: web.Request) -> web.Response:
        return web.Response(status=self.probe_status if request.match_info["model"] in self.models else 400)

    async def infer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if body["inputs"][0]["data"] == ["ping"]:
            self.canaries += 1
        return await self.handle(request, infer_ok())

    async def generate(self, request: web.Request) -> web.StreamResponse:
        return await self.handle(request, generate_ok(b"one ", b"two"))


# What an OpenAI engine may do


def chunk(**delta: Any) -> bytes:
    return sse({"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": delta}]})


def finish(reason: str = "stop") -> bytes:
    return sse({"id": "c1", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})


def usage_event() -> bytes:
    return sse(
        {"id": "c1", "model": "m", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}}
    )


def sse(data: Any) -> bytes:
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


DONE = b"data: [DONE]\n\n"


def chat_ok(*texts: str, usage: bool = True, delay: float = 0.0) -> Behaviour:
    async def behave(engine: FakeEngine, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if not body.get("stream"):
            await asyncio.sleep(delay)
            answer: dict[str, Any] = {
                "id": "c1",
                "object": "chat.completion",
                "model": body["model"],
                "choices": [{"index": 0, "message": {"role": "assistant", "content": "".join(texts)}, "finish_reason": "stop"}],
            }
            if usage:
                answer["usage"] = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
            return web.json_response(answer)
        asked = (body.get("stream_options") or {}).get("include_usage")
        parts = [chunk(role="assistant", content=""), *(chunk(content=text) for text in texts), finish()]
        if usage and asked:
            parts.append(usage_event())
        return await streamed(request, [*parts, DONE], delay)

    return behave


async def streamed(
    request: web.Request, parts: list[bytes], delay: float = 0.0, kind: str = "text/event-stream"
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": kind})
    await response.prepare(request)
    for part in parts:
        if delay:
            await asyncio.sleep(delay)
        await response.write(part)
    await response.write_eof()
    return response


def stream_of(*parts: bytes, then: str = "end", kind: str = "text/event-stream") -> Behaviour:
    """These bytes, then `end`, `hang` or `cut` (the connection)."""

    async def behave(engine: FakeEngine, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": kind})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        if then == "hang":
            await asyncio.sleep(60)
        if then == "cut":
            await asyncio.sleep(0.05)
            assert request.transport is not None
            request.transport.abort()
            await asyncio.sleep(60)
        await response.write_eof()
        return response

    return behave


def status(code: int, body: Any = None, **headers: str) -> Behaviour:
    async def behave(engine: FakeEngine, request: web.Request, _body: dict[str, Any]) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.json_response({"error": {"message": "said so"}} if body is None else body, status=code, headers=named)

    return behave


def raw_body(body: bytes, kind: str = "application/json", **headers: str) -> Behaviour:
    async def behave(engine: FakeEngine, request: web.Request, _body: dict[str, Any]) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(body=body, headers={"Content-Type": kind, **named})

    return behave


async def hang(engine: FakeEngine, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    await asyncio.sleep(60)
    raise AssertionError("nobody waits this long")


async def reset(engine: FakeEngine, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    await asyncio.sleep(60)
    raise AssertionError("the connection is gone")


# What Triton may do


def infer_ok() -> Behaviour:
    """Binary output where it is asked for, as Triton does."""

    async def behave(engine: FakeEngine, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        assert isinstance(engine, FakeTriton)
        wanted = body["outputs"][0]
        text = engine.answer if engine.answer != b"echo" else body["inputs"][0]["data"][0].upper().encode()
        output: dict[str, Any] = {"name": wanted["name"], "datatype": "BYTES", "shape": [1, 1]}
        head = {"model_name": request.match_info["model"], "model_version": "1", "outputs": [output]}
        if wanted.get("parameters", {}).get("binary_data"):
            blob = struct.pack("<I", len(text)) + text
            output["parameters"] = {"binary_data_size": len(blob)}
            header = json.dumps(head).encode()
            length = {"Inference-Header-Content-Length": str(len(header)), "Content-Type": "application/octet-stream"}
            return web.Response(body=header + blob, headers=length)
        output["data"] = ["@@"]
        return web.Response(body=json.dumps(head).encode().replace(b"@@", text), content_type="application/json")

    return behave


def generate_ok(*texts: bytes) -> Behaviour:
    parts = [sse(b'{"model_name":"m","model_version":"1","output":"' + text + b'"}') for text in texts]
    return stream_of(*parts)


# The proxy before them


class Caller:
    """A caller of one proxy."""

    def __init__(self, url: str, session: aiohttp.ClientSession, proxy: Proxy) -> None:
        self.url = url
        self.session = session
        self.proxy = proxy

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any, Any]:
        """Status, parsed body, headers."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.post(self.url + path, data=data, headers=headers) as response:
            return response.status, await response.json(), response.headers

    async def get(self, path: str) -> tuple[int, str]:
        async with self.session.get(self.url + path) as response:
            return response.status, await response.text()

    async def infer(self, text: str = "hello", **fields: Any) -> tuple[int, Any, Any]:
        return await self.post("/infer", {"text": text, **fields})

    async def chat(self, **fields: Any) -> tuple[int, Any, Any]:
        return await self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}], **fields})

    async def stream(self, **fields: Any) -> tuple[int, list[Any], Any]:
        """Status, events (parsed; `[DONE]` as text) or the error body, headers."""
        body = {"messages": [{"role": "user", "content": "hello"}], "stream": True, **fields}
        async with self.session.post(self.url + "/v1/chat/completions", json=body) as response:
            if response.content_type != "text/event-stream":
                return response.status, [await response.json()], response.headers
            parser = SseParser()
            events = parser.feed(await response.read())
            parsed = [event.data.decode() if event.data == b"[DONE]" else json.loads(event.data) for event in events]
            return response.status, parsed, response.headers

    async def until_ready(self) -> None:
        give_up_at = time.monotonic() + 15
        while time.monotonic() < give_up_at:
            code, body = await self.get("/readyz")
            if code == 200:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"never ready: {body}")


def text_of(events: list[Any]) -> str:
    """The content of a stream's events."""
    return "".join(
        event["choices"][0]["delta"].get("content") or ""
        for event in events
        if isinstance(event, dict) and event.get("choices")
    )


@contextlib.asynccontextmanager
async def serving(app: web.Application, port: int = 0) -> AsyncIterator[str]:
    """The application on loopback; its URL."""
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def engine(kind: type[FakeEngine], *models: str) -> AsyncIterator[Any]:
    fake = kind(list(models) or ["m"])
    async with serving(fake.application()) as url:
        fake.url = url
        yield fake


def entry(name: str, fake: FakeEngine | str, **more: Any) -> dict[str, Any]:
    """An engine's configuration."""
    url = fake if isinstance(fake, str) else fake.url
    models = ["m"] if isinstance(fake, str) else fake.models
    adapter = "triton" if isinstance(fake, FakeTriton) else "openai"
    return {"name": name, "adapter": adapter, "base_url": url, "models": models, **more}


def loaded(config: dict[str, Any], keys: dict[str, str] | None = None) -> Loaded:
    quick = {
        "timeouts": {"connect_s": 0.5, "ttft_s": 0.4, "idle_s": 0.3, "answer_s": 0.4, "total_s": 5},
        "retries": {"delays_s": []},
        "health": {"interval_s": 0.1, "timeout_s": 1, "canary_interval_s": 60},
    }
    text = json.dumps({**quick, **config}).encode()
    return Loaded(parse(text, "test.json"), keys or {}, hashlib.sha256(text).hexdigest())


@contextlib.asynccontextmanager
async def proxy(
    *engines: dict[str, Any], keys: dict[str, str] | None = None, ready: bool = True, **config: Any
) -> AsyncIterator[Caller]:
    """A proxy with these engines, and its caller."""
    redact = Redactor()
    made = Proxy(loaded({"engines": list(engines), **config}, keys), redact)
    async with serving(made.application()) as url, aiohttp.ClientSession() as session:
        caller = Caller(url, session, made)
        if ready:
            await caller.until_ready()
        yield caller
