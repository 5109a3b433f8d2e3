"""The bench's OpenAI server has the manners that the product is tested against: refusals, limits, streams, faults."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "bench/engines/openai_standin.py"
KEY = "gsk_test"


def spawn(*arguments: str, **environment: str) -> tuple[subprocess.Popen[str], int]:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    command = [sys.executable, str(SCRIPT), "--host", "127.0.0.1", "--port", str(port), "--model", "m", *arguments]
    process = subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return process, port


@pytest.fixture
def server() -> Iterator[Callable[..., int]]:
    """`server(*arguments, **environment)` starts one and gives its port."""
    processes = []

    def start(*arguments: str, **environment: str) -> int:
        process, port = spawn(*arguments, **environment)
        processes.append(process)
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return port
            time.sleep(0.02)
        raise AssertionError(f"the server did not start: {process.communicate()[0]}")

    yield start
    for process in processes:
        process.terminate()
        assert process.wait(5) == 0


def ask(port: int, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, data, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()


def chat(
    port: int, path: str = "/v1/chat/completions", headers: dict[str, str] | None = None, **fields: Any
) -> tuple[int, dict[str, str], str]:
    body = {"model": "m", "messages": [{"role": "user", "content": "a b"}], **fields}
    return ask(port, "POST", path, body, **(headers or {}))


def test_nim_without_a_key_does_not_start() -> None:
    for key, words in (
        ("", "NGC_API_KEY is not set"),
        ("wrong", "NGC_API_KEY is invalid"),
        ("nvapi-expired", "NGC_API_KEY is invalid"),
    ):
        process, _port = spawn("--mode", "nim", NGC_API_KEY=key)
        said, _none = process.communicate(timeout=10)
        assert process.returncode == 1
        assert "Authentication Error" in said
        assert words in said


def test_nim_with_a_cache_it_cannot_write_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    process, _port = spawn("--mode", "nim", NGC_API_KEY="nvapi-x", NIM_CACHE_PATH=str(tmp_path / "file"))
    assert "PermissionError" in process.communicate(timeout=10)[0]
    assert process.returncode == 1


def test_nim(server: Callable[..., int], tmp_path: Path) -> None:
    port = server("--mode", "nim", "--ready-delay", "0.5", NGC_API_KEY="nvapi-x", NIM_CACHE_PATH=str(tmp_path))
    assert ask(port, "GET", "/v1/health/live")[0] == 200
    assert ask(port, "GET", "/v1/health/ready")[0] == 503
    assert chat(port)[0] == 503
    time.sleep(0.6)
    assert ask(port, "GET", "/v1/health/ready")[0] == 200
    status, headers, text = chat(port)
    assert status == 200
    assert "x-ratelimit-limit-requests" not in headers
    assert json.loads(text)["choices"][0]["message"]["content"] == "m says: a b"
    assert json.loads(text)["usage"] == {"prompt_tokens": 2, "completion_tokens": 4, "total_tokens": 6}
    assert (tmp_path / "ngc/hub/profile.json").exists()


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"model": "other"}, 404, "The model `other` does not exist."),
        ({"unknown": 1}, 400, "Extra inputs are not permitted"),
        ({"max_completion_tokens": 3}, 400, "Extra inputs are not permitted"),
        ({"stream_options": {"include_usage": True}}, 400, "stream=True"),
        ({"messages": []}, 400, "minimum number of items"),
        ({"max_tokens": 0}, 400, "max_tokens must be at least 1"),
    ],
)
def test_nims_schema_is_strict(
    server: Callable[..., int], tmp_path: Path, fields: dict[str, Any], status: int, words: str
) -> None:
    port = server("--mode", "nim", NGC_API_KEY="nvapi-x", NIM_CACHE_PATH=str(tmp_path))
    found, _headers, text = chat(port, **fields)
    assert found == status
    assert words in json.loads(text)["message"]


def test_lpu(server: Callable[..., int]) -> None:
    port = server("--mode", "lpu", "--api-key", KEY)
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": KEY}):
        status, _headers, text = chat(port, headers=headers)
        assert (status, json.loads(text)["error"]["code"]) == (401, "invalid_api_key")
    mine = {"Authorization": f"Bearer {KEY}"}
    for path in ("/v1/chat/completions", "/openai/v1/chat/completions"):
        status, headers, _text = chat(port, path, mine)
        assert status == 200
        assert headers["x-ratelimit-limit-requests"] == "100000"
        assert "retry-after" not in headers
    assert json.loads(chat(port, headers=mine, model="other")[2])["error"]["code"] == "model_not_found"
    assert ask(port, "GET", "/v1/health/ready")[0] == 404
    assert ask(port, "POST", "/v1/chat/completions", b"{no json", **mine)[0] == 400


def test_a_stream(server: Callable[..., int]) -> None:
    port = server("--api-key", KEY)
    mine = {"Authorization": f"Bearer {KEY}"}
    status, headers, text = chat(port, headers=mine, stream=True, stream_options={"include_usage": True})
    assert status == 200
    assert headers["content-type"].startswith("text/event-stream")
    events = [line[6:] for line in text.splitlines() if line]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1]) == "m says: a b"
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["completion_tokens"] == 4
    assert '"usage"' not in chat(port, headers=mine, stream=True)[2]


@pytest.mark.parametrize(
    ("fault", "stream", "status"),
    [("429=7", False, 429), ("500", False, 500), ("503", True, 503), ("error-event", True, 200)],
)
def test_faults_by_header(server: Callable[..., int], fault: str, stream: bool, status: int) -> None:
    port = server("--api-key", KEY)
    found, headers, text = chat(port, headers={"Authorization": f"Bearer {KEY}", "X-Bench-Fault": fault}, stream=stream)
    assert found == status
    assert headers.get("retry-after") == ("7" if status == 429 else None)
    assert "error" in text


def test_a_stream_that_breaks_off(server: Callable[..., int]) -> None:
    port = server("--api-key", KEY)
    with pytest.raises(http.client.IncompleteRead):
        chat(port, headers={"Authorization": f"Bearer {KEY}", "X-Bench-Fault": "drop"}, stream=True)


def test_ordered_faults_and_limits(server: Callable[..., int]) -> None:
    port = server("--api-key", KEY, "--requests-per-minute", "2")
    mine = {"Authorization": f"Bearer {KEY}"}
    assert ask(port, "POST", "/bench/fault", {"fault": "500", "count": 1})[0] == 200
    assert [chat(port, headers=mine)[0] for _ in range(4)] == [500, 200, 200, 429]
    status, headers, _text = chat(port, headers=mine)
    assert status == 429
    assert 1 <= int(headers["retry-after"]) <= 60
    assert json.loads(ask(port, "GET", "/bench/state")[2])["served"] == 2


def test_a_caller_that_leaves_is_noticed(server: Callable[..., int]) -> None:
    port = server("--api-key", KEY)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "a"}], "stream": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nX-Bench-Fault: stall\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port)) as one:
        one.sendall(head.encode() + body)
        assert b"200 OK" in one.recv(65536)
    for _ in range(40):
        state = json.loads(ask(port, "GET", "/bench/state")[2])
        if state["left_early"]:
            break
        time.sleep(0.05)
    assert state["left_early"] == 1
