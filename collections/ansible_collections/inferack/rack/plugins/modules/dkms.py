#!/usr/bin/python
# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Have a DKMS module built or installed for a kernel, or hand what was built to other nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: dkms
short_description: Build, install, remove, export and import DKMS modules
version_added: 0.1.0
author:
  - inferack contributors (@inferack)
description:
  - Has a module built or installed for named kernels, by DKMS 2 or 3, and proves it by what C(dkms status) then says.
  - When a build fails, names the first real error of C(make.log), not its consequences - no headers, another compiler or
    none, an interface of the kernel that changed, a symbol for GPL modules only, a full disk, too little memory, a failed
    probe, a signature - together with the compilers, the headers, and what to do.
  - Leaves nothing half done. A build without all its modules is removed, and so is a registration that this module made,
    unless a package owns the source.
  - Writes what was built into one archive, and installs it on other nodes of the same kernel without compiler or headers,
    after checking name, version, flavour, kernel release, machine, vermagic and signature.
options:
  name:
    description: The module as DKMS knows it, such as V(nvidia), V(nvidia-current) or V(nvidia-srv).
    type: str
    required: true
  version:
    description: Its version. By default the newest that DKMS knows or whose source is on the node.
    type: str
    default: ""
  kernels:
    description:
      - Releases of the kernels, as C(uname -r) says. By default the running one.
      - With O(state=absent) an empty list means the module as a whole, its registration included.
    type: list
    elements: str
    default: []
  state:
    description:
      - V(built) is in DKMS's tree, V(installed) is also where the kernel finds it.
      - V(exported) writes what is built for each kernel to O(archive). V(imported) installs from O(archive).
    type: str
    choices: [absent, built, exported, imported, installed]
    default: installed
  archive:
    description:
      - For O(state=exported) a file, or a folder that exists, in which the archive gets the name
        C(NAME-VERSION-KERNEL-MACHINE-FLAVOUR.tar.gz). For O(state=imported) the file.
    type: path
  archive_sha256:
    description: The archive's SHA-256 sum, to be sure that it is the one that was exported.
    type: str
    default: ""
  flavour:
    description: The flavour that an archive must be of, for O(state=imported).
    type: str
    choices: ["", open, proprietary]
    default: ""
  signer:
    description:
      - Common name of the key that must have signed an archive's modules, for O(state=imported).
      - Where the kernel enforces signatures, a signature by a key that it trusts is needed in any case.
    type: str
    default: ""
  jobs:
    description: How many jobs a build may run at once. By default as many as the node has processors.
    type: int
  timeout:
    description: The longest time that a build for one kernel may take, in seconds.
    type: float
    default: 1800
  dkms:
    description: The dkms command, looked up in PATH when it has no folder.
    type: str
    default: dkms
extends_documentation_fragment:
  - inferack.rack.attributes
  - inferack.rack.attributes.checks
attributes:
  check_mode:
    support: full
  diff_mode:
    support: partial
    details: Shows the state of each kernel before and after, not the files.
  idempotent:
    support: full
notes:
  - Debian's and Ubuntu's packages register and build when they are configured. To import instead, create
    C(/etc/dkms/no-autoinstall) before the package is installed and remove it after the import.
  - O(state=imported) on a node without the module's source registers it by the archive's C(dkms.conf), as C(dkms ldtarball)
    does. A package of the source that is installed later replaces that.
"""

EXAMPLES = r"""
- name: Have the driver's module for the running kernel
  inferack.rack.dkms:
    name: nvidia-current

- name: Have it for two kernels, before the node boots the newer one
  inferack.rack.dkms:
    name: nvidia
    version: 580.95.05
    kernels: [6.6.0-72.0.0.76.oe2403sp1.x86_64, 6.6.0-98.0.0.103.oe2403sp2.x86_64]

- name: Keep what was built for the rack
  inferack.rack.dkms:
    name: nvidia
    version: 580.95.05
    state: exported
    archive: /var/lib/inferack/modules/

- name: Install what another node built
  inferack.rack.dkms:
    name: nvidia
    version: 580.95.05
    state: imported
    archive: /var/cache/inferack/nvidia-580.95.05-6.8.0-60-generic-x86_64-open.tar.gz
    flavour: open

