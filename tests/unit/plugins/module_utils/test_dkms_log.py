"""The first real error of a build: logs as make, compilers, modpost and DKMS write them, each with its consequences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferack.rack.plugins.module_utils import _dkms_log as log
from ansible_collections.inferack.rack.plugins.module_utils._checks import sentence

HEAD = """DKMS make.log for nvidia-550.163.01 for kernel 6.12.41-amd64 (x86_64)
Mon Nov 30 10:11:12 UTC 2026
make[1]: Entering directory '/usr/src/linux-headers-6.12.41-amd64'
warning: the compiler differs from the one used to build the kernel
  The kernel was built by: x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0
  You are using:           gcc-14 (Debian 14.2.0-19) 14.2.0
  SYMLINK /var/lib/dkms/nvidia/550.163.01/build/nvidia/nv-kernel.o
 CONFTEST: hash__remap_4k_pfn
 CONFTEST: set_memory_uc
  CC [M]  /var/lib/dkms/nvidia/550.163.01/build/nvidia/nv.o
/var/lib/dkms/nvidia/550.163.01/build/nvidia/nv.c:99:5: warning: unused variable 'error' [-Wunused-variable]
"""
TAIL = """make[3]: *** [/usr/src/linux-headers-6.12.41-common/scripts/Makefile.build:249: nv-pci.o] Error 1
make[3]: *** Waiting for unfinished jobs....
make[2]: *** [/usr/src/linux-headers-6.12.41-common/Makefile:1946: /var/lib/dkms/nvidia/550.163.01/build] Error 2
make[1]: *** [/usr/src/linux-headers-6.12.41-common/Makefile:224: __sub-make] Error 2
make[1]: Leaving directory '/usr/src/linux-headers-6.12.41-amd64'
make: *** [Makefile:115: modules] Error 2
"""
B = "/var/lib/dkms/nvidia/550.163.01/build"

CASES = [
    # (name, log between head and tail, kind, words of the error, symbol)
    (
        "arguments",
        f"{B}/nvidia/nv-pci.c: In function 'nv_resize_pcie_bars':\n"
        f"{B}/nvidia/nv-pci.c:242:9: error: too few arguments to function 'pci_resize_resource'\n"
        "  242 |     r = pci_resize_resource(pci_dev, NV_GPU_BAR1, requested_size);\n"
        "./include/linux/pci.h:1432:18: note: declared here\n",
        log.API,
        "nv-pci.c:242:9: error: too few arguments to function 'pci_resize_resource'",
        "pci_resize_resource",
    ),
    (
        "typographic quotes, and -Werror",
        f"{B}/nvidia-drm/nvidia-drm-encoder.c:219:11: error: implicit declaration of function ‘drm_mode_connector_attach_encoder’;"
        " did you mean ‘drm_connector_attach_encoder’? [-Werror=implicit-function-declaration]\ncc1: some warnings being treated as errors\n",
        log.API,
        "nvidia-drm-encoder.c:219:11: error: implicit declaration",
        "drm_mode_connector_attach_encoder",
    ),
    (
        "member",
        f"{B}/nvidia-uvm/uvm.c:12:3: error: 'struct mm_struct' has no member named 'mmap_sem'; did you mean 'mmap_lock'?\n",
        log.API,
        "uvm.c:12:3: error: 'struct mm_struct' has no member",
        "mmap_sem",
    ),
    (
        "pointer type",
        f"{B}/nvidia-drm/nvidia-drm-drv.c:213:19: error: initialization of 'int (*)(void)' from incompatible pointer type"
        " 'int (*)(int)' [-Wincompatible-pointer-types]\n",
        log.API,
        "nvidia-drm-drv.c:213:19: error: initialization of",
        "",
    ),
    (
        "undefined symbol",
        f'  MODPOST {B}/Module.symvers\nERROR: modpost: "drm_gem_object_put_unlocked" [{B}/nvidia-drm.ko] undefined!\n',
        log.API,
        'ERROR: modpost: "drm_gem_object_put_unlocked"',
        "drm_gem_object_put_unlocked",
    ),
    (
        "a header that a kernel release moved",
        f"{B}/common/inc/nv-linux.h:21:10: fatal error: drm/drmP.h: No such file or directory\ncompilation terminated.\n",
        log.API,
        "nv-linux.h:21:10: fatal error: drm/drmP.h",
        "drm/drmP.h",
    ),
    (
        "licence",
        f"  MODPOST {B}/Module.symvers\n"
        "ERROR: modpost: GPL-incompatible module nvidia.ko uses GPL-only symbol 'rcu_read_unlock_strict'\n",
        log.LICENCE,
        "ERROR: modpost: GPL-incompatible module nvidia.ko",
        "rcu_read_unlock_strict",
    ),
    (
        "licence, before 5.19",
        "FATAL: modpost: GPL-incompatible module nvidia-uvm.ko uses GPL-only symbol 'radix_tree_preloads'\n",
        log.LICENCE,
        "FATAL: modpost: GPL-incompatible",
        "radix_tree_preloads",
    ),
    (
        "conftest",
        f"In file included from {B}/nvidia/nv.c:14:\n"
        f"{B}/conftest/functions.h:23:2: error: #error acpi_walk_namespace() conftest failed!\n"
        f"{B}/nvidia/nv.c:300:5: error: implicit declaration of function 'x'\n",
        log.CONFTEST,
        "functions.h:23:2: error: #error acpi_walk_namespace() conftest failed!",
        "acpi_walk_namespace",
    ),
    (
        "full disk, behind its consequence",
        f"{B}/nvidia/nv.c:1:1: error: expected declaration\n{{standard input}}: Error: out of file space\n"
        "/tmp/ccX.s: Fatal error: can't write 180 bytes to section .text of nv.o: 'No space left on device'\n",
        log.DISK,
        "No space left on device",
        "",
    ),
    (
        "memory, the compiler's words",
        "gcc-14: fatal error: Killed signal terminated program cc1\ncompilation terminated.\n",
        log.MEMORY,
        "Killed signal terminated program cc1",
        "",
    ),
    (
        "memory, make's words",
        "make[3]: *** [/usr/src/linux-headers-6.12.41-common/scripts/Makefile.build:249: nv.o] Killed\n",
        log.MEMORY,
        "Killed",
        "",
    ),
    ("memory, a shell's status", "make[2]: *** [Makefile:99: nvidia.o] Error 137\n", log.MEMORY, "Error 137", ""),
    (
        "no compiler",
        "/bin/sh: 1: gcc-14: not found\n" + f"{B}/conftest/functions.h:23:2: error: #error x() conftest failed!\n",
        log.COMPILER_ABSENT,
        "gcc-14: not found",
        "",
    ),
    ("no compiler, make's words", "make[2]: gcc-13: No such file or directory\n", log.COMPILER_ABSENT, "gcc-13", ""),
    ("no make", "/usr/sbin/dkms: line 1071: make: command not found\n", log.COMPILER_ABSENT, "make: command not found", ""),
    ("no compiler, Kbuild's words", "Failed CC sanity check. Bailing out!\n", log.COMPILER_ABSENT, "sanity", ""),
    (
        "older compiler",
        "gcc: error: unrecognized command-line option '-fmin-function-alignment=16'; did you mean '-flimit-function-alignment'?\n",
        log.COMPILER_MISMATCH,
        "-fmin-function-alignment",
        "",
    ),
    (
        "clang's kernel, gcc's module",
        "gcc: error: unrecognized command-line option '-mretpoline-external-thunk'\n",
        log.COMPILER_MISMATCH,
        "-mretpoline",
        "",
    ),
    ("plugin", "cc1: error: incompatible gcc/plugin versions\n", log.COMPILER_MISMATCH, "plugin versions", ""),
    (
        "installer's check",
        "*** Compiler version check failed: the major and minor number of the compiler used to compile the kernel\n",
        log.COMPILER_MISMATCH,
        "Compiler version check failed",
        "",
    ),
    (
        "no headers",
        "make: *** /lib/modules/6.12.41-amd64/build: No such file or directory.  Stop.\n",
        log.HEADERS,
        "make: *** /lib/modules/6.12.41-amd64/build",
        "",
    ),
    (
        "dkms on headers",
        "Error! Your kernel headers for kernel 6.12.41-amd64 cannot be found at /lib/modules/6.12.41-amd64/build or x.\n",
        log.HEADERS,
        "Error! Your kernel headers",
        "",
    ),
    ("unprepared", "  ERROR: Kernel configuration is invalid.\n", log.HEADERS, "Kernel configuration is invalid", ""),
    (
        "headers without tools",
        "/bin/sh: 1: scripts/basic/fixdep: not found\n",
        log.HEADERS,
        "scripts/basic/fixdep",
        "",
    ),
    (
        "headers for another machine",
        "/bin/sh: 1: ./tools/objtool/objtool: Exec format error\n",
        log.HEADERS,
        "objtool: Exec format error",
        "",
    ),
    (
        "half of the headers",
        f"{B}/common/inc/nv-linux.h:18:10: fatal error: generated/autoconf.h: No such file or directory\n",
        log.HEADERS,
        "generated/autoconf.h",
        "generated/autoconf.h",
    ),
    (
        "symvers",
        "The Module.symvers file is missing, or does not contain any\nsymbols exported from the kernel.\n",
        log.HEADERS,
        "The Module.symvers file is missing",
        "",
    ),
    (
        "excluded",
        "Error! The /var/lib/dkms/nvidia/550.163.01/6.12.41-amd64/x86_64/dkms.conf for module nvidia includes a BUILD_EXCLUSIVE"
        " directive which does not match this kernel/arch/config.\nThis indicates that it should not be built.\n",
        log.EXCLUDED,
        "BUILD_EXCLUSIVE",
        "",
    ),
    (
        "signing",
        "Signing module /var/lib/dkms/nvidia/550.163.01/build/nvidia.ko\n"
        "At main.c:298:\n- SSL error:0909006C:PEM routines:get_name:no start line: ../crypto/pem/pem_lib.c:745\n",
        log.SIGNING,
        "At main.c:298",
        "",
    ),
    (
        "signing's complaint beside a real error",
        "At main.c:298:\n- SSL error:FFFFFFFF80000002:system library::No such file or directory\n"
        f"{B}/nvidia/nv.c:1:1: error: unknown type name 'vm_flags_t'\n",
        log.API,
        "nv.c:1:1: error: unknown type name",
        "vm_flags_t",
    ),
    (
        "built, and refused by the kernel",
        "ERROR: Unable to load the kernel module 'nvidia.ko'.  This happens most frequently when\n",
        log.LOAD,
        "Unable to load the kernel module",
        "",
    ),
    (
        "something else",
        "make: *** No rule to make target 'nvidia.o', needed by 'x'.  Stop.\n",
        log.OTHER,
        "No rule to make",
        "",
    ),
    ("dkms alone", "Error! Could not find module source directory.\n", log.OTHER, "Could not find module source", ""),
]


@pytest.mark.parametrize(("middle", "kind", "error", "symbol"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_first_real_error(middle: str, kind: str, error: str, symbol: str) -> None:
    failure = log.read(HEAD + middle + TAIL)
    assert failure is not None
    assert (failure.kind, failure.symbol) == (kind, symbol)
    assert error in failure.error
    # The number leads back to the line, and the evidence shows it.
    line = (HEAD + middle + TAIL).splitlines()[failure.number - 1]
    assert log.tidy(line) == failure.error
    assert line.rstrip() in failure.lines


@pytest.mark.parametrize("kind", sorted({case[2] for case in CASES}))
def test_every_kind_names_what_was_expected_and_what_to_do(kind: str) -> None:
    check = log.verdict(log.Failure(kind, "THE LINE", 7, "", ["THE LINE"]), "nvidia 580.95.05", "6.1.0-42-amd64")
    assert check.status == "fail"
    assert check.id == {log.DISK: "node.disk", log.HEADERS: "driver.headers", log.LOAD: "driver.module"}.get(
        kind, "driver.dkms"
    )
    said = sentence(check)
    assert "THE LINE" in said
    assert check.expected
    assert check.remedy.endswith(".")
    assert "{" not in said


@pytest.mark.parametrize(
    ("middle", "kind", "error"),
    [
        (
            "   /tmp/selfgz/kernel/nvidia/nv-pci.c:242:9: error: too few arguments to function 'pci_resize_resource'\n",
            log.API,
            "nv-pci.c:242:9: error: too few",
        ),
        (
            "ERROR: Unable to find the kernel source tree for the currently running kernel.\n",
            log.HEADERS,
            "ERROR: Unable to find the kernel source tree",
        ),
        ("ERROR: Unable to find the development tool `cc` in your path\n", log.COMPILER_ABSENT, "development tool `cc`"),
        ("ERROR: Unable to load the kernel module 'nvidia.ko'.\n", log.LOAD, "ERROR: Unable to load the kernel module"),
    ],
)
def test_the_installers_log(middle: str, kind: str, error: str) -> None:
    """NVIDIA's installer says first that a step failed, then why."""
    text = (
        "nvidia-installer log file '/var/log/nvidia-installer.log'\n-> Error.\n"
        'ERROR: An error occurred while performing the step: "Building kernel modules". See /var/log/nvidia-installer.log for'
        " details.\n-> The command `cd ./kernel; /usr/bin/make -k -j8` failed with the following output:\n"
        f"{middle}   make[1]: *** [scripts/Makefile.build:249: nv-pci.o] Error 1\n"
        "ERROR: Installation has failed.  Please see the file '/var/log/nvidia-installer.log' for details.\n"
    )
    failure = log.read(text)
    assert failure is not None
    assert failure.kind == kind
    assert error in failure.error


