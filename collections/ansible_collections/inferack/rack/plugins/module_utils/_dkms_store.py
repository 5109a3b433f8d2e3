# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Handing built modules from the node that built them to the others.

Runs on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ansible_collections.inferack.rack.plugins.module_utils import (
    _dkms,
    _dkms_archive,
    _dkms_log,
    _dkms_run,
    _driver_facts,
    _kernel_module,
)
from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, PASS, SKIP, Check
from ansible_collections.inferack.rack.plugins.module_utils._dkms_archive import ID, ArchiveError, Manifest
from ansible_collections.inferack.rack.plugins.module_utils._dkms_run import Dkms, Outcome

#: EFI variable of the global namespace (UEFI specification, 3.3 "Globally Defined Variables").
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


@dataclass(frozen=True)
class Exported:
    """An archive on the node. written: this call wrote it, or would have in check mode."""

    path: Path
    manifest: Manifest
    written: bool

    def as_dict(self) -> dict[str, object]:
        """As the module returns it; sha256 is None for an archive that check mode did not write."""
        total = _dkms_archive.sha256(self.path) if self.path.is_file() else None
        return {"path": str(self.path), "sha256": total, "written": self.written, "manifest": asdict(self.manifest)}

    def verdict(self) -> Check:
        """The check that says so."""
        subject = f"{self.manifest.what} for kernel {self.manifest.kernel}"
        return Check(ID, PASS, str(self.path), f"vermagic {self.manifest.vermagic}", subject=subject)


def export(dkms: Dkms, name: str, version: str, kernel: str, archive: Path, *, check_mode: bool = False) -> Exported:
    """Write the modules built for a kernel into an archive. An archive of the same modules is left as it is.

    archive: the file, or a folder in which it gets its usual name. Raises ArchiveError for what is not built, OSError.
    """
    rows = dkms.status()
    row = _dkms.row_for(rows, name, version, kernel)
    if row is None or row.state not in _dkms.BUILT_STATES or row.missing:
        found = row or _dkms_run.state_of(rows, name, version, kernel)
        raise ArchiveError(f"expected {name}/{version} built for kernel {kernel}, found {found}")
    arch = row.arch or dkms.machine
    folder = dkms.trees.built(name, version, kernel, arch)
    config = dkms.trees.config(name, version)
    if config is None:
        raise ArchiveError(f"expected the dkms.conf of {name}/{version}, found none")
    content = config.read_bytes()
    log = _text(folder.parent / "log" / "make.log")
    compiler = _dkms_log.compilers_of(log).found or _dkms_run.compilers(dkms, kernel).found
    manifest = _dkms_archive.describe(folder, content, name, version, kernel, arch, compiler)
    path = archive / manifest.file_name if archive.is_dir() else archive
    with contextlib.suppress(ArchiveError):
        there = _dkms_archive.read_manifest(path)
        if (there.modules, there.config_sha256, there.kernel) == (manifest.modules, manifest.config_sha256, kernel):
            return Exported(path, there, False)
    if not check_mode:
        _dkms_archive.write(path, manifest, folder, content)
    return Exported(path, manifest, True)


def place(dkms: Dkms, kernels: Sequence[str], kernel: str, root: Path = Path("/")) -> _dkms_archive.Place:
    """What this node needs of an archive for a kernel. root: folder that stands for `/`."""
    return _dkms_archive.Place(kernels, dkms.machine, kernel_vermagic(dkms.trees, kernel), enforced(root), trusted(root))


def kernel_vermagic(trees: _dkms.Trees, kernel: str) -> str | None:
    """The vermagic of a module that came with a kernel; None where none of the first few can be read."""
    lines = _text(trees.modules / kernel / "modules.dep").splitlines()
    for name in [line.partition(":")[0] for line in lines if line.startswith("kernel/")][:5]:
        with contextlib.suppress(_kernel_module.UnreadableModuleError):
            vermagic = _kernel_module.read(trees.modules / kernel / name).vermagic
            if vermagic:
                return vermagic
    return None


def enforced(root: Path) -> bool:
    """Whether the kernel refuses modules without a trusted signature: told so, locked down, or booted under Secure Boot."""
    if _text(root / "sys/module/module/parameters/sig_enforce").strip() in ("Y", "1"):
        return True
    if any(mode in _text(root / "sys/kernel/security/lockdown") for mode in ("[integrity]", "[confidentiality]")):
        return True
    variable: bytes | None = None
    with contextlib.suppress(OSError):
        variable = (root / SECURE_BOOT).read_bytes()
    return _driver_facts.secure_boot((root / "sys/firmware/efi").is_dir(), variable) == "enabled"


