# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Judging what the nouveau and driver roles did, from what `node_info` then finds.

Pure functions over `inferack_node` and `inferack_plan`; they run on the control node only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, PASS, SKIP, WARN, Check
from ansible_collections.inferack.rack.plugins.plugin_utils import _compat as compat

#: What has to be done so that the installed module is the one that drives the GPUs.
NOTHING, LOAD, RELOAD, REBOOT = "nothing", "load", "reload", "reboot"


def nouveau_checks(node: Mapping[str, Any], *, reboot_ok: bool) -> list[Check]:
    """nouveau now (`nouveau.loaded`) and after the next boot (`nouveau.modprobe`, `nouveau.initramfs`).

    While a reboot is not allowed, a loaded nouveau is not this node's failure yet: `node.reboot` warns instead.
    """
    nouveau = node["nouveau"]
    checks = [_modprobe(nouveau), _initramfs(node)]
    if not nouveau["loaded"]:
        return [Check("nouveau.loaded", PASS, "not loaded"), Check("node.reboot", PASS, "not needed"), *checks]
    if reboot_ok:
        loaded = Check(
            "nouveau.loaded",
            FAIL,
            "nouveau is loaded",
            "nouveau absent",
            "Look for what loads it (`lsinitramfs` or `lsinitrd`, the kernel's command line, an initramfs of another kernel).",
            _bound(node),
        )
        return [loaded, *checks]
    reboot = Check(
        "node.reboot",
        WARN,
        "nouveau is loaded until the next boot",
        "a reboot",
        "Reboot the node, or set inferack_reboot_ok and run again.",
        _bound(node),
    )
    return [Check("nouveau.loaded", SKIP, "nouveau is loaded until the next boot", "nouveau absent"), reboot, *checks]


def _bound(node: Mapping[str, Any]) -> list[str]:
    return [f"GPU {gpu['bus_id']} is bound to {gpu['bound_driver']}" for gpu in node["gpus"] if gpu.get("bound_driver")]


def _modprobe(nouveau: Mapping[str, Any]) -> Check:
    problems = list(nouveau.get("problems") or [])
    lacking = [
        line
        for line, there in (
            ("blacklist nouveau", nouveau["blacklisted"]),
            ("options nouveau modeset=0", nouveau["modeset_disabled"]),
        )
        if not there
    ]
    if lacking:
        found = f"`{'` and `'.join(lacking)}` not in force{': ' + problems[0] if problems else ''}"
        remedy = "Correct or remove the file that says otherwise, then run again."
        return Check("nouveau.modprobe", FAIL, found, "both lines in force", remedy, problems)
    if problems:
        remedy = "Correct or remove this line; it does not do what it was written for."
        return Check("nouveau.modprobe", WARN, problems[0], "no misleading line", remedy, problems)
    return Check("nouveau.modprobe", PASS, "blacklist nouveau; options nouveau modeset=0")


def _initramfs(node: Mapping[str, Any]) -> Check:
    image = node.get("initramfs") or {}
    path = image.get("image")
    files = [f"in the image: {name}" for name in image.get("modprobe_files") or []]
    if path is None:
        return Check("nouveau.initramfs", SKIP, f"no initramfs for kernel {node['kernel']['release']}")
    if node["nouveau"]["in_initramfs"] is None:
        return Check(
            "nouveau.initramfs",
            WARN,
            f"{path}, which cannot be read",
            "an initramfs that leaves nouveau alone",
            "Install what unpacks it (zstd, lz4 or xz) and run again.",
        )
    if stale_image(node):
        return Check(
            "nouveau.initramfs",
            FAIL,
            f"{path} holds nouveau and no blacklist for it, so that it comes back at the next boot",
            "an initramfs without nouveau, or with the blacklist",
            f"Rebuild it ({_rebuild(node)}), look at what the tool prints, and run again.",
            files or ["no modprobe configuration is in the image"],
        )
    return Check("nouveau.initramfs", PASS, path, evidence=files)


def _rebuild(node: Mapping[str, Any]) -> str:
    release = node["kernel"]["release"]
    if (node.get("initramfs") or {}).get("tool") == "dracut":
        return f"dracut --force --kver {release}"
    return f"update-initramfs -u -k {release}"


def stale_image(node: Mapping[str, Any]) -> bool:
    """Whether the initramfs brings nouveau back: the module is in it, and no blacklist beside it.

    Where only the names in the image are known, a modprobe file named after nouveau or us counts as the blacklist.
    """
    image = node.get("initramfs") or {}
    if not node["nouveau"]["in_initramfs"]:
        return False
    if image.get("nouveau_blacklisted") is not None:
        return not image["nouveau_blacklisted"]
    return not any("inferack" in name or "nouveau" in name for name in image.get("modprobe_files") or [])


def next_step(node: Mapping[str, Any]) -> str:
    """What makes the installed module the loaded one: `nothing`, `load`, `reload` or `reboot`."""
    driver = node["driver"]
    if not driver["module_version"]:
        return NOTHING
    if driver["loaded_version"] is None:
        return REBOOT if node["nouveau"]["loaded"] else LOAD
    return NOTHING if driver["loaded_version"] == driver["module_version"] else RELOAD