def test_every_kind_has_a_pattern_a_verdict_and_a_case() -> None:
    kinds = {kind for kind, _pattern in log.PATTERNS}
    assert kinds == set(log.VERDICTS) == {case[2] for case in CASES}
    assert set(log.FIRST) | set(log.LAST) < kinds


@pytest.mark.parametrize(
    "text",
    [
        "",
        HEAD,
        TAIL,
        HEAD + TAIL,
        "all is well\n",
        "ERROR (dkms apport): kernel package linux-headers-6.17.9 is not supported\n" + TAIL,
        "ERROR: Unable to open 'kernel/dkms.conf' for copying (No such file or directory)\n",
        "WARNING: The compiler used to compile the kernel (gcc 5.0) does not exactly match the current compiler (gcc 5.1).\n",
        "WARNING: modpost: missing MODULE_DESCRIPTION() in nvidia.o\n",
    ],
)
def test_consequences_alone_are_no_cause(text: str) -> None:
    assert log.read(text) is None


def test_without_a_cause_the_evidence_has_to_do() -> None:
    said = sentence(log.verdict(log.read(TAIL), "nvidia 580.95.05", "6.1.0-42-amd64", evidence=["line"]))
    assert "nvidia 580.95.05 does not compile for kernel 6.1.0-42-amd64: see the evidence" in said


