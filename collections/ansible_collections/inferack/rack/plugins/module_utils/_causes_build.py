# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Causes that DKMS, compilers, NVIDIA's installer and package managers name.

Runs on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

from ansible_collections.inferack.rack.plugins.module_utils._cause_rule import NO_DRIVER, NOT_BUILT, Harmless, Rule

_INSTALLER = "NVIDIA's installer (nvidia-installer)"
_DKMS = "DKMS 2.8 to 3.2"

BUILD_RULES: tuple[Rule, ...] = (
    # --- building the module ---------------------------------------------------------------------------------------------------
    Rule(
        "headers-missing",
        "build",
        ("kernel headers for", "kernel source tree", "kernel header file", "was skipped since"),
        r"Your kernel headers for kernel (?P<release>\S{1,80}?),? (?:cannot|could not) be found"
        r"|Module build for (?:the currently running )?kernel ?(?P<skipped>\d\S{0,80})? was skipped since the kernel (?:headers|source)"
        r"|Unable to find the kernel source tree for the currently running kernel"
        r"|kernel header file '[^'\n]{1,200}' does not exist",
        "no headers of the running kernel{ release}{ skipped}",
        "node",
        "Install the headers of exactly the running kernel (linux-headers-$(uname -r), kernel-devel-$(uname -r)), or update the kernel "
        "and reboot when they are gone from the mirror",
        f"{_DKMS}; {_INSTALLER}",
        "Error! Your kernel headers for kernel 6.1.0-30-amd64 cannot be found.",
        blames="kernel",
        explains=NOT_BUILT,
    ),
    Rule(
        "headers-gone",
        "packages",
        ("linux-headers", "kernel-devel", "kernel-headers"),
        r"(?:Unable to locate package|No match for argument:?|No package matching|Couldn't find any package by (?:glob|regex)|No package) "
        r"'?(?P<package>(?:linux-headers|kernel-(?:devel|headers))-\d[\w.+~-]{1,80})"
        r"|Package '?(?P<second>linux-headers-\d[\w.+~-]{1,80}?)'? has no installation candidate",
        "headers that no repository has any more ({package}{second})",
        "node",
        "Update the kernel and reboot into it, or add a mirror that still has the running kernel's headers",
        "apt, dnf",
        "E: Unable to locate package linux-headers-6.1.0-13-amd64",
        blames="kernel",
        explains=("headers-missing", *NOT_BUILT),
    ),
    Rule(
        "compiler-mismatch",
        "build",
        (
            "version check",
            "does not match the compiler used here",
            "does not exactly match the current compiler",
            "unrecognized command",
            "failed cc",
        ),
        r"compiler used to compile the kernel: (?P<built>[^\n]{3,120}?) does not match the compiler used here: (?P<here>[^\n]{3,80}?)(?= Copyright| \(C\)|\n|$)"
        r"|Failed CC version check|Compiler version check failed|CC version check failed"
        r"|compiler used to compile the kernel \((?P<kernel>[^)\n]{1,80})\) does not exactly match the current compiler \((?P<current>[^)\n]{1,80})\)"
        r"|(?:error: )?unrecognized command[- ]line option '?(?P<option>-[\w=-]{1,60})",
        "a compiler ({current}{here}{option}) that is not the kernel's ({kernel}{built})",
        "node",
        "Install the compiler that built the running kernel (see /proc/version) and build again; IGNORE_CC_MISMATCH=1 only hides it",
        f"{_INSTALLER}; gcc",
        "*** Failed CC version check. Bailing out! ***",
        blames="kernel",
        explains=("build-compile-error", *NOT_BUILT),
    ),
    Rule(
        "compiler-missing",
        "build",
        ("command not found", "c compiler", "'cc'", "gcc", "make: not found"),
        r"(?:unable|failed) to (?:find|locate) (?:a suitable )?(?:C compiler|the program '?(?:cc|gcc|make))"
        r"|\b(?:cc|gcc|x86_64-linux-gnu-gcc|aarch64-linux-gnu-gcc)[-\d.]*: (?:command )?not found|\bmake: (?:command )?not found"
        r"|You do not appear to have (?:the '?)?(?:cc|gcc|make)|Unable to find the development tool `?'?(?:cc|gcc|make)",
        "no compiler or make on the node",
        "node",
        "Install gcc (of the kernel's version) and make, and build again",
        f"{_INSTALLER}; make",
        "/bin/sh: 1: gcc-12: not found",
        blames="node",
        explains=NOT_BUILT,
    ),
    Rule(
        "gpl-only-symbol",
        "build",
        ("gpl-incompatible",),
        r"GPL-incompatible module (?P<module>nvidia[\w.-]*) uses GPL-only symbol '(?P<symbol>\w+)'",
        "a kernel that keeps {symbol} from {module}",
        "node",
        "Choose a driver branch that supports this kernel, or the open flavour of the module",
        "Linux (scripts/mod/modpost.c)",
        "ERROR: modpost: GPL-incompatible module nvidia.ko uses GPL-only symbol '__rcu_read_lock'",
        blames="kernel",
        explains=NOT_BUILT,
    ),
    Rule(
        "build-compile-error",
        "build",
        ("error: ",),
        r"(?P<file>[\w./+-]{1,160}\.[ch]):(?P<line>\d+)(?::\d+)?: (?:fatal )?error: (?P<what>[^\n]{1,120})",
        "a driver that does not compile for this kernel ({what})",
        "node",
        "Choose a driver branch whose module compiles for this kernel, or boot a kernel that the branch supports",
        "gcc",
        "nvidia-drm-drv.c:64:10: fatal error: drm/drm_drv.h: No such file or directory",
        blames="driver",
        explains=NOT_BUILT,
    ),
    Rule(
        "dkms-stale",
        "build",
        ("dkms.conf", "dkms tree already"),
        r"Could not locate dkms\.conf file\.?(?:[^\n]{0,40}?(?P<file>/var/lib/dkms/\S{1,120}))?|DKMS tree already contains: (?P<what>\S{1,80})",
        "an old DKMS tree of another driver version",
        "node",
        "Remove the old tree (dkms remove <name>/<version> --all, then its folder under /var/lib/dkms) and build again",
        _DKMS,
        "Error! Could not locate dkms.conf file.\nFile: /var/lib/dkms/nvidia/535.54.03/source/dkms.conf does not exist.",
        blames="node",
        explains=NOT_BUILT,
    ),
    Rule(
        "build-failed",
        "build",
        (
            "bad return status for module build",
            "bad exit status",
            "unable to build the",
            "failed to run `",
            "failed to run '",
            "building kernel modules",
        ),
        r"Bad return status for module build on kernel: (?P<release>\S{1,80})|Bad exit status: \d+|Unable to build the (?:NVIDIA )?kernel module"
        r"|Failed to run [`']\S{0,60}dkms build|error occurred while performing the step: \"Building kernel modules",
        "a module that did not build ({release}); the reason is in make.log",
        "node",
        "Read the first error in /var/lib/dkms/<name>/<version>/build/make.log (or /var/log/nvidia-installer.log)",
        f"{_DKMS}; {_INSTALLER}",
        "Error! Bad return status for module build on kernel: 6.17.0-5-generic (x86_64)",
        blames="driver",
        confidence="medium",
        severity="symptom",
        explains=("installer-failed", "module-missing", "package-not-configured", *NO_DRIVER),
    ),
    Rule(
        "installer-failed",
        "build",
        ("installation has failed",),
        r"ERROR: Installation has failed",
        "an installation of the driver that failed",
        "node",
        "Read the first ERROR in /var/log/nvidia-installer.log",
        _INSTALLER,
        "ERROR: Installation has failed.  Please see the file '/var/log/nvidia-installer.log' for details.",
        blames="driver",
        confidence="low",
        severity="symptom",
    ),
    Rule(
        "installer-module-loaded",
        "build",
        ("appears to already be loaded", "appear to be running an x server"),
        r"An NVIDIA kernel module '(?P<module>nvidia[\w-]*)' appears to already be loaded|You appear to be running an X server",
        "an older module still loaded while the driver should be installed",
        "node",
        "Stop what uses the GPUs, unload the nvidia modules, and run the installer again",
        _INSTALLER,
        "ERROR: An NVIDIA kernel module 'nvidia-uvm' appears to already be loaded in your kernel.",
        blames="node",
        explains=("installer-failed",),
    ),
    Rule(
        "installer-mixed",
        "build",
        ("different installer", "package manager"),
        r"appears to have been installed previously using a different installer"
        r"|driver (?:is|was) already installed [^\n]{0,80}package manager",
        "a driver from packages where the .run installer should put one",
        "node",
        "Remove the packages, or install by packages only: never both on one node",
        _INSTALLER,
        "The NVIDIA driver appears to have been installed previously using a different installer.",
        blames="node",
        confidence="medium",
        explains=("installer-failed",),
    ),
    # --- packages ------------------------------------------------------------------------------------------------------------
    Rule(
        "package-lock",
        "packages",
        ("could not get lock", "unable to lock", "unable to acquire", "waiting for cache lock", "waiting for process with pid"),
        r"(?:Could not get lock|Unable to (?:lock|acquire)|Waiting for cache lock)[^\n]{0,160}?(?:process (?P<pid>\d+) \((?P<process>[^)\n]{1,40})\)|lock)"
        r"|Waiting for process with pid (?P<second>\d+)",
        "another package manager at work {process}",
        "node",
        "Wait until it has finished (unattended upgrades run at first boot), and run again",
        "apt, dnf",
        "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 1234 (unattended-upgr)",
        blames="node",
    ),
    Rule(
        "package-interrupted",
        "packages",
        ("dpkg was interrupted",),
        r"dpkg was interrupted",
        "an installation that was interrupted",
        "node",
        "Run dpkg --configure -a, and run again",
        "apt",
        "E: dpkg was interrupted, you must manually run 'sudo dpkg --configure -a' to correct the problem.",
        blames="node",
    ),
    Rule(
        "packages-held",
        "packages",
        ("held packages", "held broken", "held back", "exclude filtering", "versionlock"),
        r"Held packages were changed|you have held broken packages|filtered out by exclude filtering|versionlock[^\n]{0,60}exclud",
        "held packages in the way of the change",
        "node",
        "Lift the hold (apt-mark unhold, dnf versionlock delete), change the branch, and hold the new packages",
        "apt, dnf",
        "E: Held packages were changed and -y was used without --allow-change-held-packages.",
        blames="node",
    ),
    Rule(
        "packages-mixed",
        "packages",
        (
            "which is also in package",
            "unmet dependencies",
            "but it is not going to be installed",
            "conflicts with file from package",
        ),
        r"trying to overwrite '[^'\n]{1,200}', which is also in package (?P<package>[\w.+:-]*(?:nvidia|cuda)[\w.+:-]*)"
        r"|\b[\w.+-]*(?:nvidia|cuda)[\w.+-]* : (?:Pre)?Depends: [^\n]{1,120}? but [^\n]{1,60}?(?:installed|installable)"
        r"|conflicts with file from package (?P<rpm>[\w.+-]*(?:nvidia|cuda)[\w.+-]*)",
        "driver packages of different repositories or branches mixed",
        "node",
        "Remove the packages of the other branch or repository, and install one consistent set",
        "apt, dpkg, rpm",
        "dpkg: error processing archive: trying to overwrite '/usr/bin/nvidia-smi', which is also in package nvidia-utils-535 535.183.01",
        blames="node",
        explains=("package-not-configured",),
    ),
    Rule(
        "repository-signed-by",
        "packages",
        ("option signed-by",),
        r"Conflicting values set for option Signed-By(?: regarding source (?P<source>\S{1,160}))?",
        "two lists of one repository with different keys",
        "node",
        "Remove the older list under /etc/apt/sources.list.d (libnvidia-container.list, nvidia-docker.list), and run again",
        "apt",
        "E: Conflicting values set for option Signed-By regarding source https://nvidia.github.io/libnvidia-container/stable/deb/amd64/ /",
        blames="node",
    ),
    Rule(
        "repository-key",
        "packages",
        ("no_pubkey", "expkeysig", "gpg check failed", "public key is not installed", "is not signed", "keyexpired"),
        r"NO_PUBKEY (?P<key>[0-9A-F]{8,40})|EXPKEYSIG (?P<expired>[0-9A-F]{8,40})|KEYEXPIRED|GPG check FAILED|public key is not installed"
        r"|repository '(?P<repository>[^'\n]{1,200})' is not signed",
        "a repository whose key is missing or was changed {key}{expired}",
        "node",
        "Install the repository's current key (cuda-keyring for NVIDIA's), and run again",
        "apt, dnf",
        "W: GPG error: https://example.com/cuda InRelease: The following signatures couldn't be verified because the public key is not "
        "available: NO_PUBKEY A4B469963BF863CC",
        blames="node",
    ),
    Rule(
        "package-unknown",
        "packages",
        ("unable to locate package", "no match for argument", "has no installation candidate"),
        r"(?:Unable to locate package|No match for argument:?) '?(?P<package>[\w.+:-]*(?:nvidia|cuda|docker|containerd)[\w.+:-]*)"
        r"|Package '?(?P<second>[\w.+:-]*(?:nvidia|cuda|docker)[\w.+:-]*?)'? has no installation candidate",
        "no package {package}{second} in the node's repositories",
        "node",
        "Enable the repository that has it (contrib, non-free, NVIDIA's), or choose a branch that the distribution has",
        "apt, dnf",
        "E: Unable to locate package nvidia-headless-575-server",
        blames="node",
    ),
    Rule(
        "package-not-configured",
        "packages",
        ("error processing package nvidia", "error processing package linux-headers", "error processing package linux-image"),
        r"error processing package (?P<package>(?:nvidia|linux-(?:headers|image))[\w.+:-]*) \(--configure\)",
        "package {package} that was not configured",
        "node",
        "Mend what stands before it in the log, then run dpkg --configure -a",
        "dpkg",
        "dpkg: error processing package nvidia-dkms-580-open (--configure):",
        blames="node",
        confidence="low",
        severity="symptom",
    ),
)

#: Words of builds and installers that look like an error and are none.
BUILD_HARMLESS: tuple[Harmless, ...] = (
    Harmless(
        r"warning: the compiler differs from the one used to build the kernel",
        "newer drivers only warn, and build all the same",
        "warning: the compiler differs from the one used to build the kernel",
    ),
    Harmless(
        r"ERROR \(dkms apport\): kernel package \S+ is not supported",
        "Ubuntu's reporter says so about every kernel that it has no package for; headers are not missing",
        "ERROR (dkms apport): kernel package linux-headers-6.8.0-60-generic is not supported",
    ),
    Harmless(
        r"Unable to open 'kernel/dkms\.conf' for copying",
        "the installer goes on without it",
        "ERROR: Unable to open 'kernel/dkms.conf' for copying (No such file or directory)",
        inconclusive=True,
    ),
    Harmless(
        r"nvidia-drm module will not be installed|nvidia-installer was forced to guess|no Vulkan ICD loader|Unable to determine if Secure Boot"
        r"|32-bit compatibility libraries|libglvnd",
        "a compute node needs no graphics parts",
        "WARNING: The nvidia-drm module will not be installed.",
    ),
)