def needs_build(node: Mapping[str, Any], plan: Mapping[str, Any]) -> bool:
    """Whether DKMS has the planned module but not for the running kernel, as after a kernel update without headers."""
    return _dkms(node, plan["driver"]).status != PASS


def headers_check(node: Mapping[str, Any], plan: Mapping[str, Any], output: str, manager: str) -> list[Check]:
    """Whether headers of the running kernel and the build tools are installed or can be.

    output: of `apt-cache policy NAME…` (manager apt) or of a query that prints `name name-version-release.arch` for what is
    installed or available (manager dnf).
    """
    driver = plan["driver"]
    release = node["kernel"]["release"]
    headers = [name for name in driver["headers"] if not _available(name, output, manager)]
    update = "apt-get upgrade" if manager == "apt" else "dnf upgrade"
    if headers:
        there = Check(
            "driver.headers",
            FAIL,
            f"no package {', '.join(headers)} in the node's repositories",
            f"headers of the running kernel {release}",
            f"Update the kernel ({update}) and reboot into it, or add a mirror that still has this one's headers.",
            [f"installed kernel: {kernel}" for kernel in node["kernel"].get("installed") or []],
        )
    else:
        there = Check("driver.headers", PASS, "installed" if node["kernel"]["headers"] else "available", release)
    return [
        there,
        *_missing(driver["build"], output, manager, "what it takes to build a kernel module", "build tools"),
        *_missing([] if driver["apt_sources"] else driver["packages"], output, manager, "the planned driver", "packages"),
    ]


def _missing(names: Sequence[str], output: str, manager: str, expected: str, subject: str) -> list[Check]:
    absent = [bare for name in names if not _available(bare := name.partition("=")[0], output, manager)]
    if not absent:
        return []
    remedy = "Enable the repository that has it, or give the node a mirror of it."
    if manager == "dnf" and subject == "build tools":
        remedy = "Enable the repository that has it (on openEuler EPOL or everything), or give the node a mirror of it."
    found = f"no package {', '.join(absent)} in the node's repositories"
    return [Check("driver.plan", FAIL, found, expected, remedy, subject=subject)]


def _available(name: str, output: str, manager: str) -> bool:
    if manager == "apt":
        block = ""
        for line in output.splitlines():
            if line and not line[0].isspace():
                block = line.rstrip(":")
            elif block == name and line.strip().startswith("Candidate:"):
                return "(none)" not in line
        return False
    for line in output.splitlines():
        words = line.split()
        if len(words) == 2 and (name in words or words[1].rpartition(".")[0] == name):
            return True
    return False


def driver_checks(node: Mapping[str, Any], plan: Mapping[str, Any], *, reboot_ok: bool) -> list[Check]:
    """The driver after installation: headers, DKMS, module, library, and that all are what was planned."""
    wanted = plan["driver"]
    checks = [_headers_there(node), _dkms(node, wanted)]
    if any(check.status == FAIL for check in checks):
        return checks
    step = next_step(node)
    if step in (REBOOT, RELOAD) and not reboot_ok:
        # What else would fail is a consequence of this one.
        cause = "nouveau holds the GPUs" if step == REBOOT else "the loaded NVIDIA module is in use"
        remedy = "Reboot the node, or set inferack_reboot_ok, then run again."
        expected = f"module {node['driver']['module_version']} loaded"
        found = f"{cause}, and a reboot is not allowed"
        return [*checks, Check("node.reboot", FAIL, found, expected, remedy, _bound(node))]
    reboot = [Check("node.reboot", PASS, "not needed")] if step == NOTHING else []
    return [*checks, *reboot, _module(node), _library(node), _version(node, wanted)]


def _headers_there(node: Mapping[str, Any]) -> Check:
    kernel = node["kernel"]
    if kernel["headers"]:
        return Check("driver.headers", PASS, kernel.get("headers_path") or "installed", kernel["release"])
    return Check(
        "driver.headers",
        FAIL,
        f"no headers of kernel {kernel['release']}",
        "the running kernel's headers",
        "Install them, or update the kernel and reboot into it.",
    )


def _dkms(node: Mapping[str, Any], wanted: Mapping[str, Any]) -> Check:
    release = node["kernel"]["release"]
    rows = [row for row in (node.get("dkms") or {}).get("modules") or [] if str(row["name"]).startswith("nvidia")]
    lines = [f"{row['name']}/{row['version']}, {row.get('kernel') or 'no kernel'}: {row['state']}" for row in rows]
    built = [row for row in rows if row.get("kernel") == release and str(row["state"]).startswith("installed")]
    fitting = [row for row in built if _as_planned(str(row["version"]), wanted)]
    if fitting:
        return Check("driver.dkms", PASS, f"{fitting[0]['name']}/{fitting[0]['version']} installed", evidence=lines)
    return Check(
        "driver.dkms",
        FAIL,
        lines[0] if lines else f"dkms knows no {wanted['dkms_name']}",
        f"{wanted['dkms_name']} {wanted['version'] or 'R' + wanted['branch']} installed for kernel {release}",
        "Read /var/lib/dkms/*/*/build/make.log on the node; use a branch whose modules compile for this kernel.",
        lines,
    )


