"""The module dkms against a fake DKMS (fake_dkms.py) in folders of the test's own.

INFERACK_REAL_DKMS=/path/to/dkms runs the same tests against that program; it has to run as root, because dkms insists.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.inferack.rack.plugins.module_utils import _dkms, _dkms_run, _dkms_store
from ansible_collections.inferack.rack.plugins.modules import dkms

KERNEL = "6.1.0-42-amd64"
NEWER = "6.1.0-43-amd64"
FLAGS = "SMP preempt mod_unload modversions"
FAKE = Path(__file__).with_name("fake_dkms.py")
REAL = os.environ.get("INFERACK_REAL_DKMS")


def module_bytes(kernel: str, version: str = "580.95.05", licence: str = "NVIDIA", flags: str = FLAGS) -> bytes:
    """What of a kernel module the readers look at: an ELF header and the section .modinfo."""
    tags = f"\0license={licence}\0version={version}\0vermagic={kernel} {flags} \0".encode()
    return b"\x7fELF" + bytes(60) + tags + bytes(16)


class Node:
    """A node's folders, and the module run on it."""

    def __init__(self, root: Path, run_module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self._run = root, run_module
        self.trees = _dkms.Trees(root / "records", root / "sources", root / "modules")
        self.trees.records.mkdir(parents=True)
        self.trees.sources.mkdir()
        self.log = root / "calls"
        self.program = root / "bin/dkms"
        self.program.parent.mkdir()
        base = REAL or f"{sys.executable} -S -E {FAKE}"
        folders = f"--dkmstree {self.trees.records} --sourcetree {self.trees.sources} --installtree {self.trees.modules}"
        # The real one passes its options on to nothing else, so that they may stand behind the action.
        self.program.write_text(f'#!/bin/sh\necho "$*" >> {self.log}\nexec {base} "$@" {folders}\n')
        self.program.chmod(0o755)
        # Which package owns a file, and what the compiler calls itself, is not this machine's to say.
        for name, script in (("dpkg", "exit 1"), ("rpm", "exit 1"), ("cc", "echo 'cc (GCC) 12.2.0'"), ("depmod", "exit 0")):
            self.tool(name, script)
        monkeypatch.setattr(dkms, "trees", lambda: self.trees)
        monkeypatch.setattr(_dkms_run.os, "uname", lambda: SimpleNamespace(release=KERNEL, machine="x86_64"))
        monkeypatch.setattr(_dkms_store, "enforced", lambda root: False)
        monkeypatch.setenv("PATH", f"{root / 'bin'}:{os.environ['PATH']}")
        for kernel in (KERNEL, NEWER):
            self.add_kernel(kernel)

    def add_kernel(self, kernel: str, headers: bool = True, flags: str = FLAGS) -> None:
        folder = self.trees.modules / kernel
        (folder / "kernel/fs").mkdir(parents=True, exist_ok=True)
        (folder / "kernel/fs/ext4.ko").write_bytes(module_bytes(kernel, "1", "GPL", flags))
        (folder / "modules.dep").write_text("kernel/fs/ext4.ko:\n")
        if headers:
            for name in ("include/generated/autoconf.h", "Makefile", "Module.symvers"):
                (folder / "build" / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / "build" / name).write_text("")
            (folder / "build/include/config").mkdir(parents=True, exist_ok=True)
            (folder / "build/include/config/kernel.release").write_text(kernel + "\n")
            (folder / "build/.config").write_text('CONFIG_CC_VERSION_TEXT="gcc-12 (Debian 12.2.0-14) 12.2.0"\n')

    def add_source(self, version: str = "580.95.05", fails: str = "", licence: str = "NVIDIA") -> Path:
        """A source whose make copies prepared modules, or prints `fails` and ends with 2."""
        source = self.trees.source("nvidia", version)
        source.mkdir()
        for kernel in (KERNEL, NEWER):
            (source / kernel).mkdir()
            (source / kernel / "nvidia.ko").write_bytes(module_bytes(kernel, version, licence))
            (source / kernel / "nvidia-uvm.ko").write_bytes(module_bytes(kernel, version, "Dual MIT/GPL"))
        (source / "errors").write_text(fails)
        make = "cat errors; exit 2" if fails else "cp ${kernelver}/*.ko ."
        (source / "dkms.conf").write_text(
            f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{version}"\nMAKE[0]="{make}"\nCLEAN="true"\n'
            + "".join(
                f'BUILT_MODULE_NAME[{number}]="{name}"\nDEST_MODULE_LOCATION[{number}]="/updates/dkms"\nSTRIP[{number}]="no"\n'
                for number, name in enumerate(("nvidia", "nvidia-uvm"))
            )
            + 'AUTOINSTALL="yes"\n'
        )
        return source

    def tool(self, name: str, script: str) -> None:
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def run(self, check_mode: bool = False, **options: Any) -> dict[str, Any]:
        given = {"name": "nvidia", "dkms": str(self.program), **options}
        result: dict[str, Any] = self._run(dkms, given, check_mode=check_mode, diff=True)
        return result

    def calls(self) -> list[str]:
        """The steps that DKMS was told to take."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.split()[0] for line in lines if not line.startswith("status")]

    def forget(self) -> None:
        self.log.unlink(missing_ok=True)

    def installed(self, kernel: str = KERNEL) -> list[str]:
        return sorted(path.name for path in (self.trees.modules / kernel / "updates/dkms").glob("*.ko"))

    def snapshot(self) -> list[str]:
        """Everything below the records and the modules, as paths."""
        return sorted(
            str(path.relative_to(self.root))
            for folder in (self.trees.records, self.trees.modules)
            for path in folder.rglob("*")
            if path.name not in ("modules.dep", "updates", "dkms") and not path.name.startswith("modules.")
        )


@pytest.fixture
def node(tmp_path: Path, run_module: Any, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, run_module, monkeypatch)


@pytest.fixture
def other(tmp_path: Path, run_module: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Node]:
    """A second node; the module then runs on that one."""
    return lambda: Node(tmp_path / "other", run_module, monkeypatch)


def test_a_module_is_installed_and_then_left_alone(node: Node) -> None:
    node.add_source()
    result = node.run()
    assert (result["failed"], result["changed"], result["worst"], result["version"]) == (False, True, "pass", "580.95.05")
    (kernel,) = result["kernels"]
    assert (kernel["before"], kernel["after"], kernel["steps"]) == ("absent", "installed", ["add", "build", "install"])
    assert node.installed() == ["nvidia-uvm.ko", "nvidia.ko"]
    assert result["diff"] == {"before": f"{KERNEL}: absent\n", "after": f"{KERNEL}: installed\n"}
    node.forget()
    again = node.run()
    assert (again["changed"], again["kernels"][0]["steps"], node.calls()) == (False, [], [])


@pytest.mark.parametrize("form", ["2", "3"])
def test_built_is_not_installed_yet(node: Node, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_DKMS_FORMAT", form)
    node.add_source()
    result = node.run(state="built", version="580.95.05", kernels=[KERNEL, NEWER])
    assert [kernel["after"] for kernel in result["kernels"]] == ["built", "built"]
    assert node.installed() == node.installed(NEWER) == []
    assert node.run(state="built", kernels=[KERNEL, NEWER])["changed"] is False
    node.forget()
    result = node.run()
    assert (result["kernels"][0]["before"], result["kernels"][0]["after"], node.calls()) == ("built", "installed", ["install"])
    assert node.run(state="built")["changed"] is False


@pytest.mark.parametrize("state", ["built", "installed"])
def test_check_mode_says_what_it_would_do(node: Node, state: str) -> None:
    node.add_source()
    before = node.snapshot()
    result = node.run(check_mode=True, state=state)
    assert (result["failed"], result["changed"], result["worst"]) == (False, True, "skip")
    assert result["diff"]["after"] == f"{KERNEL}: {state}\n"
    assert node.calls() == []
    assert node.snapshot() == before


def test_the_newest_version_is_meant_when_none_is_named(node: Node) -> None:
    node.add_source("580.65.06")
    node.add_source("580.126.09")
    node.add_source("580.95.05")
    assert node.run(state="built")["version"] == "580.126.09"


API = """DKMS make.log
nvidia/nv-pci.c:242:9: error: too few arguments to function 'pci_resize_resource'
make[1]: *** [nv-pci.o] Error 1
"""


@pytest.mark.parametrize(
    ("fails", "identifier", "kind", "words"),
    [
        (API, "driver.dkms", "api change", "too few arguments to function 'pci_resize_resource'"),
        ("x.s: Fatal error: can't write: No space left on device", "node.disk", "disk", "a full disk while building"),
        ("cc: fatal error: Killed signal terminated program cc1", "driver.dkms", "memory", "want of memory"),
        ("/bin/sh: 1: gcc-12: not found", "driver.dkms", "compiler absent", "gcc-12 (Debian 12.2.0-14) 12.2.0"),
        ("ERROR: Kernel configuration is invalid.", "driver.headers", "headers", "absent or incomplete"),
    ],
)
def test_a_failed_build_is_named_and_leaves_nothing(node: Node, fails: str, identifier: str, kind: str, words: str) -> None:
    node.add_source(fails=fails)
    before = node.snapshot()
    result = node.run()
    assert result["failed"] is True
    assert result["msg"].startswith(f"{identifier}, nvidia/580.95.05 for kernel {KERNEL}: ")
    assert words in result["msg"]
    (kernel,) = result["kernels"]
    assert kernel["failure"]["kind"] == kind
    assert kernel["failure"]["compiler"]["kernel"] == "gcc-12 (Debian 12.2.0-14) 12.2.0"
    assert kernel["failure"]["headers"]["complete"] is True
    assert kernel["failure"]["log"].endswith("make.log")
    assert kernel["after"] == "absent"
    assert node.snapshot() == before
    assert node.run(report_only=True)["failed"] is False


def test_a_package_keeps_its_registration(node: Node) -> None:
    source = node.add_source(fails=API)
    node.tool("dpkg", f'[ "$2" = {source} ] && echo "nvidia-kernel-dkms: $2"')
    result = node.run()
    assert (result["failed"], result["kernels"][0]["after"]) == (True, "added")
    assert "remove" not in node.calls()


def test_a_registration_of_before_stays(node: Node) -> None:
    source = node.add_source()
    node.run(state="built", kernels=[NEWER])
    (source / "dkms.conf").write_text((source / "dkms.conf").read_text().replace("cp ${kernelver}/*.ko .", "exit 2"))
    result = node.run()
    assert (result["failed"], result["kernels"][0]["after"]) == (True, "added")
    assert node.run(check_mode=True, state="built", kernels=[NEWER])["changed"] is False


def test_one_kernel_fails_and_the_other_is_served(node: Node) -> None:
    source = node.add_source()
    (source / KERNEL / "nvidia.ko").unlink()
    (source / KERNEL / "nvidia-uvm.ko").unlink()
    result = node.run(kernels=[KERNEL, NEWER])
    assert [kernel["after"] for kernel in result["kernels"]] == ["absent", "installed"]
    assert (result["failed"], result["changed"]) == (True, True)
    assert [check["status"] for check in result["checks"]] == ["fail", "pass"]


def test_headers_are_looked_for_before_anything_is_touched(node: Node) -> None:
    node.add_source()
    node.add_kernel("6.1.0-44-amd64", headers=False)
    result = node.run(kernels=["6.1.0-44-amd64"])
    assert result["msg"].startswith("driver.headers, nvidia/580.95.05 for kernel 6.1.0-44-amd64: found no headers of kernel")
    assert (node.calls(), result["changed"]) == ([], False)
    headers = node.trees.modules / KERNEL / "build/include/config/kernel.release"
    headers.write_text("6.1.0-41-amd64\n")
    assert "headers of kernel 6.1.0-41-amd64 in the place of" in node.run()["msg"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "other"}, "no other in DKMS's tree"),
        ({"version": "1.0"}, "nvidia-1.0/dkms.conf"),
        (
            {"kernels": ["5.10.0"]},
            f"no kernel 5.10.0 on this node, expected an installed kernel; name an installed kernel ({KERNEL}",
        ),
    ],
)
def test_what_cannot_work_is_refused(node: Node, options: dict[str, Any], words: str) -> None:
    node.add_source()
    result = node.run(**options)
    assert (result["failed"], result["changed"], node.calls()) == (True, False, [])
    assert words in result["msg"]


def test_a_node_without_dkms(node: Node) -> None:
    result = node.run(dkms=str(node.root / "no-dkms"))
    assert "no-dkms is not installed" in result["msg"]


def test_a_build_that_hangs(node: Node) -> None:
    source = node.add_source()
    (source / "dkms.conf").write_text((source / "dkms.conf").read_text().replace("cp ${kernelver}/*.ko .", "sleep 60"))
    result = node.run(timeout=2)
    assert "`dkms build` did not end within 2 s" in result["msg"]
    assert result["kernels"][0]["after"] == "absent"


def test_what_a_killed_build_left_does_not_stop_the_next(node: Node) -> None:
    node.add_source()
    node.run(state="built")
    half = node.trees.built("nvidia", "580.95.05", KERNEL, "x86_64") / "nvidia-uvm.ko"
    half.unlink()
    result = node.run()
    assert (result["failed"], result["kernels"][0]["after"]) == (False, "installed")


def test_an_installed_module_that_is_another_is_replaced(node: Node) -> None:
    node.add_source()
    node.run()
    target = next((node.trees.modules / KERNEL / "updates").rglob("nvidia.ko"))
    target.write_bytes(module_bytes(KERNEL, "550.1"))
    result = node.run()
    assert (result["kernels"][0]["steps"], result["kernels"][0]["after"]) == (["reinstall"], "installed")
    assert b"580.95.05" in target.read_bytes()
    assert node.run()["changed"] is False


def test_dkmss_warning_about_a_compressed_copy_is_no_difference(node: Node) -> None:
    """DKMS compares bytes: the same module compressed in one of the two places is a difference to it."""
    rows = [_dkms.Row("nvidia", "580.95.05", KERNEL, "x86_64", "installed", differs=True)]
    node.add_source()
    node.run()
    target = next((node.trees.modules / KERNEL / "updates").rglob("nvidia.ko"))
    target.with_suffix(".ko.gz").write_bytes(gzip.compress(target.read_bytes()))
    target.unlink()
    assert _dkms.really_differs(rows[0], node.trees) is False
    target.with_suffix(".ko.gz").write_bytes(gzip.compress(module_bytes(KERNEL, "1")))
    assert _dkms.really_differs(rows[0], node.trees) is True


def test_absent_for_a_kernel_and_as_a_whole(node: Node) -> None:
    node.add_source()
    node.run(kernels=[KERNEL, NEWER])
    before = node.snapshot()
    would = node.run(check_mode=True, state="absent", kernels=[KERNEL])
    assert (would["changed"], node.snapshot()) == (True, before)
    result = node.run(state="absent", kernels=[KERNEL])
    assert (result["failed"], result["changed"]) == (False, True)
    assert (node.installed(), node.installed(NEWER)) == ([], ["nvidia-uvm.ko", "nvidia.ko"])
    assert node.run(state="absent", kernels=[KERNEL])["changed"] is False
    would = node.run(check_mode=True, state="absent")
    assert (would["changed"], would["worst"]) == (True, "skip")
    assert node.run(state="absent")["changed"] is True
    assert not (node.trees.records / "nvidia").exists()
    assert node.installed(NEWER) == []
    again = node.run(state="absent", version="580.95.05")
    assert (again["failed"], again["changed"], again["worst"]) == (False, False, "pass")


def test_the_last_kernel_goes_and_a_packages_registration_stays(node: Node) -> None:
    source = node.add_source()
    node.tool("dpkg", f'[ "$2" = {source} ] && echo "nvidia-kernel-dkms: $2"')
    node.run()
    result = node.run(state="absent", kernels=[KERNEL])
    assert (result["failed"], result["kernels"][0]["after"]) == (False, "added")


def test_a_tree_whose_source_is_gone_is_removed(node: Node) -> None:
    source = node.add_source()
    node.run()
    for path in sorted(source.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    source.rmdir()
    (node.trees.version("nvidia", "580.95.05") / "source").unlink()
    result = node.run(state="absent", version="580.95.05")
    assert (result["failed"], result["changed"]) == (False, True)
    assert not (node.trees.records / "nvidia").exists()


def exported(node: Node) -> Path:
    folder = node.root / "store"
    folder.mkdir()
    node.run()
    result = node.run(state="exported", archive=str(folder))
    assert (result["failed"], result["changed"]) == (False, True)
    (archive,) = folder.iterdir()
    assert archive.name == f"nvidia-580.95.05-{KERNEL}-x86_64-proprietary.tar.gz"
    return archive


def test_export_is_repeatable_to_the_byte(node: Node) -> None:
    node.add_source()
    archive = exported(node)
    first = archive.read_bytes()
    again = node.run(state="exported", archive=str(archive.parent))
    assert again["changed"] is False
    (told,) = again["archives"]
    assert told["manifest"]["kernel"] == KERNEL
    assert told["manifest"]["flavour"] == "proprietary"
    assert told["manifest"]["driver_version"] == "580.95.05"
    assert told["manifest"]["vermagic"] == f"{KERNEL} {FLAGS}"
    assert len(told["sha256"]) == 64
    archive.unlink()
    would = node.run(check_mode=True, state="exported", archive=str(archive.parent))
    assert (would["changed"], archive.exists(), would["archives"][0]["sha256"]) == (True, False, None)
    node.run(state="exported", archive=str(archive))
    assert archive.read_bytes() == first


def test_export_of_what_is_not_built(node: Node) -> None:
    node.add_source()
    result = node.run(state="exported", archive=str(node.root / "x.tar.gz"))
    assert result["msg"].startswith(
        f"driver.archive, nvidia/580.95.05 for kernel {KERNEL}: found expected nvidia/580.95.05 built"
    )
    result = node.run(state="exported", archive=str(node.root / "x.tar.gz"), kernels=[KERNEL, NEWER])
    assert "no folder, for 2 kernels" in result["msg"]


@pytest.mark.parametrize("with_source", [True, False])
def test_import_installs_without_compiler_and_headers(node: Node, other: Callable[[], Node], with_source: bool) -> None:
    node.add_source()
    archive = exported(node)
    total = node.run(state="exported", archive=str(archive))["archives"][0]["sha256"]
    second = other()
    if with_source:
        second.add_source(fails="must not be built here")
    for path in sorted((second.trees.modules / KERNEL / "build").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    options = {"state": "imported", "archive": str(archive), "archive_sha256": total, "flavour": "proprietary"}
    before = second.snapshot()
    would = second.run(check_mode=True, **options)
    assert (would["failed"], would["changed"], second.snapshot()) == (False, True, before)
    result = second.run(**options)
    assert (result["failed"], result["changed"], result["worst"]) == (False, True, "pass")
    assert result["kernels"][0]["after"] == "installed"
    assert result["kernels"][0]["steps"] == ["add" if with_source else "register", "import", "install"]
    assert "build" not in second.calls()
    assert second.installed() == ["nvidia-uvm.ko", "nvidia.ko"]
    assert second.run(**options)["changed"] is False
    assert second.run(state="absent")["changed"] is True
    assert not (second.trees.records / "nvidia").exists()
    assert [path.name for path in second.trees.records.iterdir()] == []


def test_import_is_refused_when_the_archive_is_not_what_was_asked_for(node: Node, other: Callable[[], Node]) -> None:
    node.add_source()
    archive = exported(node)
    second = other()
    before = second.snapshot()
    for options, words in (
        ({"archive_sha256": "0" * 64}, "expected " + "0" * 64),
        ({"flavour": "open"}, "flavour proprietary in the archive, expected open"),
        ({"version": "580.65.06"}, "version 580.95.05 in the archive, expected 580.65.06"),
        ({"kernels": [NEWER]}, f"modules for kernel {KERNEL}, expected {NEWER}"),
        ({"signer": "DKMS module signing key"}, "modules signed by nobody, expected all signed by DKMS module signing key"),
        ({"archive": str(FAKE)}, "expected an archive of built modules"),
        ({"archive": "/nowhere.tar.gz"}, "No such file"),
    ):
        result = second.run(**{"state": "imported", "archive": str(archive), **options})
        assert result["msg"].startswith("driver.archive"), options
        assert words in result["msg"], result["msg"]
        assert (result["changed"], second.calls()) == (False, [])
    assert second.snapshot() == before


def test_import_asks_for_the_kernels_own_vermagic_and_for_signatures(
    node: Node, other: Callable[[], Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    node.add_source()
    archive = exported(node)
    second = other()
    second.add_kernel(KERNEL, flags="SMP preempt mod_unload modversions RANDSTRUCT_1")
    assert "RANDSTRUCT_1" in second.run(state="imported", archive=str(archive))["msg"]
    second.add_kernel(KERNEL)
    monkeypatch.setattr(_dkms_store, "enforced", lambda root: True)
    assert "this kernel refuses modules without" in second.run(state="imported", archive=str(archive))["msg"]
    monkeypatch.setattr(_dkms_store, "enforced", lambda root: False)
    assert second.run(state="imported", archive=str(archive))["failed"] is False


def test_import_beside_the_other_flavour(node: Node, other: Callable[[], Node]) -> None:
    node.add_source()
    archive = exported(node)
    second = other()
    second.add_source(licence="Dual MIT/GPL")
    second.run()
    result = second.run(state="imported", archive=str(archive))
    assert "open modules built here, proprietary ones in the archive" in result["msg"]
    assert result["kernels"][0]["after"] == "installed"


@pytest.mark.parametrize("with_source", [True, False])
def test_an_import_that_fails_is_taken_back(node: Node, other: Callable[[], Node], with_source: bool) -> None:
    source = node.add_source()
    archive = exported(node)
    second = other()
    if with_source:
        # The package on this node builds a third module, which the archive lacks.
        source = second.add_source()
        extra = 'BUILT_MODULE_NAME[2]="nvidia-peermem"\nDEST_MODULE_LOCATION[2]="/updates/dkms"\n'
        (source / "dkms.conf").write_text((source / "dkms.conf").read_text() + extra)
        words = "names other modules than the archive has"
    else:
        damaged = archive.read_bytes()
        archive.write_bytes(damaged[: len(damaged) - 40])
        words = "expected"
    before = second.snapshot()
    result = second.run(state="imported", archive=str(archive))
    assert result["failed"] is True
    assert words in result["msg"]
    assert second.snapshot() == before


def test_results_are_plain(node: Node) -> None:
    node.add_source()
    assert json.loads(json.dumps(node.run()))["kernels"][0]["kernel"] == KERNEL
