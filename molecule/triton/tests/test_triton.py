"""What the role leaves behind: a real Triton that answers, from files that say what the inventory says."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from rack_node import ask, assert_it_gets_every_gpu, inspect, remove_engine_beside, variable
from testinfra.host import Host

REPOSITORY = "/var/lib/triton/models"
QUESTION = "one two three"
ANSWER = "text_model: three two one"


@pytest.fixture(scope="module", autouse=True)
def engine_beside(host: Host) -> Iterator[None]:
    yield
    remove_engine_beside(host, "triton")


def get(host: Host, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    """Status and JSON of a request to the server, from the node itself."""
    status, text, _headers = ask(host, f"http://127.0.0.1:{variable(host, 'triton_http_port', 8000)}{path}", body)
    return status, json.loads(text) if text else None


def infer(host: Host, text: str) -> tuple[int, Any]:
    return get(
        host,
        "/v2/models/text_model/infer",
        {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1, 1], "data": [text]}]},
    )


def logs(host: Host) -> str:
    with host.sudo():
        return host.run("docker logs --tail 40 triton").stdout


def test_it_answers(host: Host) -> None:
    status, body = infer(host, QUESTION)
    assert status == 200, (body, logs(host))
    assert body["outputs"][0]["data"] == [ANSWER]


def test_it_answers_from_outside(host: Host) -> None:
    url = f"http://{variable(host, 'ansible_host')}:{variable(host, 'triton_http_port', 8000)}/v2/health/ready"
    assert ask(host, url)[0] == 200


def test_the_model_is_what_the_inventory_says(host: Host) -> None:
    (wanted,) = variable(host, "triton_models")
    status, config = get(host, "/v2/models/text_model/config")
    assert status == 200
    assert config["max_batch_size"] == wanted["max_batch_size"]
    for direction in ("input", "output"):
        found = [(row["name"], row["data_type"], row["dims"]) for row in config[direction]]
        assert found == [(row["name"], row["data_type"], row["dims"]) for row in wanted[f"{direction}s"]]


def test_a_batch_is_answered_in_order(host: Host) -> None:
    body = {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [3, 1], "data": ["a b", "c d", "e f"]}]}
    status, said = get(host, "/v2/models/text_model/infer", body)
    assert status == 200, said
    assert said["outputs"][0]["data"] == ["text_model: b a", "text_model: d c", "text_model: f e"]


def test_files_are_readable_for_all_and_writable_for_root(host: Host) -> None:
    for path in ("text_model/config.pbtxt", "text_model/1/model.py"):
        file = host.file(f"{REPOSITORY}/{path}")
        assert (file.user, file.group, file.mode) == ("root", "root", 0o644)
    mounts = {mount["Destination"]: mount["RW"] for mount in inspect(host, "triton")["Mounts"]}
    assert mounts["/models"] is False


def test_the_container_gets_the_gpus(host: Host) -> None:
    assert_it_gets_every_gpu(host, "triton")


def test_no_login_stays_on_the_node(host: Host) -> None:
    key = variable(host, "triton_registry")["password"]
    with host.sudo():
        assert not host.file("/root/.docker/config.json").exists
        assert key not in json.dumps(inspect(host, "triton"))


def test_it_comes_back_after_it_was_killed(host: Host) -> None:
    with host.sudo():
        pid = inspect(host, "triton")["State"]["Pid"]
        host.check_output("kill -9 %s", str(pid))
    for _ in range(60):
        time.sleep(1)
        try:
            status, body = infer(host, QUESTION)
        except AssertionError:  # nothing listens yet
            continue
        if status == 200:
            break
    assert body["outputs"][0]["data"] == [ANSWER], logs(host)
    assert inspect(host, "triton")["RestartCount"] >= 1
