"""What the scenarios' tests share: a node's variables, its HTTP services, its containers, its reboot."""

from __future__ import annotations

import base64
import functools
import json
import time
from typing import Any

import pytest
from testinfra.host import Host

ASK = """
import base64, json, sys, urllib.error, urllib.request
url, body, headers = json.loads(base64.b64decode(sys.argv[1]))
request = urllib.request.Request(url, None if body is None else body.encode(), headers)
try:
    response = urllib.request.urlopen(request, timeout=60)
except urllib.error.HTTPError as error:
    response = error
print(json.dumps([response.getcode(), response.read().decode(), dict(response.headers)]))
"""


@functools.cache  # each look starts ansible
def variable(host: Host, name: str, default: Any = None) -> Any:
    """A variable of the inventory, as Ansible resolves it for this host; `default` where the inventory is silent."""
    expression = name if default is None else f"{name}|default({json.dumps(default)})"
    return host.ansible("ansible.builtin.debug", f"var={expression}", check=False)[expression]


def ask(host: Host, url: str, body: Any = None, **headers: str) -> tuple[int, str, dict[str, str]]:
    """Status, text and headers (names in lower case) of a request that the node itself makes; a body makes it a POST."""
    text = body if body is None or isinstance(body, str) else json.dumps(body)
    if body is not None:
        headers = {"Content-Type": "application/json", **headers}
    # One word of base64: no shell and no template touches it.
    packed = base64.b64encode(json.dumps([url, text, headers]).encode()).decode()
    result = host.run("python3 -c %s %s", ASK, packed)
    assert result.rc == 0, result.stderr
    code, answer, answered = json.loads(result.stdout)
    return code, answer, {name.lower(): value for name, value in answered.items()}


def inspect(host: Host, container: str) -> dict[str, Any]:
    """What the engine knows of a container."""
    with host.sudo():
        return json.loads(host.check_output("docker inspect %s", container))[0]


def assert_it_gets_every_gpu(host: Host, container: str) -> None:
    """The container asked for all GPUs, and has the device nodes that the node has."""
    (request,) = inspect(host, container)["HostConfig"]["DeviceRequests"]
    assert (request["Count"], request["Capabilities"]) == (-1, [["gpu"]])
    with host.sudo():
        own = sorted(host.check_output("ls /dev | grep -E '^nvidia[0-9]+$'").split())
        inside = host.run("docker exec %s ls /dev", container)
    assert inside.rc == 0, inside.stderr
    assert sorted(name for name in inside.stdout.split() if name.startswith("nvidia") and name[6:].isdigit()) == own
    assert own


def remove_engine_beside(host: Host, engine: str) -> None:
    """Every node is tested with each engine; one whose inventory names another engine does not keep this one."""
    if host.ansible.get_variables().get("inferack_engine", "triton") != engine:
        with host.sudo():
            host.check_output("docker rm --force %s", engine)


def reboot(host: Host) -> None:
    """Reboot the node and wait until its services are up."""

    def boot_id() -> str:
        try:
            return host.run("cat /proc/sys/kernel/random/boot_id").stdout.strip()
        except (AssertionError, RuntimeError):  # testinfra's words for a node that does not answer
            return ""

    before = boot_id()
    with host.sudo():
        host.run("systemd-run --no-block --on-active=1 systemctl reboot")
    for _attempt in range(60):
        time.sleep(2)
        if boot_id() not in ("", before):
            host.run("systemctl is-system-running --wait")
            return
    pytest.fail("the node did not come back from its reboot within two minutes")
