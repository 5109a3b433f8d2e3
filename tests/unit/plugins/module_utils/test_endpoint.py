"""Questions to engines: addresses, both protocols against servers on loopback, and every way they fail."""

from __future__ import annotations

import http.server
import importlib.util
import json
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.inferack.rack.plugins.module_utils import _endpoint
from ansible_collections.inferack.rack.plugins.module_utils._endpoint import BROKEN, READY, STARTING, Target, look, normalise

KEY = "nvapi-very-secret"
Route = Callable[[str, str, dict[str, Any] | None], tuple[int, Any, str]]


@contextmanager
def serve(route: Route) -> Iterator[str]:
    """A server on loopback; `route(method, path, body)` gives status, body and content type."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_args: Any) -> None:
            pass

        def answer(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, body, kind = route(self.command, self.path, json.loads(raw) if raw else None)
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = answer

    class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def table(rows: dict[tuple[str, str], Any]) -> Route:
    """A route from (method, path) to a body (status 200), or to (status, body[, content type])."""

    def route(method: str, path: str, _body: dict[str, Any] | None) -> tuple[int, Any, str]:
        found = rows.get((method, path), (404, {"error": f"unknown {path}"}))
        row = found if isinstance(found, tuple) else (200, found)
        return row[0], row[1], row[2] if len(row) > 2 else "application/json"

    return route


def statuses(result: _endpoint.Result) -> list[tuple[str, str]]:
    return [(check.id, check.status) for check in result.checks]


def first_failing(result: _endpoint.Result) -> Any:
    return next(check for check in result.checks if check.status == "fail")


# -- addresses


@pytest.mark.parametrize(
    ("url", "adapter", "base"),
    [
        ("http://h:8000", "openai", "http://h:8000/v1"),
        ("http://h:8000/", "openai", "http://h:8000/v1"),
        ("http://h:8000/v1", "openai", "http://h:8000/v1"),
        ("http://h:8000/v1/", "openai", "http://h:8000/v1"),
        ("http://h:8000/v1/v1", "openai", "http://h:8000/v1"),
        ("https://api.test/openai/v1", "openai", "https://api.test/openai/v1"),
        ("https://api.test/openai", "openai", "https://api.test/openai/v1"),
        ("https://api.test/openai/v1/chat/completions", "openai", "https://api.test/openai/v1"),
        (" http://[::1]:8000 ", "openai", "http://[::1]:8000/v1"),
        ("http://h:8000", "triton", "http://h:8000"),
        ("http://h:8000/v2/health/ready", "triton", "http://h:8000"),
        ("http://h:8000/gpu7/", "triton", "http://h:8000/gpu7"),
    ],
)
def test_normalise(url: str, adapter: str, base: str) -> None:
    assert normalise(url, adapter) == base
    assert normalise(base, adapter) == base


@pytest.mark.parametrize("url", ["", "h:8000", "ftp://h", "http://", "http://u:p@h", "http://h:port"])
def test_normalise_refuses(url: str) -> None:
    with pytest.raises(ValueError, match=r"address|port"):
        normalise(url, "openai")


# -- Triton

TEXT_META = {
    "name": "m",
    "inputs": [{"name": "text", "datatype": "BYTES", "shape": [-1, 1]}],
    "outputs": [{"name": "output", "datatype": "BYTES", "shape": [-1, 1]}],
}
ANSWER = {
    "outputs": [
        {"name": "n", "datatype": "FP32", "data": [1.0]},
        {"name": "output", "datatype": "BYTES", "shape": [1, 1], "data": ["yes"]},
    ]
}
TRITON: dict[tuple[str, str], Any] = {
    ("GET", "/v2/health/ready"): (200, b""),
    ("POST", "/v2/repository/index"): [{"name": "m", "version": "1", "state": "READY"}],
    ("GET", "/v2/models/m"): TEXT_META,
    ("POST", "/v2/models/m/infer"): ANSWER,
}


def triton(url: str, **changes: Any) -> Target:
    return Target(url=url, adapter="triton", models=["m"], prompt="hello", **changes)


def test_triton_answers() -> None:
    with serve(table(TRITON)) as url:
        result = look(triton(url))
    assert (result.state, result.answer, result.model, result.models) == (READY, "yes", "m", ["m"])
    assert statuses(result) == [("engine.ready", "pass"), ("engine.models", "pass"), ("engine.answer", "pass")]
    assert result.timings["ready_ms"] is not None
    assert result.timings["total_ms"] is not None
    assert result.timings["first_token_ms"] is None


@pytest.mark.parametrize(("shape", "sent", "count"), [([-1, 1], [1, 1], 1), ([1], [1], 1), ([-1], [1], 1), ([2, 2], [2, 2], 4)])
def test_triton_is_sent_what_its_metadata_asks_for(shape: list[int], sent: list[int], count: int) -> None:
    seen: list[Any] = []

    def route(method: str, path: str, body: dict[str, Any] | None) -> tuple[int, Any, str]:
        if path.endswith("/infer"):
            seen.append(body)
        meta = {"inputs": [{"name": "q", "datatype": "BYTES", "shape": shape}]}
        return table({**TRITON, ("GET", "/v2/models/m"): meta})(method, path, body)

    with serve(route) as url:
        look(triton(url))
    assert seen == [{"inputs": [{"name": "q", "datatype": "BYTES", "shape": sent, "data": ["hello"] * count}]}]


@pytest.mark.parametrize(
    ("changes", "options", "state", "check", "words"),
    [
        # The server calls itself ready although a configuration could not be read: the index names the model, without a state.
        ({("POST", "/v2/repository/index"): [{"name": "m"}]}, {}, BROKEN, "engine.models", "not loaded"),
        ({("POST", "/v2/repository/index"): []}, {}, BROKEN, "engine.models", "not in the model repository"),
        (
            {
                ("GET", "/v2/health/ready"): (400, b""),
                ("POST", "/v2/repository/index"): [{"name": "m", "version": "1", "state": "UNAVAILABLE", "reason": "Internal: no torch\n\nAt:\n x"}],
            },
            {}, BROKEN, "engine.models", "not loaded: Internal: no torch",
        ),
        (
            {("GET", "/v2/health/ready"): (400, b""), ("POST", "/v2/repository/index"): [{"name": "m", "version": "1", "state": "LOADING"}]},
            {}, STARTING, "engine.models", "still loading",
        ),
        ({("GET", "/v2/health/ready"): (400, {"error": "Server not ready"}), ("POST", "/v2/repository/index"): (503, {"error": "x"})},
         {}, STARTING, "engine.models", "not in the model repository"),
        ({("GET", "/v2/health/ready"): (404, b"nothing here")}, {}, BROKEN, "engine.ready", "HTTP 404 (nothing here)"),
        # A model whose process is dead stays "ready".
        ({("POST", "/v2/models/m/infer"): (500, {"error": "stub is not healthy"})}, {}, READY, "engine.answer", "HTTP 500 (stub is not healthy)"),
        ({("POST", "/v2/models/m/infer"): (200, b"no json")}, {}, READY, "engine.answer", "an answer without text: no json"),
        ({("POST", "/v2/models/m/infer"): {"outputs": []}}, {}, READY, "engine.answer", "an answer without text"),
        ({("POST", "/v2/models/m/infer"): {"outputs": [{"name": "o", "datatype": "BYTES", "data": [" "]}]}}, {}, READY, "engine.answer", "an empty answer"),
        ({}, {"output_name": "other"}, READY, "engine.answer", "an answer without text"),
        ({}, {"input_name": "other"}, READY, "engine.answer", "no input other, only text"),
        ({}, {"expect": "no"}, READY, "engine.answer", "yes"),
        ({("GET", "/v2/models/m"): (400, {"error": "unknown"})}, {}, READY, "engine.answer", "HTTP 400 (unknown)"),
    ],
)  # fmt: skip
def test_triton_fails(changes: dict[tuple[str, str], Any], options: dict[str, Any], state: str, check: str, words: str) -> None:
    with serve(table({**TRITON, **changes})) as url:
        result = look(triton(url, **options))
    found = first_failing(result)
    assert (result.state, found.id) == (state, check)
    assert words in str(found.found)
    assert found.remedy.endswith("run again.")


def test_triton_model_that_takes_no_text_is_not_questioned() -> None:
    meta = {"inputs": [{"name": "image", "datatype": "FP32", "shape": [3, 224, 224]}]}
    with serve(table({**TRITON, ("GET", "/v2/models/m"): meta})) as url:
        result = look(triton(url))
    assert statuses(result)[-1] == ("engine.answer", "skip")
    assert result.checks[-1].found == "its inputs are image FP32"


def test_triton_without_models_is_ready() -> None:
    with serve(table({**TRITON, ("POST", "/v2/repository/index"): []})) as url:
        result = look(Target(url=url, adapter="triton"))
    assert (result.state, statuses(result)) == (READY, [("engine.ready", "pass"), ("engine.answer", "skip")])


def test_triton_of_several_versions_the_ready_one_counts() -> None:
    rows = [
        {"name": "m", "version": "2", "state": "READY"},
        {"name": "m", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
    ]
    with serve(table({**TRITON, ("POST", "/v2/repository/index"): rows})) as url:
        assert look(triton(url)).state == READY


def test_without_a_question() -> None:
    with serve(table(TRITON)) as url:
        result = look(triton(url, ask=False))
    assert (result.state, result.answer) == (READY, None)
    assert statuses(result) == [("engine.ready", "pass"), ("engine.models", "pass")]


# -- OpenAI

CHAT = {"choices": [{"message": {"role": "assistant", "content": "yes"}}], "usage": {"total_tokens": 3}}
OPENAI: dict[tuple[str, str], Any] = {
    ("GET", "/v1/health/ready"): {"message": "Service is ready."},
    ("GET", "/v1/models"): {"data": [{"id": "m"}, {"id": "n"}]},
    ("POST", "/v1/chat/completions"): CHAT,
}
EVENTS = (
    b'data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}\n\n'
    b'data: {"choices": [{"delta": {"content": "ye"}}]}\n\n'
    b'data: {"choices": [{"delta": {"content": "s"}}]}\n\n'
    b'data: {"choices": [], "usage": {"total_tokens": 3}}\n\ndata: [DONE]\n\n'
)


def openai(url: str, **changes: Any) -> Target:
    return Target(url=f"{url}/v1", adapter="openai", models=["m"], prompt="hello", **changes)


def test_openai_answers() -> None:
    with serve(table(OPENAI)) as url:
        result = look(openai(url))
    assert (result.state, result.answer, result.models, result.usage) == (READY, "yes", ["m", "n"], {"total_tokens": 3})
    assert statuses(result) == [("engine.ready", "pass"), ("engine.models", "pass"), ("engine.answer", "pass")]


def test_openai_streams() -> None:
    with serve(table({**OPENAI, ("POST", "/v1/chat/completions"): (200, EVENTS, "text/event-stream; charset=utf-8")})) as url:
        result = look(openai(url, stream=True))
    assert (result.answer, result.usage) == ("yes", {"total_tokens": 3})
    assert result.timings["first_token_ms"] is not None


def test_openai_service_without_a_readiness_path() -> None:
    rows = {key: value for key, value in OPENAI.items() if key[1] != "/v1/health/ready"}
    with serve(table(rows)) as url:
        assert look(openai(url)).state == READY


@pytest.mark.parametrize(
    ("changes", "options", "state", "check", "words"),
    [
        ({("GET", "/v1/health/ready"): (503, {"message": "Service is not ready."})}, {}, STARTING, "engine.ready", "not ready: HTTP 503 (Service is not ready.)"),
        ({("GET", "/v1/models"): (401, {"error": {"message": "Invalid API Key"}})}, {"api_key": KEY}, BROKEN, "engine.ready",
         "the key was refused: HTTP 401 (Invalid API Key)"),
        ({("GET", "/v1/models"): (500, b"")}, {}, STARTING, "engine.ready", "HTTP 500 on /v1/models"),
        ({("GET", "/v1/models"): (404, b"<html>")}, {}, BROKEN, "engine.ready", "HTTP 404 (<html>) on /v1/models"),
        ({("GET", "/v1/models"): [1, 2]}, {}, BROKEN, "engine.ready", "HTTP 200"),
        ({("GET", "/v1/models"): {"data": [{"id": "n"}]}}, {}, BROKEN, "engine.models", "not listed; it has n"),
        ({("GET", "/v1/models"): {"data": []}}, {}, BROKEN, "engine.models", "not listed; it has no models"),
        ({("POST", "/v1/chat/completions"): (401, {"error": {"code": "invalid_api_key"}})}, {}, READY, "engine.answer", "the key was refused: HTTP 401 (invalid_api_key)"),
        ({("POST", "/v1/chat/completions"): (429, {"error": {"message": "slow down"}})}, {}, READY, "engine.answer", "too many requests: HTTP 429 (slow down)"),
        ({("POST", "/v1/chat/completions"): (400, {"object": "error", "message": "extra_forbidden"})}, {}, READY, "engine.answer", "HTTP 400 (extra_forbidden)"),
        ({("POST", "/v1/chat/completions"): {"choices": []}}, {}, READY, "engine.answer", "an answer without text"),
        ({("POST", "/v1/chat/completions"): {"choices": [{"message": {"content": None}}]}}, {}, READY, "engine.answer", "an empty answer"),
        ({}, {"expect": "no"}, READY, "engine.answer", "yes"),
        ({}, {"stream": True}, READY, "engine.answer", "an answer that is no stream"),
        ({("POST", "/v1/chat/completions"): (200, b'data: {"error": {"message": "engine died"}}\n\n', "text/event-stream")}, {"stream": True},
         READY, "engine.answer", "an error in the stream"),
        ({("POST", "/v1/chat/completions"): (200, b"data: [DONE]\n\n", "text/event-stream")}, {"stream": True}, READY, "engine.answer", "an empty answer"),
    ],
)  # fmt: skip
def test_openai_fails(changes: dict[tuple[str, str], Any], options: dict[str, Any], state: str, check: str, words: str) -> None:
    with serve(table({**OPENAI, **changes})) as url:
        result = look(openai(url, **options))
    found = first_failing(result)
    assert (result.state, found.id) == (state, check)
    assert words in str(found.found)
    assert found.remedy.endswith("run again.")
    assert KEY not in repr(result)


# -- connections


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.parametrize("adapter", ["triton", "openai"])
def test_nothing_listens(adapter: str) -> None:
    port = free_port()
    result = look(Target(url=f"http://127.0.0.1:{port}", adapter=adapter))
    assert result.state == STARTING
    assert result.checks[0].found == f"127.0.0.1:{port}: connection refused"
    assert statuses(result) == [("engine.ready", "fail"), ("engine.answer", "skip")]


def test_the_name_does_not_resolve() -> None:
    result = look(Target(url="http://engine.invalid:8000", adapter="triton"))
    assert result.state == BROKEN
    assert "the name does not resolve" in str(result.checks[0].found)


@contextmanager
def raw_server(reply: bytes, wait: float = 0.0) -> Iterator[str]:
    """A server that says the same to everybody."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def run() -> None:
            while True:
                try:
                    connection, _address = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    time.sleep(wait)
                    connection.sendall(reply)

        threading.Thread(target=run, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("reply", "words", "state"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP", BROKEN),
        (b"", "the connection was closed before the answer was complete", STARTING),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort",
            "the connection was closed before the answer was complete",
            BROKEN,
        ),
    ],
)
def test_no_http(reply: bytes, words: str, state: str) -> None:
    with raw_server(reply) as url:
        result = look(Target(url=url, adapter="triton"))
    assert words in str(result.checks[0].found)
    assert result.state == state


