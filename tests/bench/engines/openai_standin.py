#!/usr/bin/env python3
"""Stand-in for engines that speak the OpenAI API: an NVIDIA NIM, and an LPU service.

Simulated. No language model runs here: an answer is `<model> says: <last user message>`, the same for the same
question, so that a test can tell a right answer from a wrong one. What is real is the behaviour around the
answer: the key check, the slow start, streaming, usage, the strict schema, limits and their headers, and the
error bodies of the two originals.

Standard library only, Python 3.9 and later; one asyncio process.

    openai_standin.py --mode nim --port 8000 --model meta/llama-3.1-8b-instruct --ready-delay 5
    openai_standin.py --mode lpu --port 8080 --model llama-3.3-70b-versatile --api-key gsk_bench

Modes
    nim  needs NGC_API_KEY at start and ends with NIM's words without a valid one; no key per request;
         /v1/health/live at once, /v1/health/ready after the delay; unknown request fields are a 400.
    lpu  needs `Authorization: Bearer KEY` on each request (401); x-ratelimit-* on every reply, Retry-After on
         a 429 only; answers below /v1 and below /openai/v1.

Faults
    For one request: header `X-Bench-Fault: NAME[=NUMBER]`. For the next requests, whoever sends them:
    `POST /bench/fault {"fault": NAME, "value": NUMBER, "count": N}`; `DELETE /bench/fault` ends them.
    `GET /bench/state` tells what was served, how many callers left early, and the requests in flight.
    Names: 429 (value: Retry-After in seconds), 500, 503, slow-first (seconds before the first content), stall
    (silent for ever after the first content), drop (connection closed in the middle of a stream), error-event
    (200, then an error event), not-ready, close-idle.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

IDLE_SECONDS = 5.0  # uvicorn and vLLM close an idle connection after 5 s
MAX_BODY_BYTES = 8 * 1024 * 1024
CHAT_FIELDS = frozenset(
    (
        "model",
        "messages",
        "stream",
        "stream_options",
        "max_tokens",
        "temperature",
        "top_p",
        "n",
        "stop",
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "user",
        "tools",
        "tool_choice",
        "response_format",
        "nvext",
    )
)
LPU_EXTRA_FIELDS = frozenset(("max_completion_tokens", "service_tier", "reasoning_effort"))
REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Payload Too Large",
    422: "Unprocessable Entity",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


@dataclasses.dataclass
class Request:
    """One parsed HTTP/1.1 request; header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class HttpError(Exception):
    """Ends a request with a status, an error body and further headers."""

    def __init__(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        super().__init__(str(status))
        self.status, self.body, self.headers = status, body, headers or {}


@dataclasses.dataclass
class Fault:
    """A fault to show: its name, a number that belongs to it, and for how many requests."""

    name: str
    value: float = 0.0
    count: int = 1


def parse_fault(text: str) -> Fault:
    """Read `NAME[=NUMBER]`."""
    name, _, value = text.strip().partition("=")
    return Fault(name=name, value=float(value or 0))


def count_tokens(text: str) -> int:
    """Tokens of a text, here its words; at least 1."""
    return max(1, len(text.split()))


def answer_for(model: str, prompt: str) -> str:
    """The stand-in's answer: the same for the same question."""
    return f"{model} says: {prompt}"


def pieces_of(text: str) -> list[str]:
    """Split a text into streamed pieces (words with the blank before them); joined they give the text."""
    words = text.split(" ")
    return [words[0]] + [" " + word for word in words[1:]]


def content_text(content: Any) -> str:
    """Text of a message's content: a string, or a list of parts of type text."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return ""


class Server:
    """The stand-in: its settings, its counters, and one handler a path."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.mode: str = options.mode
        self.models: list[str] = options.model
        self.keys: list[str] = options.api_key
        self.token_delay: float = options.token_delay
        self.limit_per_minute: int = options.requests_per_minute
        self.started = time.monotonic()
        self.ready_at = self.started + options.ready_delay
        self.faults: list[Fault] = []
        self.window_start, self.window_used = 0.0, 0
        self.served = self.left_early = self.in_flight = self.sequence = 0

    # -- errors in the words of the originals ---------------------------------------------------------------

    def error(
        self, status: int, message: str, kind: str, code: str | None = None, headers: dict[str, str] | None = None
    ) -> HttpError:
        """An error in the shape of the mode: vLLM's flat object for nim, Groq's nested one for lpu."""
        if self.mode == "nim":
            body: dict[str, Any] = {"object": "error", "message": message, "type": kind, "param": None, "code": status}
        else:
            body = {"error": {"message": message, "type": kind}}
            if code:
                body["error"]["code"] = code
        return HttpError(status, body, headers)

    # -- gates --------------------------------------------------------------------------------------------

    def check_key(self, request: Request) -> None:
        """Raise a 401 in lpu mode unless the bearer key is one of ours."""
        if self.mode != "lpu":
            return
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or key.strip() not in self.keys:
            raise self.error(401, "Invalid API Key", "invalid_request_error", "invalid_api_key")

    def check_ready(self) -> None:
        """Raise a 503 while the service starts."""
        if time.monotonic() < self.ready_at or any(fault.name == "not-ready" for fault in self.faults):
            raise HttpError(503, {"object": "health.response", "message": "Service is not ready."})

    def limit_headers(self) -> dict[str, str]:
        """Headers that tell the limits, on every reply of the lpu mode."""
        if self.mode != "lpu":
            return {}
        left = max(0, self.limit_per_minute - self.window_used)
        reset = max(0.0, 60.0 - (time.monotonic() - self.window_start))
        return {
            "x-ratelimit-limit-requests": str(self.limit_per_minute),
            "x-ratelimit-remaining-requests": str(left),
            "x-ratelimit-reset-requests": f"{reset:.3f}s",
            "x-ratelimit-limit-tokens": "300000",
            "x-ratelimit-remaining-tokens": "299000",
            "x-ratelimit-reset-tokens": "120ms",
        }

    def take_slot(self, model: str) -> None:
        """Count a request against the minute's limit; raise a 429 beyond it."""
        if self.mode != "lpu":
            return
        now = time.monotonic()
        if now - self.window_start >= 60.0:
            self.window_start, self.window_used = now, 0
        if self.window_used >= self.limit_per_minute:
            raise self.too_many(model, 60.0 - (now - self.window_start))
        self.window_used += 1

    def too_many(self, model: str, seconds: float) -> HttpError:
        """A 429 with Retry-After in whole seconds (at least 1)."""
        wait = max(1, int(seconds + 0.999))
        return self.error(
            429,
            f"Rate limit reached for model `{model}` in organization `org_bench` on requests per "
            f"minute (RPM): Limit {self.limit_per_minute}. Please try again in {wait}s.",
            "requests",
            "rate_limit_exceeded",
            {"Retry-After": str(wait)},
        )

    def take_fault(self, request: Request) -> Fault:
        """The fault for this request: its own header first, then the next one that was ordered."""
        own = request.headers.get("x-bench-fault")
        if own:
            return parse_fault(own)
        for fault in self.faults:
            if fault.name == "not-ready":
                continue
            fault.count -= 1
            if fault.count <= 0:
                self.faults.remove(fault)
            return fault
        return Fault("")

    # -- chat ---------------------------------------------------------------------------------------------

    def read_chat(self, request: Request) -> tuple[dict[str, Any], str]:
        """Parse and check a chat request; return it with the prompt. Raises HttpError with a 4xx."""
        try:
            body = json.loads(request.body)
        except ValueError as exc:
            raise self.error(400, f"JSON decode error: {exc}", "BadRequestError") from exc
        if not isinstance(body, dict):
            raise self.error(400, "the body must be a JSON object", "BadRequestError")
        known = CHAT_FIELDS if self.mode == "nim" else CHAT_FIELDS | LPU_EXTRA_FIELDS
        for field in sorted(set(body) - known):
            if self.mode == "nim":
                detail = [
                    {
                        "type": "extra_forbidden",
                        "loc": ("body", field),
                        "msg": "Extra inputs are not permitted",
                        "input": body[field],
                    }
                ]
                raise self.error(400, str(detail), "BadRequestError")
            raise self.error(400, f"property '{field}' is unsupported", "invalid_request_error")
        if "max_tokens" in body and "max_completion_tokens" in body:
            raise self.error(400, "max_tokens and max_completion_tokens exclude each other", "invalid_request_error")
        if "stream_options" in body and not body.get("stream"):
            raise self.error(400, "Stream options can only be defined when `stream=True`.", "BadRequestError")
        model = body.get("model")
        if model not in self.models:
            if self.mode == "nim":
                raise self.error(404, f"The model `{model}` does not exist.", "NotFoundError")
            raise self.error(
                404,
                f"The model `{model}` does not exist or you do not have access to it.",
                "invalid_request_error",
                "model_not_found",
            )
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
            raise self.error(400, "'messages' : minimum number of items is 1", "invalid_request_error")
        users = [content_text(m.get("content")) for m in messages if m.get("role") == "user"]
        if not users:
            raise self.error(400, "'messages' : a message with role 'user' is missing", "invalid_request_error")
        limit = body.get("max_tokens", body.get("max_completion_tokens"))
        if limit is not None and (not isinstance(limit, int) or limit < 1):
            raise self.error(400, f"max_tokens must be at least 1, got {limit}.", "BadRequestError")
        return body, users[-1]

    def finish(self, body: dict[str, Any], prompt: str) -> tuple[list[str], str, dict[str, int]]:
        """The pieces of the answer, the finish reason and the usage for a request."""
        pieces = pieces_of(answer_for(body["model"], prompt))
        limit = body.get("max_tokens", body.get("max_completion_tokens"))
        reason = "stop"
        if limit is not None and limit < len(pieces):
            pieces, reason = pieces[:limit], "length"
        asked = sum(count_tokens(content_text(m.get("content"))) for m in body["messages"])
        usage = {"prompt_tokens": asked, "completion_tokens": len(pieces), "total_tokens": asked + len(pieces)}
        return pieces, reason, usage

    async def stream(self, body: dict[str, Any], prompt: str, fault: Fault, base: dict[str, Any]) -> AsyncIterator[str]:
        """Server-sent events of a chat answer: a role event with empty content first, as vLLM does."""
        pieces, reason, usage = self.finish(body, prompt)
        base = dict(base, object="chat.completion.chunk")

        def event(delta: dict[str, Any], finish: str | None = None) -> str:
            return "data: " + json.dumps(dict(base, choices=[{"index": 0, "delta": delta, "finish_reason": finish}])) + "\n\n"

        if fault.name == "error-event":
            yield "data: " + json.dumps(self.error(500, "the engine failed", "InternalServerError").body) + "\n\n"
            return
        yield event({"role": "assistant", "content": ""})
        if fault.name == "slow-first":
            await asyncio.sleep(fault.value)
        for number, piece in enumerate(pieces):
            if number and fault.name == "stall":
                await asyncio.sleep(3600)
            if number and fault.name == "drop":
                raise ConnectionAbortedError("ordered by a fault")
            if number and self.token_delay:
                await asyncio.sleep(self.token_delay)
            yield event({"content": piece})
        yield event({}, reason)
        if (body.get("stream_options") or {}).get("include_usage"):
            yield "data: " + json.dumps(dict(base, choices=[], usage=usage)) + "\n\n"
        yield "data: [DONE]\n\n"

    async def chat(self, request: Request, connection: Connection) -> None:
        """POST /v1/chat/completions."""
        self.check_key(request)
        self.check_ready()
        body, prompt = self.read_chat(request)
        fault = self.take_fault(request)
        if fault.name == "429":
            raise self.too_many(body["model"], fault.value or 1)
        if fault.name in ("500", "503"):
            raise self.error(int(fault.name), "the engine failed", "InternalServerError")
        self.take_slot(body["model"])
        self.sequence += 1
        base = {"id": f"chatcmpl-{self.sequence:08d}", "created": int(time.time()), "model": body["model"]}
        if body.get("stream"):
            await connection.send_stream(self.stream(body, prompt, fault, base), self.limit_headers())
        else:
            if fault.name in ("slow-first", "stall"):
                await asyncio.sleep(fault.value if fault.name == "slow-first" else 3600)
            if fault.name == "drop":
                raise ConnectionAbortedError("ordered by a fault")
            pieces, reason, usage = self.finish(body, prompt)
            await asyncio.sleep(self.token_delay * len(pieces))
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": "".join(pieces)},
                "finish_reason": reason,
                "logprobs": None,
            }
            await connection.send(
                200, dict(base, object="chat.completion", choices=[choice], usage=usage), self.limit_headers()
            )
        self.served += 1

    # -- the other paths ----------------------------------------------------------------------------------

    async def list_models(self, request: Request, connection: Connection) -> None:
        """GET /v1/models."""
        self.check_key(request)
        self.check_ready()
        owner = "system" if self.mode == "nim" else "Meta"
        rows = [{"id": name, "object": "model", "created": 1700000000, "owned_by": owner} for name in self.models]
        await connection.send(200, {"object": "list", "data": rows}, self.limit_headers())

    async def health(self, request: Request, connection: Connection) -> None:
        """GET /v1/health/live and /v1/health/ready (NIM)."""
        if request.path.endswith("/ready"):
            self.check_ready()
            await connection.send(200, {"object": "health.response", "message": "Service is ready."})
        else:
            await connection.send(200, {"object": "health.response", "message": "Service is live."})

    async def control(self, request: Request, connection: Connection) -> None:
        """The bench's own paths below /bench/."""
        if request.path == "/bench/fault" and request.method == "POST":
            order = json.loads(request.body)
            self.faults.append(Fault(str(order["fault"]), float(order.get("value", 0)), int(order.get("count", 1))))
        elif request.path == "/bench/fault" and request.method == "DELETE":
            self.faults.clear()
        elif request.path != "/bench/state":
            raise self.error(404, "Not Found", "NotFoundError")
        await connection.send(
            200,
            {
                "served": self.served,
                "left_early": self.left_early,
                "in_flight": self.in_flight,
                "faults": [dataclasses.asdict(fault) for fault in self.faults],
            },
        )

    async def route(self, request: Request, connection: Connection) -> None:
        """Hand a request to the handler of its path."""
        path = request.path
        if self.mode == "lpu" and path.startswith("/openai/"):
            path = path[len("/openai") :]
        if path.startswith("/bench/"):
            await self.control(request, connection)
        elif self.mode == "nim" and path in ("/v1/health/live", "/v1/health/ready"):
            await self.health(request, connection)
        elif path == "/v1/models" and request.method == "GET":
            await self.list_models(request, connection)
        elif path == "/v1/chat/completions":
            if request.method != "POST":
                raise self.error(405, "Method Not Allowed", "MethodNotAllowed")
            await self.chat(request, connection)
        else:
            raise self.error(404, f"Unknown request URL: {request.method} {request.path}.", "NotFoundError", "unknown_url")