def _as_planned(version: str, wanted: Mapping[str, Any]) -> bool:
    if wanted["version"]:
        return bool(version == wanted["version"])
    return bool(compat.branch_of(version) == wanted["branch"])


def _module(node: Mapping[str, Any]) -> Check:
    driver = node["driver"]
    loaded, built = driver["loaded_version"], driver["module_version"]
    name = driver.get("module_name") or "nvidia"
    if loaded and loaded == built:
        return Check("driver.module", PASS, f"{name} {loaded} loaded")
    if not loaded:
        found = "nouveau holds the GPUs" if node["nouveau"]["loaded"] else f"{name} is not loaded"
        remedy = "Reboot the node and run again." if node["nouveau"]["loaded"] else "See `dmesg` for why the kernel refused it."
    else:
        found = f"module {loaded} loaded, {built or 'none'} installed for the running kernel"
        remedy = "Stop what uses the GPUs and run again, or set inferack_reboot_ok so that the node may reboot."
    return Check("driver.module", FAIL, found, f"{name} {built or ''}".strip() + " loaded", remedy, _bound(node))


def _library(node: Mapping[str, Any]) -> Check:
    driver = node["driver"]
    loaded, library = driver["loaded_version"], driver["library_version"]
    if library and library == loaded:
        return Check("driver.library", PASS, library, loaded)
    return Check(
        "driver.library",
        FAIL,
        f"library {library}" if library else "no libnvidia-ml, or several versions of it",
        f"module and library of the same version; the loaded module is {loaded or 'none'}",
        "Upgrade all NVIDIA packages together, then reload the module or reboot the node.",
    )


def _version(node: Mapping[str, Any], wanted: Mapping[str, Any]) -> Check:
    loaded = node["driver"]["loaded_version"]
    planned = wanted["version"] or f"R{wanted['branch']}"
    if loaded and _as_planned(loaded, wanted):
        return Check("driver.version", PASS, loaded, planned)
    return Check(
        "driver.version",
        FAIL,
        loaded,
        planned,
        "Install the planned driver and load it, or correct inferack_driver_branch and inferack_driver_version.",
    )


def next_boot_checks(node: Mapping[str, Any], plan: Mapping[str, Any]) -> list[Check]:
    """Whether each kernel that can be booted has a module of the planned version (`driver.next_boot`).

    The kernel that boots by default fails without one, since the node would come back without its GPUs; another kernel, which
    somebody has to choose at the console, and any other than the running one while the default is unknown, only warns.
    """
    wanted = plan["driver"]
    kernel = node["kernel"]
    if wanted is None:
        return []
    default = kernel.get("default")
    bootable = list(kernel.get("bootable") or []) or list(kernel.get("installed") or [])
    if not bootable:
        remedy = "Make sure that a kernel and its modules are in /boot and /lib/modules."
        return [Check("driver.next_boot", SKIP, "no installed kernel that can be seen", "an installed kernel", remedy)]
    return [_next_boot(node, wanted, release, default) for release in sorted(bootable, key=lambda name: name != default)]


def _next_boot(node: Mapping[str, Any], wanted: Mapping[str, Any], release: str, default: str | None) -> Check:
    rows = [
        row
        for row in (node.get("dkms") or {}).get("modules") or []
        if row.get("kernel") == release and str(row["name"]).startswith("nvidia")
    ]
    lines = [f"{row['name']}/{row['version']}, {release}: {row['state']}" for row in rows]
    # What is on disk counts, wherever it comes from; what DKMS says is for nodes whose facts have no more.
    on_disk = (node["driver"].get("kernels") or {}).get(release)
    versions = [str(row["version"]) for row in rows if str(row["state"]).startswith("installed")]
    versions = [str(on_disk)] if on_disk else versions
    what = (
        "boots by default" if release == default else ("runs now" if release == node["kernel"]["release"] else "can be chosen")
    )
    subject = f"kernel {release}"
    planned = wanted["version"] or f"R{wanted['branch']}"
    fitting = next((version for version in versions if _as_planned(version, wanted)), None)
    if fitting:
        return Check("driver.next_boot", PASS, f"module {fitting} for the kernel that {what}", planned, "", lines, subject)
    found = f"{'module ' + versions[0] if versions else 'no NVIDIA module'} for the kernel that {what}"
    remedy = f"Install the headers of kernel {release}, then build for it (dkms autoinstall -k {release})."
    if release != default and release != node["kernel"]["release"]:
        remedy = f"{remedy[:-1]}, or remove that kernel."
    status = FAIL if release == default else WARN
    return Check("driver.next_boot", status, found, f"module {planned}", remedy, lines, subject)