- name: Remove what an earlier driver left
  inferack.rack.dkms:
    name: nvidia
    version: 535.104.05
    state: absent
"""

RETURN = r"""
version:
  description: The version that was meant; null when there is none.
  returned: always
  type: str
kernels:
  description: What became of each kernel.
  returned: always
  type: list
  elements: dict
  contains:
    kernel:
      description: Its release; empty for the module as a whole.
      type: str
    before:
      description: DKMS's state before - V(absent), V(added), V(built), V(installed), V(installed-weak) or V(broken).
      type: str
    after:
      description: DKMS's state after.
      type: str
    steps:
      description: What was done, or would be in check mode.
      type: list
      elements: str
    seconds:
      description: How long it took.
      type: float
    failure:
      description:
        - What was found out about a step that failed - its C(kind), the C(error) line, the C(symbol) in it, its C(line) in
          the C(log), C(compiler) of the kernel and found here, and C(headers).
      type: dict
archives:
  description: The archives with C(path), C(sha256), C(written) and C(manifest).
  returned: when O(state=exported) or O(state=imported)
  type: list
  elements: dict
checks:
  description:
    - C(driver.dkms) for each kernel, or C(driver.headers) or C(node.disk) where that is the cause.
    - C(driver.archive) for each archive.
  returned: always
  type: list
  elements: dict
worst:
  description: The most harmful status among the checks.
  returned: always
  type: str
msg:
  description: The first failing check in one sentence.
  returned: when a check fails
  type: str
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.inferack.rack.plugins.module_utils import _dkms, _dkms_archive, _dkms_run, _dkms_store
from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, PASS, REPORT_ONLY, Check, finish
from ansible_collections.inferack.rack.plugins.module_utils._dkms_archive import ID, ArchiveError

EXPORTED = "exported"
IMPORTED = "imported"

#: DKMS reads the first, then the others in their order (dkms.8).
FRAMEWORK = ("/etc/dkms/framework.conf", "/etc/dkms/framework.conf.d")


@dataclass
class Result:
    """What is returned."""

    version: str | None = None
    outcomes: list[_dkms_run.Outcome] = field(default_factory=list)
    archives: list[dict[str, object]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)


def trees() -> _dkms.Trees:
    """DKMS's folders on this node."""
    first, folder = (Path(name) for name in FRAMEWORK)
    files = [first, *sorted(folder.glob("*.conf"))]
    return _dkms.configured_trees(path.read_text(encoding="utf-8", errors="replace") for path in files if path.is_file())


def export(dkms: _dkms_run.Dkms, options: dict[str, Any], version: str, result: Result, check_mode: bool) -> None:
    """Write an archive for each kernel."""
    kernels = options["kernels"] or [dkms.running]
    archive = Path(options["archive"])
    if len(kernels) > 1 and not archive.is_dir():
        found = f"{archive}, which is no folder, for {len(kernels)} kernels"
        result.checks.append(Check(ID, FAIL, found, "a folder", "Create the folder, or export one kernel at a time."))
        return
    for kernel in kernels:
        subject = _dkms_run.subject_of(options["name"], version, kernel)
        try:
            exported = _dkms_store.export(dkms, options["name"], version, kernel, archive, check_mode=check_mode)
        except ArchiveError as error:
            remedy = "Have the module built for that kernel (state: built), then export."
            result.checks.append(Check(ID, FAIL, str(error), "modules that were built", remedy, subject=subject))
        except OSError as error:
            remedy = "Create the folder, or make room in it, and run again."
            result.checks.append(Check(ID, FAIL, str(error), f"{archive} written", remedy, subject=subject))
        else:
            result.archives.append(exported.as_dict())
            result.checks.append(exported.verdict())


