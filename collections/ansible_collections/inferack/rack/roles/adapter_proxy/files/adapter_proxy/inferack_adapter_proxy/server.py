"""The HTTP side: handlers, errors, the request's log line and metrics."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Optional

import orjson
from aiohttp import web

from . import __version__, requests
from .config import Loaded
from .engines.base import Answer, estimate
from .faults import CallerFault, ProxyFault
from .logs import Redactor
from .metrics import CONTENT_TYPE, Metrics
from .routing import Candidate
from .service import Record, Service
from .streaming import Writer, relay
from .trace import Trace, start

_log = logging.getLogger("inferack_adapter_proxy")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Turn:
    """What goes with one request from its beginning to its log line. service: the configuration it began with."""

    trace: Trace
    record: Record
    service: Service
    began: float


#: aiohttp before 3.14 (Python 3.9) takes only strings as keys of a request.
_TURN: Any = web.RequestKey("turn", Turn) if hasattr(web, "RequestKey") else "turn"

#: Paths whose requests are logged and counted.
_COUNTED = ("/infer", "/v1/chat/completions")


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


class Proxy:
    """The application. `swap` replaces the configuration without touching requests in progress."""

    def __init__(self, loaded: Loaded, redact: Redactor, release: str = "") -> None:
        self.redact = redact
        self.release = release
        self.metrics = Metrics()
        self.draining = False
        self._loaded = loaded
        self._service: Optional[Service] = None
        self._old: set[asyncio.Task[None]] = set()
        redact.know(loaded.keys.values())

    @property
    def service(self) -> Service:
        """The configuration at work."""
        if self._service is None:
            raise RuntimeError("the application has not been started")
        return self._service

    def application(self) -> web.Application:
        """The aiohttp application; run it with `handler_cancellation=True`."""
        app = web.Application(client_max_size=0, middlewares=[self._around])
        app.router.add_post("/infer", self.infer)
        app.router.add_post("/v1/chat/completions", self.chat)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/healthz", self.healthz)
        app.router.add_get("/readyz", self.readyz)
        app.router.add_get("/metrics", self.metrics_text)
        app.on_response_prepare.append(self._headers)
        app.on_startup.append(self._start)
        app.on_cleanup.append(self._stop)
        return app

    async def _start(self, _app: web.Application) -> None:
        self._service = Service(self._loaded, self.metrics)
        self._service.start()

    async def _stop(self, _app: web.Application) -> None:
        for task in list(self._old):
            task.cancel()
        await asyncio.gather(*self._old, return_exceptions=True)
        await self.service.close()

    async def swap(self, loaded: Loaded) -> None:
        """Put another configuration to work; the old one ends when its last request has."""
        self.redact.know(loaded.keys.values())
        old = self.service
        logging.getLogger().setLevel(loaded.config.log.level.upper())
        self._service = Service(loaded, self.metrics)
        self._service.start()
        task = asyncio.create_task(self._retire(old))
        self._old.add(task)
        task.add_done_callback(self._old.discard)

    async def drain(self) -> None:
        """Wait for the requests in progress, as long as the configuration allows."""
        self.draining = True
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self.service.config.drain_s
        while (self.service.in_flight or self._old) and loop.time() < give_up_at:
            await asyncio.sleep(0.05)

    async def _retire(self, service: Service) -> None:
        try:
            await service.stop_probing()
            while service.in_flight:
                await asyncio.sleep(0.2)
        finally:
            await service.close()

    # What surrounds every request

    @web.middleware
    async def _around(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        turn = Turn(start(request.headers.get("traceparent")), Record(), self.service, asyncio.get_running_loop().time())
        request[_TURN] = turn
        if request.path not in _COUNTED:
            return await self._answered(request, handler, turn)
        turn.service.in_flight += 1
        status = 499  # as nginx calls a caller that left
        try:
            response = await self._answered(request, handler, turn)
            status = response.status
            return response
        finally:
            turn.service.in_flight -= 1
            self._settle(request, turn, status)

    async def _answered(self, request: web.Request, handler: Handler, turn: Turn) -> web.StreamResponse:
        """The handler's response, or the error's."""
        try:
            return await handler(request)
        except ProxyFault as error:
            fault: ProxyFault = error
        except web.HTTPNotFound:
            fault = CallerFault(404, "not_found", f"there is no {request.path}")
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            fault = CallerFault(405, "method_not_allowed", f"{request.path} takes {allowed}, not {request.method}")
        except web.HTTPException as error:
            fault = CallerFault(error.status, "http_error", error.reason)
        except (ConnectionResetError, asyncio.CancelledError):
            turn.record.code = "caller_left"
            raise
        except Exception:
            _log.exception("a fault of the proxy's own", extra={"fields": {"event": "bug", "trace_id": turn.trace.trace_id}})
            fault = ProxyFault(500, "internal_error", "the proxy failed; its log has the reason under the trace id")
        turn.record.code = fault.code
        if turn.record.committed and request.transport is not None:
            request.transport.abort()  # a second status cannot follow the first
        return self._error(fault, turn.trace)

    def _error(self, fault: ProxyFault, trace: Trace) -> web.Response:
        body = fault.body(trace.trace_id)
        body["error"]["message"] = self.redact(fault.message)
        response = _json(body, fault.status)
        if fault.retry_after is not None:
            response.headers["Retry-After"] = str(max(1, math.ceil(fault.retry_after)))
        if fault.engine:
            response.headers["x-inferack-engine"] = fault.engine
        return response

    async def _headers(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Server"] = "inferack-adapter-proxy"
        if self.draining:
            response.headers["Connection"] = "close"
            response.force_close()
        turn: Optional[Turn] = request.get(_TURN)
        if turn is None:
            return
        response.headers["x-trace-id"] = turn.trace.trace_id
        response.headers["traceparent"] = turn.trace.traceparent
        if turn.record.engine:
            response.headers["x-inferack-engine"] = turn.record.engine

    def _settle(self, request: web.Request, turn: Turn, status: int) -> None:
        """Count and log one request, whatever became of it."""
        record = turn.record
        seconds = asyncio.get_running_loop().time() - turn.began
        metrics = self.metrics
        route = record.route or record.model
        metrics.requests.labels(request.path, route, record.engine, str(status)).inc()
        metrics.seconds.labels(request.path, route, record.engine).observe(seconds)
        first = None if record.first_content_s is None else record.first_content_s - turn.began
        if first is not None:
            metrics.first_content.labels(route, record.engine).observe(first)
        if record.usage is not None:
            metrics.tokens.labels(route, record.engine, "prompt").inc(record.usage.prompt)
            metrics.tokens.labels(route, record.engine, "completion").inc(record.usage.completion)
        fields: dict[str, Any] = {
            "event": "request",
            "trace_id": turn.trace.trace_id,
            "method": request.method,
            "path": request.path,
            "status": status,
            "model": record.model,
            "route": record.route,
            "engine": record.engine,
            "stream": record.stream,
            "attempts": record.attempts,
            "duration_s": round(seconds, 6),
            "first_content_s": None if first is None else round(first, 6),
            "engine_s": None if record.engine_s is None else round(record.engine_s, 6),
            "prompt_tokens": record.usage.prompt if record.usage else None,
            "completion_tokens": record.usage.completion if record.usage else None,
            "timed_out": record.timed_out,
            "code": record.code,
            "faults": record.faults,
        }
        level = logging.WARNING if status >= 500 or record.code == "interrupted" else logging.INFO
        if _log.isEnabledFor(level):
            _log.log(level, "request", extra={"fields": fields})

    # The API

    async def infer(self, request: web.Request) -> web.StreamResponse:
        """POST /infer."""
        began = time.perf_counter()
        turn: Turn = request[_TURN]
        record, trace, service = turn.record, turn.trace, turn.service
        wanted = requests.infer(requests.json_object(await self._body(request, service.config.limits.request_bytes)))
        name = self._resolve(service, wanted.model, record)
        candidate, answer = await service.complete(name, wanted.ask(trace), record)
        record.usage = answer.usage or estimate(wanted.text, answer.text)
        return _json(
            {
                "output": answer.text,
                "model": candidate.model,
                "engine": candidate.state.name,
                "trace_id": trace.trace_id,
                "timings": {
                    "total_s": round(time.perf_counter() - began, 6),
                    "engine_s": round(record.engine_s or 0.0, 6),
                    "attempts": record.attempts,
                },
            }
        )

    async def _body(self, request: web.Request, limit: int) -> bytes:
        """The request's body. The limit is the configuration's that the request began with, not the application's."""
        fault = CallerFault(413, "request_too_large", f"the body is larger than {limit} bytes")
        if (request.content_length or 0) > limit:
            raise fault
        parts: list[bytes] = []
        size = 0
        async for part in request.content.iter_any():
            size += len(part)
            if size > limit:
                raise fault
            parts.append(part)
        return b"".join(parts)

    def _resolve(self, service: Service, model: Optional[str], record: Record) -> str:
        name = service.router.resolve(model)
        record.model = name
        record.route = service.router.route(name)
        return name

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions."""
        turn: Turn = request[_TURN]
        record, trace, service = turn.record, turn.trace, turn.service
        wanted = requests.chat(requests.json_object(await self._body(request, service.config.limits.request_bytes)))
        name = self._resolve(service, wanted.model, record)
        record.stream = wanted.stream
        if not wanted.stream:
            _candidate, answer = await service.complete(name, wanted.ask(trace), record)
            body = self._completion(answer, name, trace, wanted)
            return _json(body)
        writer = Writer(request, wanted, name, trace, record)

        async def once(candidate: Candidate, total_at: float) -> web.StreamResponse:
            return await relay(service, writer, candidate, total_at, self.redact)

        return await service.attempt(name, record, once)

    def _completion(self, answer: Answer, name: str, trace: Trace, wanted: requests.ChatRequest) -> dict[str, Any]:
        """A chat completion: the engine's own with the public model name, or one made from the text."""
        usage = answer.usage
        if usage is None:
            usage = estimate(" ".join(str(message.get("content") or "") for message in wanted.messages), answer.text)
        if answer.body is not None:
            body = {**answer.body, "model": name}
            if answer.usage is None:
                body["usage"] = usage.as_dict()
            return body
        return {
            "id": f"chatcmpl-{trace.trace_id}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": name,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": answer.text},
                    "finish_reason": answer.finish_reason,
                }
            ],
            "usage": usage.as_dict(),
        }

    async def models(self, _request: web.Request) -> web.StreamResponse:
        """GET /v1/models."""
        _all_ready, report = self.service.readiness()
        data = [
            {"id": name, "object": "model", "created": 0, "owned_by": "inferack", "ready": state["ready"]}
            for name, state in report["models"].items()
        ]
        return _json({"object": "list", "data": data})

    async def healthz(self, _request: web.Request) -> web.StreamResponse:
        """GET /healthz: this process works, with this version and this configuration."""
        sha256 = self.service.loaded.sha256
        return _json({"status": "ok", "version": __version__, "release": self.release, "config_sha256": sha256})

    async def readyz(self, _request: web.Request) -> web.StreamResponse:
        """GET /readyz: every route and model has an engine that is ready."""
        ready, report = self.service.readiness()
        if self.draining:
            ready, report["status"] = False, "draining"
        body = self.redact(orjson.dumps(report).decode())
        return web.Response(text=body, status=200 if ready else 503, content_type="application/json")

    async def metrics_text(self, _request: web.Request) -> web.StreamResponse:
        """GET /metrics."""
        return web.Response(body=self.metrics.text(self.service.states.values()), headers={"Content-Type": CONTENT_TYPE})
