"""The fact inferack_node, read from nodes made of files and of tools that answer from a table."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.inferack.rack.plugins.module_utils import _node_facts
from ansible_collections.inferack.rack.plugins.module_utils._run import Output

DEBIAN = """PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"
NAME="Debian GNU/Linux"
VERSION_ID="12"
VERSION_CODENAME=bookworm
ID=debian
"""
UBUNTU = 'NAME="Ubuntu"\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\nID=ubuntu\nID_LIKE=debian\n'
OPENEULER = 'NAME="openEuler"\nVERSION="24.03 (LTS-SP1)"\nID="openEuler"\nVERSION_ID="24.03"\n'
ROCKY = 'NAME="Rocky Linux"\nID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.5"\n'


@pytest.mark.parametrize(
    ("text", "machine", "facts"),
    [
        (DEBIAN, "x86_64", ("Debian", "12", "12", "Debian", "bookworm", "x86_64")),
        (UBUNTU, "arm64", ("Ubuntu", "24.04", "24", "Debian", "noble", "aarch64")),
        (OPENEULER, "aarch64", ("openEuler", "24.03", "24", "RedHat", None, "aarch64")),
        (ROCKY, "x86_64", ("Rocky", "9.5", "9", "RedHat", None, "x86_64")),
        ('NAME="Strange"\nID=strange\nbroken="x\n', "riscv64", ("Strange", None, None, None, None, "riscv64")),
        ("", "x86_64", (None, None, None, None, None, "x86_64")),
    ],
)
def test_os(text: str, machine: str, facts: tuple[Any, ...]) -> None:
    keys = ("distribution", "version", "major", "family", "codename", "architecture")
    assert _node_facts.os_facts(text, machine) == dict(zip(keys, facts, strict=True))


class Tools:
    """Tools of a node: what each prints, by the start of its command line."""

    def __init__(self, answers: dict[str, Output | str]) -> None:
        self.answers = answers
        self.calls: list[str] = []

    def run(self, command: Sequence[str], timeout: float) -> Output:
        line = " ".join([os.path.basename(command[0]), *command[1:]])
        self.calls.append(line)
        for start, answer in self.answers.items():
            if line.startswith(start):
                return answer if isinstance(answer, Output) else Output(0, answer)
        return Output(None, problem="missing")

    def which(self, tool: str) -> str | None:
        return f"/usr/bin/{tool}" if any(start.split()[0] == tool for start in self.answers) else None


def write(root: Path, files: dict[str, str | bytes]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


def pci(bus: str, device: str, cls: str, vendor: str = "0x10de") -> dict[str, str | bytes]:
    base = f"sys/bus/pci/devices/{bus}"
    return {
        f"{base}/vendor": vendor + "\n",
        f"{base}/device": device + "\n",
        f"{base}/class": cls + "\n",
        f"{base}/subsystem_device": "0x16c1\n",
    }


def node(root: Path, tools: Tools, release: str = "6.1.0-35-amd64", **options: Any) -> _node_facts.Node:
    options.setdefault("cache", None)
    return _node_facts.Node(root=root, run=tools.run, which=tools.which, release=release, machine="x86_64", **options)


def test_a_debian_node_with_everything(tmp_path: Path) -> None:
    release = "6.1.0-35-amd64"
    write(
        tmp_path,
        {
            "etc/os-release": DEBIAN,
            "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/sda1\n",
            "proc/sys/kernel/random/boot_id": "b-1\n",
            **pci("0000:07:00.0", "0x2330", "0x030200"),
            **pci("0000:41:00.0", "0x2330", "0x030000"),
            **pci("0000:42:00.0", "0x22a3", "0x068000"),
            **pci("0000:43:00.0", "0x22ba", "0x040300"),
            **pci("0000:00:02.0", "0x1111", "0x030000", vendor="0x1234"),
            "sys/module/nvidia/version": "535.309.01\n",
            "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.309.01  Wed\n",
            "usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.535.309.01": "",
            f"usr/src/linux-headers-{release}/Makefile": "",
            f"lib/modules/{release}/modules.dep": "updates/dkms/nvidia-current.ko:\n",
            "lib/modules/6.1.0-30-amd64/modules.dep": "",
            "etc/modprobe.d/nouveau.conf": "blacklist nouveau\noptions nouveau modeset=0\n",
            "var/lib/dpkg/status": "",
            "etc/apt/sources.list": "deb http://m/debian bookworm main\n",
            "etc/apt/sources.list.d/n.sources": "Types: deb\nURIs: http://n/\nSuites: /\n",
            "etc/apt/sources.list.d/old.list.save": "deb http://old/ x main\n",
            "run/reboot-required": "",
            "boot/initrd.img-6.1.0-35-amd64": archive(),
        },
    )
    driver = tmp_path / "sys/bus/pci/drivers/nvidia"
    driver.mkdir(parents=True)
    (tmp_path / "sys/bus/pci/devices/0000:07:00.0/driver").symlink_to(driver)
    (tmp_path / f"lib/modules/{release}/build").symlink_to(tmp_path / f"usr/src/linux-headers-{release}")
    library = tmp_path / "usr/lib/x86_64-linux-gnu/nvidia/current"
    (library / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.535.309.01")
    tools = Tools(
        {
            "modinfo": Output(
                1, f"filename: /lib/modules/{release}/updates/dkms/nvidia-current.ko\nversion: 535.309.01\nlicense: NVIDIA\n"
            ),
            "dkms --version": "dkms-3.0.10\n",
            "dkms status": f"nvidia-current/535.309.01, {release}, x86_64: installed\n",
            "dpkg-query": "hi \tnvidia-kernel-dkms\t535.309.01-1\nii \tnvidia-container-toolkit\t1.17.8-1\n",
            "apt-get": "",
            "update-initramfs": "",
            "nvidia-smi": "",
            "docker --version": "Docker version 20.10.24+dfsg1, build 297e128\n",
        }
    )
    facts, unread = _node_facts.gather(node(tmp_path, tools))
    assert unread == {}
    assert facts["gpus"] == [
        {"bus_id": "0000:07:00.0", "device_id": "2330", "subsystem_id": "16c1", "class": "0302", "bound_driver": "nvidia"},
        {"bus_id": "0000:41:00.0", "device_id": "2330", "subsystem_id": "16c1", "class": "0300", "bound_driver": None},
    ]
    assert facts["nvswitches"] == 1
    assert facts["kernel"]["headers"] is True
    assert facts["kernel"]["headers_path"] == str(tmp_path / f"usr/src/linux-headers-{release}")
    assert facts["kernel"]["installed"] == ["6.1.0-30-amd64", release]
    assert facts["driver"] == {
        "loaded_version": "535.309.01",
        "library_version": "535.309.01",
        "module_version": "535.309.01",
        "module_name": "nvidia-current",
        "flavour": "proprietary",
        "kernels": {release: "535.309.01", "6.1.0-30-amd64": None},
        "smi_path": "/usr/bin/nvidia-smi",
        "runfile": False,
    }
    assert facts["dkms"]["version"] == "3.0.10"
    assert facts["dkms"]["modules"][0]["state"] == "installed"
    assert facts["nouveau"] == {
        "loaded": False,
        "blacklisted": True,
        "modeset_disabled": True,
        "in_initramfs": True,
        "problems": [],
    }
    assert facts["initramfs"] == {
        "tool": "update-initramfs",
        "image": "/boot/initrd.img-6.1.0-35-amd64",
        "modprobe_files": ["/etc/modprobe.d/nouveau.conf"],
        "nouveau_blacklisted": True,
    }
    assert facts["packages"] == {"nvidia-container-toolkit": "1.17.8-1", "nvidia-kernel-dkms": "535.309.01-1"}
    assert facts["held"] == ["nvidia-kernel-dkms"]
    assert [source["file"] for source in facts["sources"]] == ["/etc/apt/sources.list", "/etc/apt/sources.list.d/n.sources"]
    assert facts["toolkit"] == {"version": "1.17.8"}
    assert facts["docker"]["version"] == "20.10.24+dfsg1"
    assert facts["docker"]["running"] is False
    assert facts["reboot_required"] is True
    assert facts["package_manager"] == {"name": "apt", "lock_held_by": None}
    assert facts["boot_id"] == "b-1"
    assert facts["secure_boot"] == "unsupported"
    assert facts["glibc"]
    assert set(facts["disk"]) == {"/", "/var", "/boot", "/var/lib/docker"}
    assert all(isinstance(free, int) for free in facts["disk"].values())
    json.dumps(facts)


def archive() -> bytes:
    """A small initramfs with nouveau and a blacklist in it."""

    def entry(name: str, data: bytes = b"") -> bytes:
        raw = name.encode() + b"\0"
        fields = [1, 0o100644, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(raw), 0]
        head = b"070701" + b"".join(b"%08x" % value for value in fields) + raw
        return head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)

    return (
        entry("usr/lib/modules/6.1/nouveau.ko.xz")
        + entry("etc/modprobe.d/nouveau.conf", b"blacklist nouveau\n")
        + entry("TRAILER!!!")
    )


def test_an_openeuler_node(tmp_path: Path) -> None:
    release = "6.6.0-72.0.0.76.oe2403sp1.x86_64"
    write(
        tmp_path,
        {
            "etc/os-release": OPENEULER,
            "etc/yum.repos.d/openEuler.repo": "[OS]\nbaseurl=http://m/OS/\n",
            "etc/dnf/plugins/versionlock.list": "kernel-0:6.6.0-72.0.0.76.oe2403sp1.*\n",
            "sys/module/nouveau/initstate": "live\n",
            f"boot/initramfs-{release}.img": b"MZ not an image",
            f"boot/initrd.img-{release}": b"left over",
            "var/log/nvidia-installer.log": "",
            "usr/lib64/libnvidia-ml.so.580.95.05": "",
            "var/cache/dnf/metadata_lock.pid": "4242",
            "proc/4242/comm": "dnf\n",
            "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c": b"\x06\0\0\0\x01",
        },
    )
    tools = Tools(
        {
            "rpm": "kernel-devel\t0:6.6.0-72.0.0.76.oe2403sp1\nmoby\t0:25.0.3-20.oe2403sp1\n",
            "dnf": "",
            "dracut": "",
            "lsinitrd": "-rw-r--r-- 1 root root 45 Jan 1 2024 etc/modprobe.d/x.conf\n",
            "nvidia-ctk --version": "NVIDIA Container Toolkit CLI version 1.18.0\ncommit: x\n",
        }
    )
    facts, unread = _node_facts.gather(node(tmp_path, tools, release))
    assert unread == {}
    assert facts["os"]["distribution"] == "openEuler"
    assert facts["kernel"]["headers"] is False
    assert facts["kernel"]["headers_path"] is None
    assert facts["nouveau"]["loaded"] is True
    assert facts["nouveau"]["in_initramfs"] is False
    assert facts["initramfs"] == {
        "tool": "dracut",
        "image": f"/boot/initramfs-{release}.img",
        "modprobe_files": ["/etc/modprobe.d/x.conf"],
        "nouveau_blacklisted": None,
    }
    assert facts["packages"]["moby"] == "25.0.3-20.oe2403sp1"
    assert facts["held"] == ["kernel"]
    assert facts["sources"] == [{"file": "/etc/yum.repos.d/openEuler.repo", "id": "OS", "baseurl": "http://m/OS/"}]
    assert facts["package_manager"] == {"name": "dnf", "lock_held_by": "dnf (pid 4242)"}
    assert facts["driver"]["runfile"] is True
    assert facts["driver"]["library_version"] == "580.95.05"
    assert facts["driver"]["loaded_version"] is None
    assert facts["toolkit"] == {"version": "1.18.0"}
    assert facts["secure_boot"] == "enabled"
    assert facts["dkms"] is None
    assert facts["docker"] is None


def test_an_empty_node_gives_nulls_and_no_error(tmp_path: Path) -> None:
    facts, unread = _node_facts.gather(node(tmp_path, Tools({})))
    assert unread == {}
    assert facts["gpus"] == []
    assert facts["driver"]["loaded_version"] is None
    assert facts["initramfs"]["tool"] is None
    assert facts["nouveau"]["in_initramfs"] is None
    assert (facts["packages"], facts["held"], facts["dkms"], facts["docker"], facts["toolkit"]) == (
        None,
        None,
        None,
        None,
        None,
    )
    assert facts["package_manager"] == {"name": None, "lock_held_by": None}


def test_a_probe_that_breaks_is_null_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_node: _node_facts.Node) -> Any:
        raise RuntimeError("no such luck")

    for name in _node_facts.PROBES:
        monkeypatch.setitem(_node_facts.PROBES, name, broken)
    facts, unread = _node_facts.gather(node(tmp_path, Tools({})))
    assert set(unread) == set(_node_facts.PROBES)
    assert unread["dkms"] == "RuntimeError: no such luck"
    assert set(facts.values()) == {None}


def test_a_tool_that_hangs_gives_null(tmp_path: Path) -> None:
    write(tmp_path, {"var/lib/dpkg/status": ""})
    hung = Output(None, problem="timeout")
    tools = Tools({"apt-get": "", "dpkg-query": hung, "dkms": hung, "modinfo": hung})
    facts, unread = _node_facts.gather(node(tmp_path, tools))
    assert unread == {}
    assert facts["packages"] is None
    assert facts["dkms"] == {"version": None, "modules": []}


@pytest.mark.parametrize(
    ("tools", "tool"),
    [
        ({}, None),
        ({"dracut": ""}, "dracut"),
        ({"update-initramfs": "", "mkinitramfs": ""}, "update-initramfs"),
        ({"update-initramfs": "", "mkinitramfs": "", "dracut": ""}, "update-initramfs"),
        ({"update-initramfs": "", "dracut": ""}, "dracut"),  # the wrapper that dracut brings along
    ],
)
def test_initramfs_tool(tmp_path: Path, tools: dict[str, Output | str], tool: str | None) -> None:
    assert _node_facts.initramfs_tool(node(tmp_path, Tools(tools))) == tool


def test_a_dangling_build_link_is_no_header(tmp_path: Path) -> None:
    (tmp_path / "lib/modules/6.1.0-35-amd64").mkdir(parents=True)
    (tmp_path / "lib/modules/6.1.0-35-amd64/build").symlink_to(tmp_path / "usr/src/gone")
    assert _node_facts.probe_kernel(node(tmp_path, Tools({})))["headers"] is False


def test_the_image_is_read_once_until_it_changes(tmp_path: Path) -> None:
    write(tmp_path, {"boot/initrd.img-6.1.0-35-amd64": archive()})
    cache = tmp_path / "run/inferack/initramfs.json"
    cache.parent.parent.mkdir()
    image = tmp_path / "boot/initrd.img-6.1.0-35-amd64"
    first = _node_facts.probe_initramfs(node(tmp_path, Tools({}), cache=cache))
    remembered = json.loads(cache.read_text())
    remembered["content"]["nouveau"] = "from the cache"
    cache.write_text(json.dumps(remembered))
    assert _node_facts.probe_initramfs(node(tmp_path, Tools({}), cache=cache))["nouveau"] == "from the cache"
    os.utime(image, (1, 1))
    assert _node_facts.probe_initramfs(node(tmp_path, Tools({}), cache=cache)) == first
    cache.write_text("{ broken")
    assert _node_facts.probe_initramfs(node(tmp_path, Tools({}), cache=cache)) == first
    skipped = _node_facts.probe_initramfs(node(tmp_path, Tools({}), initramfs=False))
    assert (skipped["nouveau"], skipped["modprobe_files"]) == (None, None)
    assert skipped["image"] == "/boot/initrd.img-6.1.0-35-amd64"


def test_the_holder_of_a_real_lock_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"var/lib/dpkg/lock-frontend": "", "var/lib/dpkg/status": ""})
    lock = tmp_path / "var/lib/dpkg/lock-frontend"
    (tmp_path / "proc").symlink_to("/proc")
    place = node(tmp_path, Tools({"apt-get": ""}))
    assert _node_facts.probe_package_manager(place)["lock_held_by"] is None
    script = "import fcntl,sys,time\nf=open(sys.argv[1],'r+b')\nfcntl.lockf(f,fcntl.LOCK_EX)\nprint('held',flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", script, str(lock)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        holder = _node_facts.probe_package_manager(place)["lock_held_by"]
        process.kill()
    assert holder is not None
    assert holder.endswith(f"(pid {process.pid})")
    assert holder.startswith("python")
    assert _node_facts.probe_package_manager(place)["lock_held_by"] is None


def test_flock_has_the_kernels_layout() -> None:
    assert struct.calcsize(_node_facts.FLOCK) == 32
    assert fcntl.F_UNLCK == 2


def test_docker_is_asked_over_its_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = {
        "ServerVersion": "26.1.5",
        "Runtimes": {"nvidia": {}, "runc": {}},
        "CDISpecDirs": ["/etc/cdi"],
        "CgroupDriver": "systemd",
    }
    write(tmp_path, {"run/docker.sock": "", "proc/77/comm": "dockerd\n"})
    monkeypatch.setattr(
        _node_facts, "engine_info", lambda path, timeout: info if path == str(tmp_path / "run/docker.sock") else None
    )
    facts = _node_facts.probe_docker(node(tmp_path, Tools({"docker": ""})))
    assert facts is not None
    assert (facts["running"], facts["version"], facts["runtimes"], facts["cdi"]) == (True, "26.1.5", ["nvidia", "runc"], True)


def test_a_stopped_engine_is_not_started_by_asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"run/docker.sock": "", "snap/bin/docker": ""})
    monkeypatch.setattr(_node_facts, "engine_info", lambda path, timeout: pytest.fail("the socket was used"))
    facts = _node_facts.probe_docker(node(tmp_path, Tools({})))
    assert facts is not None
    assert (facts["running"], facts["snap"], facts["version"]) == (False, True, None)


def test_an_engine_that_is_not_there_gives_none(tmp_path: Path) -> None:
    assert _node_facts.engine_info(str(tmp_path / "docker.sock"), 1.0) is None


def test_kernels_that_can_be_booted_and_what_each_has(tmp_path: Path) -> None:
    other, leftover = "6.1.0-42-amd64", "6.1.0-12-amd64"
    release = node(tmp_path, Tools({})).release
    write(
        tmp_path,
        {
            f"lib/modules/{release}/modules.dep": "updates/dkms/nvidia-current.ko:\n",
            f"lib/modules/{other}/modules.dep": "updates/dkms/nvidia-current.ko:\n",
            f"lib/modules/{leftover}/modules.builtin": "",
            f"boot/vmlinuz-{release}": "",
            f"boot/vmlinuz-{other}": "",
            "boot/vmlinuz-5.10.0-1-amd64": "",
            "boot/grub/grub.cfg": f"set default=\"0\"\nmenuentry 'Debian' --class x {{\n\tlinux\t/boot/vmlinuz-{other} root=x\n}}\n",
        },
    )
    tools = Tools(
        {
            f"modinfo -k {release}": Output(1, "filename: /x/nvidia-current.ko\nversion: 535.309.01\n"),
            f"modinfo -k {other}": Output(0, "filename: /x/nvidia-current.ko\nversion: 535.104.05\n"),
        }
    )
    facts, unread = _node_facts.gather(node(tmp_path, tools))
    assert unread == {}
    assert facts["kernel"]["bootable"] == sorted([release, other])
    assert facts["kernel"]["default"] == other
    assert facts["driver"]["kernels"] == {release: "535.309.01", other: "535.104.05", leftover: None}
