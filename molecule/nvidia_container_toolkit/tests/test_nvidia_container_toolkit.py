"""What the role leaves behind: containers see the GPUs that the node has, and no more than they are given."""

from __future__ import annotations

import json
import re

import pytest
from rack_node import variable
from testinfra.host import Host

PACKAGES = ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools", "libnvidia-container1")
OLD_FILES = ("libnvidia-container.list", "nvidia-docker.list", "nvidia-container-runtime.list", "nvidia-container-toolkit.list")


@pytest.fixture
def image(host: Host) -> str:
    return str(variable(host, "nvidia_container_toolkit_probe_image"))


def uuids(text: str) -> list[str]:
    return sorted(part.rstrip(")") for line in text.splitlines() for part in line.split() if part.startswith("GPU-"))


def test_four_packages_of_one_version(host: Host) -> None:
    versions = {name: host.package(name).version for name in PACKAGES}
    assert len(set(versions.values())) == 1, versions


def test_docker_has_the_runtime(host: Host) -> None:
    with host.sudo():
        runtimes = json.loads(host.check_output("docker info --format '{{json .Runtimes}}'"))
        settings = json.loads(host.file("/etc/docker/daemon.json").content_string)
    assert "nvidia" in runtimes
    assert settings["runtimes"]["nvidia"] == {"path": "nvidia-container-runtime", "args": []}


def test_a_container_sees_what_the_node_has(host: Host, image: str) -> None:
    expected = variable(host, "gpu_expected")
    with host.sudo():
        own = uuids(host.check_output("nvidia-smi -L"))
        inside = host.run(
            f"docker run --rm --network none --runtime nvidia -e NVIDIA_VISIBLE_DEVICES=all {image} nvidia-smi -L"
        )
    assert inside.rc == 0, inside.stderr
    assert uuids(inside.stdout) == own
    assert len(own) == expected["count"]


def test_a_container_that_asks_for_none_sees_none(host: Host, image: str) -> None:
    with host.sudo():
        inside = host.run(f"docker run --rm --network none {image} sh -c 'ls /dev/nvidia0 /proc/driver/nvidia/version'")
    assert inside.rc != 0
    assert "/dev/nvidia0" not in inside.stdout.splitlines()


@pytest.mark.parametrize("name", OLD_FILES)
def test_no_source_of_earlier_guides_is_left(host: Host, name: str) -> None:
    assert not host.file(f"/etc/apt/sources.list.d/{name}").exists


def test_the_repository_is_signed(host: Host) -> None:
    if host.system_info.distribution.lower() == "openeuler":
        text = host.file("/etc/yum.repos.d/nvidia-container-toolkit.repo").content_string.replace(" ", "")
        assert "gpgcheck=1" in text
    else:
        text = host.file("/etc/apt/sources.list.d/nvidia-container-toolkit.sources").content_string
        assert "Signed-By:" in text
        assert "Trusted: yes" not in text


def test_a_specification_names_the_loaded_driver(host: Host) -> None:
    """A CDI specification of another driver lets nvidia-smi work in a container and CUDA fail."""
    with host.sudo():
        driver = host.file("/proc/driver/nvidia/version").content_string
        for path in ("/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"):
            if host.file(path).exists:
                versions = set(re.findall(r"libcuda\.so\.(\d+\.\d[\d.]*)", host.file(path).content_string))
                assert versions
                assert all(version in driver for version in versions), (path, versions, driver)