class Connection:
    """One client connection: reads requests, writes replies, notices a caller that leaves."""

    def __init__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server, self.reader, self.writer = server, reader, writer

    async def read(self) -> Request | None:
        """The next request; None at the end of the connection."""
        try:
            head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), IDLE_SECONDS)
        except (asyncio.IncompleteReadError, asyncio.TimeoutError, asyncio.LimitOverrunError, ConnectionError):
            return None
        lines = head.decode("latin-1").split("\r\n")
        method, target = lines[0].split(" ")[:2]
        headers = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if colon:
                headers[name.strip().lower()] = value.strip()
        body = b""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while True:
                size = int((await self.reader.readline()).split(b";")[0], 16)
                chunk = await self.reader.readexactly(size)
                await self.reader.readline()
                if not size:
                    break
                body += chunk
        elif headers.get("content-length"):
            body = await self.reader.readexactly(min(int(headers["content-length"]), MAX_BODY_BYTES))
        return Request(method, target.partition("?")[0], headers, body)

    async def send(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        """A whole JSON reply."""
        data = json.dumps(body).encode()
        self.head(status, dict({"Content-Type": "application/json", "Content-Length": str(len(data))}, **(headers or {})))
        self.writer.write(data)
        await self.writer.drain()

    def head(self, status: int, headers: dict[str, str]) -> None:
        """Status line and headers."""
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Unknown')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    async def send_stream(self, events: AsyncIterator[str], headers: dict[str, str]) -> None:
        """Server-sent events, chunked."""
        self.head(
            200,
            dict(
                {
                    "Content-Type": "text/event-stream; charset=utf-8",
                    "Cache-Control": "no-cache",
                    "Transfer-Encoding": "chunked",
                },
                **headers,
            ),
        )
        async for text in events:
            data = text.encode()
            self.writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            await self.writer.drain()
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    async def answer(self, request: Request) -> None:
        """Handle one request; end the work when the caller leaves before the reply is complete."""
        work = asyncio.ensure_future(self.handle(request))
        while not work.done():
            await asyncio.wait({work}, timeout=0.1)
            if not work.done() and (self.reader.at_eof() or self.writer.is_closing()):
                work.cancel()
                self.server.left_early += 1
                raise ConnectionResetError("the caller left")
        try:
            work.result()
        except (ConnectionResetError, BrokenPipeError):  # it left while something was sent
            self.server.left_early += 1
            raise

    async def handle(self, request: Request) -> None:
        """Route one request and turn an HttpError into its reply."""
        try:
            await self.server.route(request, self)
        except HttpError as exc:
            await self.send(exc.status, exc.body, dict(self.server.limit_headers(), **exc.headers))

    async def serve(self) -> None:
        """Serve the connection until it ends."""
        try:
            while True:
                request = await self.read()
                if request is None:
                    break
                self.server.in_flight += 1
                try:
                    await self.answer(request)
                finally:
                    self.server.in_flight -= 1
                log(f"{request.method} {request.path}")
                if request.headers.get("connection", "").lower() == "close":
                    break
        except (ConnectionError, asyncio.IncompleteReadError, ValueError):
            pass  # the caller left or spoke no HTTP: nothing to answer
        finally:
            self.writer.close()


def log(text: str) -> None:
    """One line on standard output, never with a key or a prompt in it."""
    print(time.strftime("%Y-%m-%d %H:%M:%S"), "INFO", text, flush=True)


def key_fingerprint(key: str) -> str:
    """A short name for a key that does not give it away."""
    return hashlib.sha256(key.encode()).hexdigest()[:8]


def check_ngc_key(key: str) -> str | None:
    """NIM's words when NGC_API_KEY is missing or refused (NVIDIA/NemoClaw issue 3333); None when it is good.

    Every key that starts with nvapi- passes, except nvapi-invalid and nvapi-expired.
    """
    if not key:
        return (
            "nimlib.exceptions.ManifestDownloadError: Error downloading manifest: Authentication Error: NGC_API_KEY is not set"
        )
    if not key.startswith("nvapi-") or key in ("nvapi-invalid", "nvapi-expired"):
        return (
            "nimlib.exceptions.ManifestDownloadError: Error downloading manifest: Authentication Error: "
            "the NGC_API_KEY is invalid"
        )
    return None


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Command line, with environment variables as defaults so that an image can be set up without a command."""
    env = os.environ
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mode", choices=("nim", "lpu"), default=env.get("STANDIN_MODE", "lpu"))
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=int(env.get("NIM_SERVER_PORT", env.get("STANDIN_PORT", "8080"))))
    parser.add_argument("--model", action="append", help="a model's name; may be repeated")
    parser.add_argument("--api-key", action="append", help="a key to accept in lpu mode; may be repeated")
    parser.add_argument("--ready-delay", type=float, default=float(env.get("STANDIN_READY_DELAY", "0")), metavar="S")
    parser.add_argument("--token-delay", type=float, default=float(env.get("STANDIN_TOKEN_DELAY", "0")), metavar="S")
    parser.add_argument("--requests-per-minute", type=int, default=int(env.get("STANDIN_RPM", "100000")))
    options = parser.parse_args(argv)
    options.model = options.model or env.get("NIM_SERVED_MODEL_NAME", env.get("STANDIN_MODELS", "")).split(",")
    options.api_key = options.api_key or env.get("STANDIN_API_KEYS", "").split(",")
    options.model = [name for name in options.model if name]
    options.api_key = [key for key in options.api_key if key]
    if not options.model:
        parser.error("name a model")
    return options


def prepare_cache(path: str) -> str | None:
    """Write the model's profile to NIM's cache, as the first start does; an error's text when it cannot."""
    profile = os.path.join(path, "ngc", "hub", "profile.json")
    try:
        os.makedirs(os.path.dirname(profile), exist_ok=True)
        with open(profile, "w", encoding="utf-8") as handle:
            json.dump({"profile": "stand-in"}, handle)
    except OSError as exc:
        return f"PermissionError: [Errno {exc.errno}] {exc.strerror}: '{profile}'"
    return None


async def run(options: argparse.Namespace) -> None:
    """Serve until the process is ended."""
    server = Server(options)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Connection(server, reader, writer).serve()

    listener = await asyncio.start_server(accept, options.host, options.port, backlog=512)
    log(f"stand-in {options.mode} on port {options.port}: {', '.join(options.model)}")
    async with listener:
        await listener.serve_forever()


def main(argv: list[str]) -> int:
    """Entry point; the exit status."""
    options = parse_arguments(argv)
    if options.mode == "nim":
        key = os.environ.get("NGC_API_KEY", "")
        problem = check_ngc_key(key) or prepare_cache(os.environ.get("NIM_CACHE_PATH", "/opt/nim/.cache"))
        if problem:
            print(problem, file=sys.stderr, flush=True)
            return 1
        log(f"NGC key {key_fingerprint(key)} accepted")
    # As a container's first process it has no default for SIGTERM: without this, a stop takes its whole time-out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        asyncio.run(run(options))
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
