"""What the role leaves behind: a service that answers, and a key that only root and the container have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from rack_node import ask, assert_it_gets_every_gpu, remove_engine_beside, variable
from testinfra.host import Host

MODEL = "meta/llama-3.1-8b-instruct"


@pytest.fixture(scope="module", autouse=True)
def engine_beside(host: Host) -> Iterator[None]:
    yield
    remove_engine_beside(host, "nim")


def get(host: Host, path: str, body: dict[str, Any] | None = None) -> tuple[int, str]:
    """Status and text of a request to the service, from the node itself."""
    return ask(host, f"http://127.0.0.1:{variable(host, 'nim_port', 8000)}{path}", body)[:2]


def chat(host: Host, **fields: Any) -> tuple[int, str]:
    return get(host, "/v1/chat/completions", {"model": MODEL, "messages": [{"role": "user", "content": "one two"}], **fields})


def test_it_is_ready_and_lists_its_model(host: Host) -> None:
    assert get(host, "/v1/health/ready")[0] == 200
    status, text = get(host, "/v1/models")
    assert status == 200
    assert [row["id"] for row in json.loads(text)["data"]] == [MODEL]


def test_it_answers(host: Host) -> None:
    status, text = chat(host)
    assert status == 200, text
    body = json.loads(text)
    assert body["choices"][0]["message"]["content"] == f"{MODEL} says: one two"
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"]


def test_it_streams(host: Host) -> None:
    status, text = chat(host, stream=True)
    assert status == 200, text
    events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    contents = [json.loads(event)["choices"][0]["delta"].get("content", "") for event in events[:-1]]
    assert "".join(contents) == f"{MODEL} says: one two"
    assert len([content for content in contents if content]) > 1


def test_the_key_is_roots_alone(host: Host) -> None:
    key = variable(host, "nim_api_key")
    with host.sudo():
        file = host.file("/etc/inferack/nim.env")
        assert (file.user, file.group, file.mode) == ("root", "root", 0o600)
        assert file.content_string.strip() == f"NGC_API_KEY={key}"
        assert not host.file("/root/.docker/config.json").exists
        assert key not in host.check_output("docker logs nim 2>&1")
    assert host.run("runuser -u nobody -- cat /etc/inferack/nim.env").rc != 0


def test_the_cache_is_the_containers(host: Host) -> None:
    with host.sudo():
        folder = host.file("/var/lib/nim/cache")
        assert (folder.uid, folder.gid, folder.mode) == (1000, 1000, 0o750)
        written = host.check_output("find /var/lib/nim/cache -type f")
    assert written, "the service wrote nothing into its cache"


def test_the_container_gets_the_gpus(host: Host) -> None:
    assert_it_gets_every_gpu(host, "nim")
