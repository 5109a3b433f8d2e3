"""The driver works: built for the running kernel, loaded, in agreement with its library, and still so after a reboot."""

from __future__ import annotations

import re

import pytest
from rack_node import reboot

#: What each node of the rack is planned to get: branch, flavour by license, name that DKMS knows, and its source.
PLANNED = {
    "debian-12": ("535", "NVIDIA", "nvidia-current", "distribution"),
    "ubuntu-24.04": ("580", "MIT", "nvidia-srv", "distribution"),
    "openeuler-24.03": ("580", "MIT", "nvidia", "runfile"),
}
SBIN = "PATH=$PATH:/usr/sbin:/sbin "


def root(host, command: str) -> str:
    with host.sudo():
        return host.check_output(SBIN + command)


@pytest.fixture
def name(host) -> str:
    return host.check_output("hostname")


@pytest.fixture
def planned(name: str) -> tuple[str, str, str, str]:
    return PLANNED[name]


def loaded(host) -> str:
    file = host.file("/sys/module/nvidia/version")
    if not file.exists:
        pytest.fail("nvidia is not loaded: " + root(host, "journalctl -t kernel --no-pager -n 20"))
    return file.content_string.strip()


def module(host, field: str) -> str:
    names = "nvidia nvidia-current nvidia-current-open"
    return root(host, f"sh -c 'for n in {names}; do modinfo -F {field} $n 2>/dev/null && exit 0; done; exit 1'").splitlines()[0]


def test_headers_are_the_running_kernels(host) -> None:
    release = host.check_output("uname -r")
    assert host.file(f"/lib/modules/{release}/build/Makefile").exists
    assert module(host, "vermagic").split()[0] == release


def test_dkms_built_it_for_the_running_kernel(host, planned) -> None:
    release = host.check_output("uname -r")
    status = root(host, "dkms status")
    assert re.search(rf"(?m)^{planned[2]}[/,] ?{planned[0]}\.\S*, {re.escape(release)}, \w+: installed", status), status
    path = module(host, "filename")
    assert path.startswith(f"/lib/modules/{release}/"), path


def test_module_library_and_plan_agree(host, planned) -> None:
    version = loaded(host)
    assert version.split(".")[0] == planned[0]
    assert module(host, "version") == version
    assert planned[1] in module(host, "license")
    libraries = root(host, "sh -c 'find /usr/lib /usr/lib64 -name \"libnvidia-ml.so.[0-9][0-9][0-9].*\"'").split()
    assert libraries
    assert {path.rpartition(".so.")[2] for path in libraries} == {version}


def test_it_holds_every_gpu(host) -> None:
    gpus = host.check_output("grep -l 0x10de /sys/bus/pci/devices/*/vendor").split()
    assert gpus
    for path in gpus:
        assert host.check_output("basename $(readlink -f %s)", path.replace("/vendor", "/driver")).startswith("nvidia")


def test_nvidia_smi_answers_for_every_gpu(host) -> None:
    gpus = host.check_output("grep -l 0x10de /sys/bus/pci/devices/*/vendor").split()
    rows = host.check_output("nvidia-smi --query-gpu=driver_version,pci.bus_id --format=csv,noheader").splitlines()
    assert len(rows) == len(gpus)
    assert {row.split(",")[0] for row in rows} == {loaded(host)}


def test_components_repeat_the_nodes_own_sources(host, name: str) -> None:
    if name != "debian-12":
        pytest.skip("only Debian needs further components")
    text = host.file("/etc/apt/sources.list.d/inferack-driver.sources").content_string
    others = host.check_output("cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null || true")
    uris = re.findall(r"(?m)^URIs: (\S+)$", text)
    assert uris
    assert all(uri in others for uri in uris), (uris, others)
    assert root(host, "apt-get check") is not None


def test_the_persistence_daemon(host, planned) -> None:
    if planned[3] != "distribution":
        pytest.skip("NVIDIA's installer brings no unit")
    service = host.service("nvidia-persistenced")
    with host.sudo():
        assert service.is_enabled
        assert service.is_running, root(host, "journalctl -u nvidia-persistenced --no-pager -n 20")
        shown = host.check_output("systemctl cat nvidia-persistenced")
    assert "ConditionPathExists=/proc/driver/nvidia/version" in shown.splitlines()


def test_it_is_there_after_another_boot(host) -> None:
    version = loaded(host)
    reboot(host)
    assert loaded(host) == version
    assert host.file("/sys/module/nvidia_uvm").exists
    assert host.run("nvidia-smi -L").rc == 0