def bring(dkms: _dkms_run.Dkms, options: dict[str, Any], result: Result, check_mode: bool) -> None:
    """Install from an archive."""
    archive, wanted = Path(options["archive"]), options["archive_sha256"].lower()
    again = "Copy the archive again, or export it again."
    try:
        total = _dkms_archive.sha256(archive)
        if wanted and total != wanted:
            result.checks.append(Check(ID, FAIL, f"sha256 {total} of {archive}", wanted, again))
            return
        manifest = _dkms_archive.read_manifest(archive)
    except (ArchiveError, OSError) as error:
        result.checks.append(Check(ID, FAIL, str(error), "an archive of built modules", again))
        return
    result.version = manifest.version
    result.archives.append({"path": str(archive), "sha256": total, "written": False, "manifest": asdict(manifest)})
    kernels = options["kernels"] or [dkms.running]
    asked = {key: options[key] for key in ("name", "version", "flavour", "signer")}
    verdicts = _dkms_archive.judge(manifest, _dkms_store.place(dkms, kernels, manifest.kernel), **asked)
    result.checks.extend(verdicts)
    if not any(check.status == FAIL for check in verdicts):
        result.outcomes.append(_dkms_store.bring(dkms, archive, manifest, check_mode=check_mode))


def act(dkms: _dkms_run.Dkms, options: dict[str, Any], result: Result, check_mode: bool) -> None:
    """Do what is wanted."""
    name, state = options["name"], options["state"]
    if state == IMPORTED:
        bring(dkms, options, result, check_mode)
        return
    version = options["version"] or _dkms.newest_version(name, dkms.status(), dkms.trees)
    result.version = version
    if version is None:
        if state == _dkms.ABSENT:
            result.checks.append(Check("driver.dkms", PASS, f"{name} absent", subject=name))
            return
        remedy = "Install the package that brings the source, or run NVIDIA's installer with --dkms."
        found = f"no {name} in DKMS's tree, and no {dkms.trees.sources}/{name}-VERSION"
        result.checks.append(Check("driver.dkms", FAIL, found, f"the source of {name}", remedy, subject=name))
    elif state == EXPORTED:
        export(dkms, options, version, result, check_mode)
    elif state == _dkms.ABSENT:
        result.outcomes.extend(_dkms_run.absent(dkms, name, version, options["kernels"], check_mode=check_mode))
    else:
        for kernel in options["kernels"] or [dkms.running]:
            result.outcomes.append(_dkms_run.ensure(dkms, name, version, kernel, state, check_mode=check_mode))


def main() -> None:
    """Read what is there, do what is wanted, prove it."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "version": {"type": "str", "default": ""},
            "kernels": {"type": "list", "elements": "str", "default": []},
            "state": {
                "type": "str",
                "choices": [_dkms.ABSENT, _dkms.BUILT, EXPORTED, IMPORTED, _dkms.INSTALLED],
                "default": _dkms.INSTALLED,
            },
            "archive": {"type": "path"},
            "archive_sha256": {"type": "str", "default": ""},
            "flavour": {"type": "str", "choices": ["", "open", "proprietary"], "default": ""},
            "signer": {"type": "str", "default": ""},
            "jobs": {"type": "int"},
            "timeout": {"type": "float", "default": 1800.0},
            "dkms": {"type": "str", "default": "dkms"},
            **REPORT_ONLY,
        },
        required_if=[("state", EXPORTED, ["archive"]), ("state", IMPORTED, ["archive"])],
        supports_check_mode=True,
    )
    options: dict[str, Any] = module.params
    dkms = _dkms_run.Dkms(options["dkms"], trees(), timeout=options["timeout"], jobs=options["jobs"])
    result = Result()
    try:
        act(dkms, options, result, module.check_mode)
    except _dkms_run.DkmsError as error:
        remedy = "Install the package dkms, and run again."
        result.checks.append(Check("driver.dkms", FAIL, str(error), "DKMS", remedy, subject=options["name"]))
    result.checks.extend(outcome.check for outcome in result.outcomes)
    changed = any(outcome.changed for outcome in result.outcomes) or any(entry["written"] for entry in result.archives)
    told: dict[str, Any] = {"archives": result.archives} if options["state"] in (EXPORTED, IMPORTED) else {}
    finish(
        module,
        result.checks,
        options["report_only"],
        changed=changed,
        version=result.version,
        kernels=[{key: value for key, value in asdict(outcome).items() if key != "check"} for outcome in result.outcomes],
        diff={
            side: "".join(f"{outcome.kernel or options['name']}: {getattr(outcome, side)}\n" for outcome in result.outcomes)
            for side in ("before", "after")
        },
        **told,
    )


if __name__ == "__main__":
    main()