def test_compilers_stand_in_the_verdict() -> None:
    compilers = log.Compilers("gcc-12 (Debian 12.2.0-14) 12.2.0", "gcc (GCC) 10.3.1")
    check = log.verdict(log.Failure(log.COMPILER_MISMATCH, "x"), "nvidia 1", "6.1", compilers)
    assert "another compiler than kernel 6.1's (gcc (GCC) 10.3.1)" in check.found
    assert "the compiler that built the kernel: gcc-12" in check.expected


@pytest.mark.parametrize(
    ("kind", "error", "found", "expected"),
    [
        (log.CONFTEST, "x.h:1:2: error: #error y() conftest failed!", "gcc (GCC) 10.3.1", "another compiler"),
        (log.CONFTEST, "x.h:1:2: error: #error y() conftest failed!", "gcc (GCC) 12.9.1", "whose probing"),
        (log.API, "x.c:1:2: error: too few arguments to function 'y'", "gcc (GCC) 10.3.1", "does not compile"),
        (log.CONFTEST, "x.h:1:2: error: #error y() conftest failed!", None, "whose probing"),
    ],
)
def test_a_probe_that_fails_under_another_compiler_is_the_compilers_fault(
    kind: str, error: str, found: str | None, expected: str
) -> None:
    compilers = log.Compilers("gcc-12 (Debian 12.2.0-14) 12.2.0", found)
    assert expected in log.verdict(log.Failure(kind, error, 1, "y"), "nvidia 1", "6.1", compilers).found


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ("gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0", 12),
        ("x86_64-linux-gnu-gcc-13 (Ubuntu 13.2.0-23ubuntu4) 13.2.0", 13),
        ("gcc_old (GCC) 12.3.1 (openEuler 12.3.1-62.oe2403sp1)", 12),
        ("clang version 16.0.6 (Red Hat 16.0.6-1.el9)", 16),
        ("", None),
        (None, None),
    ],
)
def test_major_version(text: str | None, major: int | None) -> None:
    assert log.major_version(text) == major