def trusted(root: Path) -> list[str] | None:
    """The certificates that the kernel says it has; None when it shows none."""
    return _dkms_archive.trusted_keys(_text(root / "proc/keys")) or None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def bring(dkms: Dkms, archive: Path, manifest: Manifest, *, check_mode: bool = False) -> Outcome:
    """Put an archive's modules into DKMS's tree and install them, without compiler and headers.

    manifest: the archive's, judged already. A node without the module's source gets the archive's dkms.conf in its place, as
    `dkms ldtarball` does for archives without source. What fails is undone.
    """
    name, version, kernel = manifest.name, manifest.version, manifest.kernel
    subject = _dkms_run.subject_of(name, version, kernel)
    rows = dkms.status()
    row = _dkms.row_for(rows, name, version, kernel)
    before = _dkms_run.state_of(rows, name, version, kernel)
    if not (dkms.trees.modules / kernel).is_dir():
        return Outcome(kernel, before, before, _dkms_run.no_kernel(dkms, name, version, kernel))
    built = row is not None and row.state in _dkms.BUILT_STATES and not row.missing
    other = _other_flavour(dkms, manifest) if built else ""
    if other:
        found = f"{other} modules built here, {manifest.flavour} ones in the archive"
        remedy = "Remove the modules that are there (state: absent), then import."
        return Outcome(kernel, before, before, Check(ID, FAIL, found, "one flavour", remedy, subject=subject))
    if built and before in _dkms.INSTALLED_STATES and not _dkms.really_differs(row, dkms.trees):
        return Outcome(kernel, before, before, _dkms_run.passed(name, version, kernel, before, [str(row)]))
    if check_mode:
        found = f"{name}/{version} {before}; would install it from {archive.name}"
        check = Check("driver.dkms", SKIP, found, _dkms.INSTALLED, "Run without check mode.", subject=subject)
        return Outcome(kernel, before, _dkms.INSTALLED, check, ["import"])
    outcome = Outcome(kernel, before, before, Check("driver.dkms", SKIP, subject=subject))
    added = _dkms.registered(rows, name, version)
    trouble = None if built else _put(dkms, archive, manifest, outcome, added)
    if trouble is None:
        trouble = _install(dkms, manifest, outcome, force=before in _dkms.INSTALLED_STATES)
    if trouble is not None and not built:
        _take_back(dkms, manifest, added)
    outcome.after = _dkms_run.state_of(dkms.status(), name, version, kernel)
    where = f"{outcome.after} from {archive.name}"
    outcome.check = trouble or _dkms_run.passed(name, version, kernel, where)
    return outcome


def _install(dkms: Dkms, manifest: Manifest, outcome: Outcome, *, force: bool) -> Check | None:
    name, version, kernel = manifest.name, manifest.version, manifest.kernel
    output = dkms.call("install", name, version, kernel, *(["--force"] if force else []))
    outcome.steps.append("install")
    outcome.seconds = output.seconds
    if output.ok and _dkms_run.state_of(dkms.status(), name, version, kernel) in _dkms.INSTALLED_STATES:
        return None
    check, outcome.failure = _dkms_run.explain(dkms, output, "install", name, version, kernel)
    return check


def _other_flavour(dkms: Dkms, manifest: Manifest) -> str:
    """The flavour of what is built here, when it is not the archive's; empty when it is, or cannot be told."""
    folder = dkms.trees.built(manifest.name, manifest.version, manifest.kernel, dkms.machine)
    try:
        here = _dkms_archive.describe(folder, b"", manifest.name, manifest.version, manifest.kernel, dkms.machine, None)
    except ArchiveError:
        return ""
    return here.flavour if here.flavour and manifest.flavour and here.flavour != manifest.flavour else ""


def _put(dkms: Dkms, archive: Path, manifest: Manifest, outcome: Outcome, added: bool) -> Check | None:
    """Unpack aside, register, and move into place in one step; the failing check when that does not work."""
    name, version, kernel = manifest.name, manifest.version, manifest.kernel
    target = dkms.trees.built(name, version, kernel, dkms.machine).parent
    subject = _dkms_run.subject_of(name, version, kernel)
    try:
        dkms.trees.records.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".inferack-", dir=dkms.trees.records) as aside:
            fresh = Path(aside) / dkms.machine
            (fresh / "module").mkdir(parents=True)
            config = _dkms_archive.extract(archive, manifest, fresh / "module")
            trouble = None if added else _register(dkms, manifest, config, outcome)
            if trouble is not None:
                return trouble
            shutil.rmtree(target, ignore_errors=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh.replace(target)
            outcome.steps.append("import")
    except ArchiveError as error:
        return Check(ID, FAIL, str(error), "a whole archive", "Copy the archive again, or export it again.", subject=subject)
    except OSError as error:
        full = _dkms_log.classify(f"error: {error}") == _dkms_log.DISK
        found, remedy = f"the modules cannot be written: {error}", f"Make room for {dkms.trees.records}, and run again."
        return Check("node.disk" if full else "driver.dkms", FAIL, found, "the modules in place", remedy, subject=subject)
    row = _dkms.row_for(dkms.status(), name, version, kernel)
    if row is None or row.state not in _dkms.BUILT_STATES or row.missing:
        found = f"{row or 'nothing'} after the import: the node's dkms.conf names other modules than the archive has"
        remedy = "Export the modules from a node with the same package of the driver's source."
        files = [module.file for module in manifest.modules]
        return Check(ID, FAIL, found, "the modules that dkms.conf names", remedy, files, subject)
    return None


def _register(dkms: Dkms, manifest: Manifest, config: bytes, outcome: Outcome) -> Check | None:
    """Make DKMS know the version: by its source where the node has it, else by the archive's dkms.conf alone."""
    name, version = manifest.name, manifest.version
    if (dkms.trees.source(name, version) / "dkms.conf").is_file():
        output = dkms.call("add", name, version)
        outcome.steps.append("add")
        if output.ok:
            return None
        check, outcome.failure = _dkms_run.explain(dkms, output, "add", name, version, manifest.kernel)
        return check
    stub = dkms.trees.version(name, version) / "source"
    if stub.is_symlink():
        stub.unlink()  # it leads to a source that is gone
    stub.mkdir(parents=True, exist_ok=True)
    (stub / "dkms.conf").write_bytes(config)
    outcome.steps.append("register")
    return None


def _take_back(dkms: Dkms, manifest: Manifest, added: bool) -> None:
    """Remove what an import put into the tree, and the registration that it made."""
    name, version, kernel = manifest.name, manifest.version, manifest.kernel
    _dkms_run.remove_half(dkms, name, version, kernel)
    _dkms_run.undo(dkms, name, version, kernel, added_here=not added)
