"""Causes of failed installations, from what the tools print."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.inferack.rack.plugins.module_utils._checks import from_dict, sentence
from ansible_collections.inferack.rack.plugins.plugin_utils import _install_failure as failure

from .nodes import bare

DRIVER: dict[str, Any] = {"headers": ["linux-headers-6.1.0-42-amd64"], "branch": "535", "dkms_name": "nvidia-current"}

# From a build of 550.163.01 against 6.12.118 on Debian 13.
MAKE_LOG = """make -j2 KERNEL_UNAME=6.12.118 modules
  CC [M]  /var/lib/dkms/nvidia-current-open/550.163.01/build/nvidia/nv-pci.o
/var/lib/dkms/nvidia-current-open/550.163.01/build/nvidia/nv-pci.c: In function 'nv_resize_pcie_bars':
/var/lib/dkms/nvidia-current-open/550.163.01/build/nvidia/nv-pci.c:242:9: error: too few arguments to function 'pci_resize_resource'
  242 |     r = pci_resize_resource(pci_dev, NV_GPU_BAR1, requested_size);
make[3]: *** [/usr/src/linux-headers-6.12.118-common/scripts/Makefile.build:249: nv-pci.o] Error 1
make: *** [Makefile:59: modules] Error 2
"""

CASES = [
    ("E: Unable to locate package nvidia-dkms-999-server", "driver.plan", "no package nvidia-dkms-999-server"),
    ("No package matching 'nvidia-smi' is available", "driver.plan", "no package nvidia-smi"),
    ("No package matching 'linux-headers-6.1.0-42-amd64' is available", "driver.headers", "linux-headers-6.1.0-42-amd64"),
    ("Package 'nvidia-smi' has no installation candidate", "driver.plan", "no package nvidia-smi"),
    ("E: Version '535.1*' for 'libcuda1' was not found", "driver.plan", "no package libcuda1"),
    ("No match for argument: dkms\nError: Unable to find a match: dkms", "driver.plan", "no package dkms"),
    ("E: Held packages were changed and -y was used without --allow-change-held-packages.", "driver.plan", "held packages"),
    (
        "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 42",
        "node.package_manager",
        "held by process 42",
    ),
    ("Failed to lock apt for exclusive operation: E:Could not get lock", "node.package_manager", "another package manager"),
    ("E: dpkg was interrupted, you must manually run 'dpkg --configure -a'", "node.package_manager", "interrupted"),
    ("dpkg: error processing archive: cannot copy: No space left on device", "node.disk", "a full disk"),
    (
        "E: Conflicting values set for option Signed-By regarding source http://m/ bookworm: a != b",
        "node.conflicts",
        "Signed-By",
    ),
    ("W: GPG error: http://m InRelease: NO_PUBKEY A4B469963BF863CC", "driver.plan", "NO_PUBKEY A4B469963BF863CC"),
    ("Error: GPG check FAILED", "driver.plan", "not accepted"),
    ("E: Failed to fetch http://m/debian/dists/bookworm/InRelease  Could not connect", "driver.plan", "does not answer"),
    (
        "The following packages have unmet dependencies:\n nvidia-smi : Depends: x but it is not",
        "driver.plan",
        "cannot be installed",
    ),
    ("something new\nthat nobody knows", "driver.plan", "an installation that failed: that nobody knows"),
    ("", "driver.plan", "no output"),
]


def judge(result: dict[str, Any], log: str = "") -> tuple[str, str]:
    (check,) = failure.install_failure(result, bare(), DRIVER, log)
    assert check["status"] == "fail"
    assert check["remedy"]
    return check["id"], sentence(from_dict(check))


@pytest.mark.parametrize(("text", "id_", "words"), CASES)
def test_causes(text: str, id_: str, words: str) -> None:
    found, said = judge({"msg": "the task failed", "stderr": text} if text else {})
    assert found == id_
    assert words in said


def test_a_module_that_does_not_compile() -> None:
    result = {
        "msg": "'/usr/bin/apt-get install' failed: E: Sub-process /usr/bin/dpkg returned an error code (1)",
        "stdout": "Building module:\nError! Bad return status for module build on kernel: 6.1.0-42-amd64 (x86_64)\n",
    }
    found, said = judge(result, MAKE_LOG)
    assert found == "driver.dkms"
    assert "nv-pci.c:242:9: error: too few arguments to function 'pci_resize_resource'" in said
    assert "/var/lib/dkms" not in said
    assert "choose a branch" in said


def test_a_log_of_an_earlier_build_is_not_the_cause_of_something_else() -> None:
    assert judge({"msg": "No package matching 'nvidia-smi' is available"}, MAKE_LOG)[0] == "driver.plan"


def test_the_compiler_is_not_the_kernels() -> None:
    said = judge({"msg": "Bad return status for module build"}, "gcc: error: unrecognized command-line option '-ftrivial'\n")[1]
    assert "Install the compiler" in said or "install the compiler" in said


def test_text_of_loops_is_read() -> None:
    result = {"msg": "One or more items failed", "results": [{"stderr": ""}, {"stderr": "E: Unable to locate package a"}]}
    assert judge(result)[0] == "driver.plan"
