"""What the role leaves behind: an engine that answers, runs containers, and comes back at boot."""

from __future__ import annotations

import json

import pytest
from testinfra.host import Host


@pytest.fixture
def info(host: Host) -> dict:
    with host.sudo():
        answer = host.run("docker info --format '{{json .}}'")
        assert answer.rc == 0, answer.stderr + host.check_output("journalctl -u docker -n 40 --no-pager")
    return json.loads(answer.stdout)


def test_the_engine_answers(info: dict) -> None:
    assert info["ServerVersion"]
    assert not info.get("ServerErrors")
    assert info["Driver"] == "overlay2"


def test_it_runs_now_and_after_the_next_boot(host: Host) -> None:
    service = host.service("docker")
    assert service.is_running
    assert service.is_enabled


def test_it_comes_from_the_distribution(host: Host) -> None:
    distribution = host.system_info.distribution.lower()
    name = "moby-engine" if distribution == "openeuler" else "docker.io"
    assert host.package(name).is_installed
    assert not host.file("/snap/bin/docker").exists


def test_it_runs_a_container(host: Host) -> None:
    """An image made on the spot from one static program: no registry is asked."""
    with host.sudo():
        made = host.run(
            "set -e; d=$(mktemp -d); trap 'rm -rf $d' EXIT; cp /opt/bench/bin/nvidia-smi $d/p;"
            " printf 'FROM scratch\\nCOPY p /p\\nENTRYPOINT [\"/p\"]\\n' > $d/Dockerfile; DOCKER_BUILDKIT=0 docker build -q -t probe:local $d"
        )
        assert made.rc == 0, made.stderr
        ran = host.run("docker run --rm --network none probe:local --version")
        host.run("docker rmi -f probe:local")
    assert ran.rc not in (125, 126, 127), ran.stderr


def test_python_reaches_the_engine(host: Host) -> None:
    """What the modules of community.docker need on the node."""
    assert host.run("python3 -c 'import requests'").rc == 0


def test_the_configuration_is_whole(host: Host) -> None:
    with host.sudo():
        file = host.file("/etc/docker/daemon.json")
        if file.exists:
            assert isinstance(json.loads(file.content_string), dict)
            assert file.mode == 0o644
        assert not host.file("/var/lib/inferack/docker-configuration-not-in-force").exists
