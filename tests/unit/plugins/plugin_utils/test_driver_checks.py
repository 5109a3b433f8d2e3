"""Verdicts on nouveau and on the driver."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.inferack.rack.plugins.module_utils._checks import Check, sentence
from ansible_collections.inferack.rack.plugins.plugin_utils import _compat as compat
from ansible_collections.inferack.rack.plugins.plugin_utils import _driver_checks as checks
from ansible_collections.inferack.rack.plugins.plugin_utils import _plan

from .nodes import bare, finished

DATA = compat.load()
OFF = {"blacklisted": True, "modeset_disabled": True}


def statuses(found: list[Check]) -> dict[str, str]:
    return {check.id: check.status for check in found}


def plan_of(node: dict[str, Any], **request: Any) -> dict[str, Any]:
    return _plan.plan(node, {"today": "2026-11-30", **request}, DATA)


@pytest.mark.parametrize(
    ("nouveau", "image", "reboot_ok", "expected"),
    [
        (
            OFF,
            {},
            True,
            {"nouveau.loaded": "pass", "nouveau.modprobe": "pass", "nouveau.initramfs": "pass", "node.reboot": "pass"},
        ),
        (
            {**OFF, "loaded": True},
            {},
            True,
            {"nouveau.loaded": "fail", "nouveau.modprobe": "pass", "nouveau.initramfs": "pass"},
        ),
        (
            {**OFF, "loaded": True},
            {},
            False,
            {"nouveau.loaded": "skip", "node.reboot": "warn", "nouveau.modprobe": "pass", "nouveau.initramfs": "pass"},
        ),
        (
            {**OFF, "in_initramfs": True},
            {},
            True,
            {"nouveau.loaded": "pass", "nouveau.modprobe": "pass", "nouveau.initramfs": "fail", "node.reboot": "pass"},
        ),
        (
            {**OFF, "in_initramfs": True},
            {"nouveau_blacklisted": True},
            True,
            {"nouveau.loaded": "pass", "nouveau.modprobe": "pass", "nouveau.initramfs": "pass", "node.reboot": "pass"},
        ),
        (
            {**OFF, "in_initramfs": None},
            {},
            True,
            {"nouveau.loaded": "pass", "nouveau.modprobe": "pass", "nouveau.initramfs": "warn", "node.reboot": "pass"},
        ),
        (
            {**OFF, "in_initramfs": None},
            {"image": None},
            True,
            {"nouveau.loaded": "pass", "nouveau.modprobe": "pass", "nouveau.initramfs": "skip", "node.reboot": "pass"},
        ),
        (
            {"blacklisted": True, "problems": ["/etc/modprobe.d/x.conf: nouveau has no parameter 'modset'"]},
            {},
            True,
            {"nouveau.loaded": "pass", "nouveau.modprobe": "fail", "nouveau.initramfs": "pass", "node.reboot": "pass"},
        ),
        (
            {**OFF, "problems": ["/etc/modprobe.d/x.conf: nouveau has no parameter 'modset'"]},
            {},
            True,
            {"nouveau.loaded": "pass", "nouveau.modprobe": "warn", "nouveau.initramfs": "pass", "node.reboot": "pass"},
        ),
    ],
)
def test_nouveau(nouveau: dict[str, Any], image: dict[str, Any], reboot_ok: bool, expected: dict[str, str]) -> None:
    node = bare()
    node["nouveau"].update(nouveau)
    node["initramfs"].update(image)
    assert statuses(checks.nouveau_checks(node, reboot_ok=reboot_ok)) == expected


def test_the_sentences_on_nouveau() -> None:
    node = bare()
    node["nouveau"].update(OFF, in_initramfs=True)
    text = {check.id: sentence(check) for check in checks.nouveau_checks(node, reboot_ok=True)}["nouveau.initramfs"]
    assert "/boot/initrd.img-6.1.0-42-amd64 holds nouveau and no blacklist" in text
    assert "update-initramfs -u -k 6.1.0-42-amd64" in text
    node["initramfs"]["tool"] = "dracut"
    text = {check.id: sentence(check) for check in checks.nouveau_checks(node, reboot_ok=True)}["nouveau.initramfs"]
    assert "dracut --force --kver 6.1.0-42-amd64" in text
    node["nouveau"].update(modeset_disabled=False, problems=["/etc/modprobe.d/x.conf: 'options nouveau modset=0' does nothing"])
    text = {check.id: sentence(check) for check in checks.nouveau_checks(node, reboot_ok=True)}["nouveau.modprobe"]
    assert "`options nouveau modeset=0` not in force: /etc/modprobe.d/x.conf" in text


@pytest.mark.parametrize(
    ("inside", "blacklisted", "files", "stale"),
    [
        (True, False, [], True),
        (True, True, [], False),
        (False, False, [], False),
        (None, None, [], False),
        (True, None, ["/etc/modprobe.d/inferack-nouveau.conf"], False),
        (True, None, ["/etc/modprobe.d/other.conf"], True),
    ],
)
def test_stale_image(inside: bool | None, blacklisted: bool | None, files: list[str], stale: bool) -> None:
    node = bare()
    node["nouveau"]["in_initramfs"] = inside
    node["initramfs"].update(nouveau_blacklisted=blacklisted, modprobe_files=files)
    assert checks.stale_image(node) is stale


@pytest.mark.parametrize(
    ("driver", "nouveau", "step"),
    [
        ({"module_version": None, "loaded_version": None}, False, "nothing"),
        ({"loaded_version": None}, False, "load"),
        ({"loaded_version": None}, True, "reboot"),
        ({}, False, "nothing"),
        ({"loaded_version": "535.1"}, False, "reload"),
    ],
)
def test_next_step(driver: dict[str, Any], nouveau: bool, step: str) -> None:
    assert checks.next_step(finished(driver=driver, nouveau={"loaded": nouveau})) == step


def test_a_finished_node_passes() -> None:
    node = finished()
    found = checks.driver_checks(node, plan_of(node), reboot_ok=True)
    assert statuses(found) == dict.fromkeys(
        ["driver.headers", "driver.dkms", "node.reboot", "driver.module", "driver.library", "driver.version"], "pass"
    )


@pytest.mark.parametrize(
    ("changes", "reboot_ok", "id_", "words"),
    [
        ({"kernel": {"headers": False}}, True, "driver.headers", "no headers of kernel 6.1.0-42-amd64"),
        ({"dkms": {"modules": []}}, True, "driver.dkms", "dkms knows no nvidia-current"),
        (
            {
                "dkms": {
                    "modules": [
                        {"name": "nvidia-current", "version": "535.309.01", "kernel": None, "arch": None, "state": "added"}
                    ]
                }
            },
            True,
            "driver.dkms",
            "nvidia-current/535.309.01, no kernel: added",
        ),
        ({"driver": {"loaded_version": None}}, True, "driver.module", "nvidia-current is not loaded"),
        (
            {"driver": {"loaded_version": "535.261.03"}},
            True,
            "driver.module",
            "module 535.261.03 loaded, 535.309.01 installed for the running kernel",
        ),
        ({"driver": {"loaded_version": "535.261.03"}}, False, "node.reboot", "in use, and a reboot is not allowed"),
        ({"driver": {"loaded_version": None}, "nouveau": {"loaded": True}}, False, "node.reboot", "nouveau holds the GPUs"),
        (
            {"driver": {"library_version": "535.261.03"}},
            True,
            "driver.library",
            "found library 535.261.03, expected module and library",
        ),
        ({"driver": {"library_version": None}}, True, "driver.library", "no libnvidia-ml"),
    ],
)
def test_what_is_wrong_with_a_driver(changes: dict[str, Any], reboot_ok: bool, id_: str, words: str) -> None:
    node = finished(**changes)
    found = checks.driver_checks(node, plan_of(bare()), reboot_ok=reboot_ok)
    first = next(check for check in found if check.status == "fail")
    assert first.id == id_
    assert words in sentence(first)
    assert first.remedy


def test_another_branch_than_planned() -> None:
    node = finished("550.163.01")
    found = checks.driver_checks(node, plan_of(bare()), reboot_ok=True)
    assert statuses(found)["driver.dkms"] == "fail"
    node["dkms"]["modules"][0]["version"] = "535.309.01"
    assert statuses(checks.driver_checks(node, plan_of(bare()), reboot_ok=True))["driver.version"] == "fail"


APT = """linux-headers-6.1.0-42-amd64:
  Installed: (none)
  Candidate: {headers}
  Version table:
dkms:
  Installed: (none)
  Candidate: 3.0.10-8
gcc:
  Candidate: 4:12
make:
  Candidate: 4.3
"""
RELEASE = "6.6.0-72.0.0.76.oe2403sp1.x86_64"
DNF = f"""kernel-devel kernel-devel-{RELEASE}
kernel-headers kernel-headers-{RELEASE}
dkms dkms-3.0.10-1.noarch
gcc gcc-12.3.1-1.x86_64
make make-4.4-1.x86_64
elfutils-libelf-devel elfutils-libelf-devel-0.190-1.x86_64
"""


@pytest.mark.parametrize(
    ("system", "output", "manager", "failing"),
    [
        ("debian-12", APT.format(headers="6.1.1-1"), "apt", []),
        ("debian-12", APT.format(headers="(none)"), "apt", ["driver.headers"]),
        ("debian-12", APT.format(headers="6.1.1-1").replace("dkms", "dkim"), "apt", ["driver.plan"]),
        ("debian-12", "", "apt", ["driver.headers", "driver.plan"]),
        ("openeuler-24", DNF, "dnf", []),
        ("openeuler-24", DNF.replace(RELEASE, "6.6.0-73.oe2403.x86_64"), "dnf", ["driver.headers"]),
        ("openeuler-24", DNF.replace("dkms", "dkim"), "dnf", ["driver.plan"]),
    ],
)
def test_headers_and_tools(system: str, output: str, manager: str, failing: list[str]) -> None:
    node = bare(system)
    plan = plan_of(node, runfile={"sha256": "a" * 64})
    found = [check for check in checks.headers_check(node, plan, output, manager) if check.status == "fail"]
    assert [check.id for check in found] == failing
    for check in found:
        assert check.remedy
        if check.id == "driver.headers":
            assert node["kernel"]["release"] in sentence(check)


def test_packages_are_asked_for_where_no_component_is_due() -> None:
    node = bare("ubuntu-24", ("26b9",), sources=[])
    plan = plan_of(node)
    release = node["kernel"]["release"]
    output = "".join(f"{name}:\n  Candidate: 1\n" for name in (f"linux-headers-{release}", "dkms", "gcc", "make"))
    (check,) = [check for check in checks.headers_check(node, plan, output, "apt") if check.status == "fail"]
    assert (check.id, check.subject) == ("driver.plan", "packages")
    assert "nvidia-dkms-580-server-open" in sentence(check)


RUNNING, NEWER, OLDER = "6.1.0-42-amd64", "6.1.0-43-amd64", "6.1.0-30-amd64"


@pytest.mark.parametrize(
    ("kernel", "on_disk", "expected"),
    [
        ({"bootable": [RUNNING], "default": RUNNING}, {RUNNING: "535.309.01"}, {RUNNING: "pass"}),
        (
            {"bootable": [RUNNING, NEWER], "default": NEWER},
            {RUNNING: "535.309.01", NEWER: None},
            {NEWER: "fail", RUNNING: "pass"},
        ),
        (
            {"bootable": [RUNNING, NEWER], "default": NEWER},
            {RUNNING: "535.309.01", NEWER: "550.163.01"},
            {NEWER: "fail", RUNNING: "pass"},
        ),
        (
            {"bootable": [OLDER, RUNNING], "default": RUNNING},
            {RUNNING: "535.309.01", OLDER: None},
            {RUNNING: "pass", OLDER: "warn"},
        ),
        (
            {"bootable": [RUNNING, NEWER], "default": None},
            {RUNNING: "535.309.01"},
            {RUNNING: "pass", NEWER: "warn"},
        ),
        ({"installed": [RUNNING, NEWER]}, {RUNNING: "535.309.01"}, {RUNNING: "pass", NEWER: "warn"}),
        ({"installed": []}, {}, {"": "skip"}),
    ],
)
def test_every_kernel_that_can_be_booted(
    kernel: dict[str, Any], on_disk: dict[str, str | None], expected: dict[str, str]
) -> None:
    node = finished(kernel=kernel, driver={"kernels": on_disk})
    node["dkms"] = None
    found = checks.next_boot_checks(node, plan_of(node))
    assert {check.subject.removeprefix("kernel "): check.status for check in found} == expected
    assert next(iter(expected)) == found[0].subject.removeprefix("kernel ")
    for check in found:
        assert bool(check.remedy) == (check.status != "pass")
        if check.status == "fail":
            assert "boots by default" in check.found
            assert f"headers of kernel {NEWER}" in check.remedy


def test_the_next_boot_by_what_dkms_says() -> None:
    """Facts of a node that names no module files: DKMS's rows are then what there is."""
    node = finished(kernel={"bootable": [RUNNING, NEWER], "default": NEWER})
    assert [check.status for check in checks.next_boot_checks(node, plan_of(node))] == ["fail", "pass"]
    row = node["dkms"]["modules"][0]
    node["dkms"]["modules"].append({**row, "kernel": NEWER, "state": "built"})
    assert checks.next_boot_checks(node, plan_of(node))[0].status == "fail"
    node["dkms"]["modules"].append({**row, "kernel": NEWER})
    assert checks.next_boot_checks(node, plan_of(node))[0].status == "pass"


def test_a_node_without_gpus_has_no_next_boot_to_judge() -> None:
    node = bare(device_ids=())
    assert checks.next_boot_checks(node, plan_of(node)) == []
