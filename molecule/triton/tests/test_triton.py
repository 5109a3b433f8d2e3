"""What the role leaves behind: a real Triton that answers, from files that say what the inventory says."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from testinfra.host import Host

REPOSITORY = "/var/lib/triton/models"
QUESTION = "one two three"
ANSWER = "text_model: three two one"


def variable(host: Host, name: str) -> Any:
    """A variable of the inventory, as Ansible resolves it for this host."""
    return host.ansible("ansible.builtin.debug", f"var={name}", check=False)[name]


@pytest.fixture(autouse=True)
def only_where_triton_runs(host: Host) -> None:
    if host.ansible.get_variables().get("inferack_engine", "triton") != "triton":
        pytest.skip("this node's engine is another one")


def get(host: Host, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    """Status and JSON of a request to the server, from the node itself."""
    data = f"data={json.dumps(body).encode()!r}, " if body is not None else ""
    script = (
        "import json, urllib.error, urllib.request\n"
        "try:\n"
        f"    r = urllib.request.urlopen(urllib.request.Request('http://127.0.0.1:8000{path}', {data}method={'POST' if body else 'GET'!r}), timeout=30)\n"
        "except urllib.error.HTTPError as e:\n"
        "    r = e\n"
        "print(r.status, r.read().decode())\n"
    )
    said = host.run("python3 -c %s", script)
    assert said.rc == 0, said.stderr
    status, _blank, text = said.stdout.strip().partition(" ")
    return int(status), json.loads(text) if text else None


def infer(host: Host, text: str) -> tuple[int, Any]:
    return get(
        host,
        "/v2/models/text_model/infer",
        {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1, 1], "data": [text]}]},
    )


def inspect(host: Host) -> dict[str, Any]:
    with host.sudo():
        return json.loads(host.check_output("docker inspect triton"))[0]


def logs(host: Host) -> str:
    with host.sudo():
        return host.run("docker logs --tail 40 triton").stdout


def test_it_answers(host: Host) -> None:
    status, body = infer(host, QUESTION)
    assert status == 200, (body, logs(host))
    assert body["outputs"][0]["data"] == [ANSWER]


def test_it_answers_from_outside(host: Host) -> None:
    address = variable(host, "ansible_host")
    said = host.run(
        "python3 -c %s", f"import urllib.request; print(urllib.request.urlopen('http://{address}:8000/v2/health/ready').status)"
    )
    assert said.stdout.strip() == "200", said.stderr


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
    mounts = {mount["Destination"]: mount["RW"] for mount in inspect(host)["Mounts"]}
    assert mounts["/models"] is False


def test_the_container_gets_the_gpus(host: Host) -> None:
    (request,) = inspect(host)["HostConfig"]["DeviceRequests"]
    assert (request["Count"], request["Capabilities"]) == (-1, [["gpu"]])
    with host.sudo():
        own = sorted(host.check_output("ls /dev | grep -E '^nvidia[0-9]+$'").split())
        inside = host.run("docker exec triton ls /dev")
    assert inside.rc == 0, inside.stderr
    assert sorted(name for name in inside.stdout.split() if name.startswith("nvidia") and name[6:].isdigit()) == own
    assert own


def test_no_login_stays_on_the_node(host: Host) -> None:
    key = variable(host, "triton_registry")["password"]
    with host.sudo():
        assert not host.file("/root/.docker/config.json").exists
        assert key not in json.dumps(inspect(host))


def test_it_comes_back_after_it_was_killed(host: Host) -> None:
    with host.sudo():
        pid = inspect(host)["State"]["Pid"]
        host.check_output("kill -9 %s", str(pid))
    for _ in range(60):
        time.sleep(1)
        said = host.run(
            "python3 -c %s",
            "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/v2/models/text_model/ready', timeout=5)",
        )
        if said.rc == 0:
            break
    assert inspect(host)["RestartCount"] >= 1
    assert infer(host, QUESTION)[1]["outputs"][0]["data"] == [ANSWER]