def test_a_silent_server_is_given_up() -> None:
    with raw_server(b"", wait=5) as url:
        start = time.monotonic()
        result = look(Target(url=url, adapter="triton", timeout=0.2))
    assert time.monotonic() - start < 3
    assert "no answer in time" in str(result.checks[0].found)


def test_an_answer_that_never_comes() -> None:
    def route(method: str, path: str, body: dict[str, Any] | None) -> tuple[int, Any, str]:
        if path.endswith("/infer"):
            time.sleep(1)
        return table(TRITON)(method, path, body)

    with serve(route) as url:
        result = look(triton(url, timeout=0.3))
    assert first_failing(result).id == "engine.answer"
    assert "no answer in time" in str(first_failing(result).found)


# -- the bench's own server, with the manners of the real ones

SCRIPT = Path(__file__).resolve().parents[3] / "bench/engines/openai_standin.py"


@pytest.fixture(scope="module")
def openai_server() -> Iterator[Callable[..., str]]:
    """Starts the bench's OpenAI server in a thread: `openai_server(*arguments)` gives its address."""
    import asyncio

    spec = importlib.util.spec_from_file_location("openai_standin", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["openai_standin"] = module
    spec.loader.exec_module(module)
    loop = asyncio.new_event_loop()
    running = []
    threading.Thread(target=loop.run_forever, daemon=True).start()

    def start(*arguments: str) -> str:
        port = free_port()
        options = module.parse_arguments(["--host", "127.0.0.1", "--port", str(port), "--model", "m", *arguments])
        running.append(asyncio.run_coroutine_threadsafe(module.run(options), loop))
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.02)
        return f"http://127.0.0.1:{port}"

    yield start
    for server in running:
        server.cancel()
    time.sleep(0.05)
    loop.call_soon_threadsafe(loop.stop)