@pytest.mark.parametrize(
    ("text", "compiler"),
    [
        (
            "Linux version 6.1.0-42-amd64 (debian-kernel@lists.debian.org) (gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0,"
            " GNU ld (GNU Binutils for Debian) 2.40) #1 SMP PREEMPT_DYNAMIC Debian 6.1.159-1 (2026-01-10)",
            "gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0",
        ),
        (
            "Linux version 6.8.0-60-generic (buildd@lcy02) (x86_64-linux-gnu-gcc-13 (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0,"
            " GNU ld (GNU Binutils for Ubuntu) 2.42) #63-Ubuntu SMP",
            "x86_64-linux-gnu-gcc-13 (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0",
        ),
        (
            "Linux version 4.19.90-2003.4.0.0036.oe1.x86_64 (abuild@x) (gcc version 7.3.0 (GCC)) #1 SMP Mon Mar 23",
            "gcc version 7.3.0 (GCC)",
        ),
        ("Linux version", None),
    ],
)
def test_compiler_of_proc_version(text: str, compiler: str | None) -> None:
    assert log.proc_compiler(text) == compiler


def test_compiler_of_a_config() -> None:
    assert log.config_compiler('CONFIG_X=y\nCONFIG_CC_VERSION_TEXT="gcc-12 (Debian 12.2.0-14) 12.2.0"\n') == (
        "gcc-12 (Debian 12.2.0-14) 12.2.0"
    )
    assert log.config_compiler("# CONFIG_CC_VERSION_TEXT is not set\n") is None


@given(st.text(max_size=400))
def test_no_text_upsets_the_reader(text: str) -> None:
    failure = log.read(text)
    assert failure is None or 1 <= failure.number <= len(text.splitlines())
    log.symbol_of(text)
    log.major_version(text)
    log.proc_compiler(text)


def test_a_long_log_is_read_quickly() -> None:
    line = "  CC [M]  /var/lib/dkms/nvidia/550.163.01/build/nvidia/nv-error-not-found-invalid.o " + "x" * 3000
    failure = log.read("\n".join([line] * 3000) + "\n" + CASES[0][1] + TAIL)
    assert failure is not None
    assert failure.kind == log.API


def test_the_compilers_that_a_log_compares() -> None:
    assert log.compilers_of(HEAD) == log.Compilers(
        "x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0", "gcc-14 (Debian 14.2.0-19) 14.2.0"
    )
    assert log.compilers_of("  CC [M] x\n") == log.Compilers()