def test_a_nim_that_starts(openai_server: Callable[..., str]) -> None:
    url = openai_server("--mode", "nim", "--ready-delay", "1")
    assert look(openai(url)).state == STARTING
    time.sleep(1.1)
    result = look(openai(url, stream=True))
    assert (result.state, result.answer) == (READY, "m says: hello")
    assert result.timings["first_token_ms"] is not None
    assert look(openai(url)).usage == {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4}


def test_an_lpu_service(openai_server: Callable[..., str]) -> None:
    url = openai_server("--mode", "lpu", "--api-key", KEY, "--requests-per-minute", "2")
    refused = look(openai(url, api_key="gsk_wrong"))
    assert first_failing(refused).found == "the key was refused: HTTP 401 (Invalid API Key)"
    assert look(openai(url)).checks[0].remedy.startswith("Give the key that 127.0.0.1:")
    assert look(openai(url, api_key=KEY)).answer == "m says: hello"
    assert look(openai(f"{url}/openai", api_key=KEY)).answer == "m says: hello"
    limited = first_failing(look(openai(url, api_key=KEY)))
    assert limited.id == "engine.answer"
    assert "too many requests: HTTP 429" in str(limited.found)
    assert "retry after" in str(limited.found)
    missing = look(Target(url=f"{url}/v1", adapter="openai", models=["other"], api_key=KEY))
    assert first_failing(missing).found == "not listed; it has m"
