# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Modules that were built once, in one file: what is in it, and whether it fits a node.

An archive is a gzip-compressed tar with `manifest.json` first, then `dkms.conf` and the modules. The same modules give the
same bytes. The manifest's sha256 sums prove that the archive is whole; who may be trusted to have made it is for the module
signatures, which the kernel checks, and for the sha256 of the archive itself.
Runs on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ansible_collections.inferack.rack.plugins.module_utils import _kernel_module
from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, PASS, SKIP, Check
from ansible_collections.inferack.rack.plugins.module_utils._driver_facts import licence_flavour

#: What this version writes and reads.
FORMAT = 1

MANIFEST, CONFIG, FOLDER = "manifest.json", "dkms.conf", "module"

#: The check that an archive fits a node.
ID = "driver.archive"

#: NVIDIA's largest module is about 100 MB; what claims to be more is not unpacked.
LARGEST = 1 << 30

#: Modules are little but numbers after compression; a higher level costs time and saves nothing worth it.
LEVEL = 6


class ArchiveError(Exception):
    """An archive cannot be made or read; the text says what was expected and what was found."""


@dataclass(frozen=True)
class File:
    """A module in an archive. sha256 and size are those of the file as it lies in DKMS's tree, compressed or not."""

    file: str
    sha256: str
    size: int
    version: str | None
    vermagic: str | None
    signer: str | None


@dataclass(frozen=True)
class Manifest:
    """What an archive holds.

    name, version: DKMS's names for it. kernel, arch: what it was built for. driver_version, flavour: of its main module.
    compiler: what built it, in its own words. config_sha256: of its dkms.conf.
    """

    name: str
    version: str
    kernel: str
    arch: str
    driver_version: str | None
    flavour: str | None
    compiler: str | None
    vermagic: str
    signer: str | None
    config_sha256: str
    modules: list[File] = field(default_factory=list)

    @property
    def what(self) -> str:
        """The module as people say it."""
        return f"{self.name} {self.version}"

    @property
    def file_name(self) -> str:
        """The archive's usual name: all that decides whether a node can use it."""
        return f"{self.name}-{self.version}-{self.kernel}-{self.arch}-{self.flavour or 'unknown'}.tar.gz"


def sha256(path: Path) -> str:
    """The SHA-256 sum of a file, as hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def describe(folder: Path, config: bytes, name: str, version: str, kernel: str, arch: str, compiler: str | None) -> Manifest:
    """The manifest for the modules in a folder. Raises ArchiveError for modules that are unreadable or of different builds."""
    files = sorted(path for path in folder.glob("*.ko*") if path.is_file() and _kernel_module.SUFFIX.search(path.name))
    if not files:
        raise ArchiveError(f"expected built modules in {folder}, found none")
    try:
        modules = [_kernel_module.read(path) for path in files]
    except _kernel_module.UnreadableModuleError as error:
        raise ArchiveError(f"expected kernel modules in {folder}, found {error}") from error
    strays = [module for module in modules if module.release != kernel]
    if strays:
        raise ArchiveError(f"expected modules for kernel {kernel}, found {strays[0].name} for {strays[0].release}")
    # The parts around the main module have licences of their own, so that only its licence tells the flavour.
    main = min(modules, key=lambda module: (len(module.name), module.name))
    signers = {module.signer for module in modules}
    return Manifest(
        name=name,
        version=version,
        kernel=kernel,
        arch=arch,
        driver_version=main.version,
        flavour=licence_flavour(main.licence),
        compiler=compiler,
        vermagic=main.vermagic or "",
        signer=main.signer if len(signers) == 1 else None,
        config_sha256=hashlib.sha256(config).hexdigest(),
        modules=[
            File(path.name, sha256(path), path.stat().st_size, module.version, module.vermagic, module.signer)
            for path, module in zip(files, modules)
        ],
    )


def write(path: Path, manifest: Manifest, folder: Path, config: bytes) -> None:
    """Write an archive, complete or not at all. Raises OSError."""
    text = json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1, sort_keys=True) + "\n"
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with contextlib.ExitStack() as stack:
            raw = stack.enter_context(fresh.open("wb"))
            packed = stack.enter_context(gzip.GzipFile("", "wb", LEVEL, raw, mtime=0))
            tar = stack.enter_context(tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT))
            _add(tar, MANIFEST, text.encode())
            _add(tar, CONFIG, config)
            for module in manifest.modules:
                with (folder / module.file).open("rb") as file:
                    tar.addfile(_member(f"{FOLDER}/{module.file}", module.size), file)
        fresh.chmod(0o644)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _member(name: str, size: int) -> tarfile.TarInfo:
    """A member without anything that differs from build to build."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    return member


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    tar.addfile(_member(name, len(data)), io.BytesIO(data))


def _open(path: Path) -> tarfile.TarFile:
    try:
        return tarfile.open(path, "r:gz")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise ArchiveError(f"expected an archive of built modules, found {path}: {error}") from error


def _content(tar: tarfile.TarFile, name: str, limit: int) -> bytes:
    try:
        member = tar.getmember(name)
        file = tar.extractfile(member) if member.isfile() and member.size <= limit else None
        if file is None:
            raise ArchiveError(f"expected the plain file {name} of at most {limit} bytes, found another thing")
        return file.read()
    except (KeyError, tarfile.TarError, OSError, EOFError) as error:
        raise ArchiveError(f"expected {name} in the archive, found {error}") from error


def read_manifest(path: Path) -> Manifest:
    """What an archive says that it holds. Raises ArchiveError for what is no archive of ours, or is damaged."""
    with _open(path) as tar:
        text = _content(tar, MANIFEST, 1 << 20)
    try:
        raw = json.loads(text)
        if raw.pop("format", None) != FORMAT:
            raise ArchiveError(f"expected format {FORMAT} in {path.name}, found another; make the archive again")
        manifest = Manifest(**{**raw, "modules": [File(**entry) for entry in raw["modules"]]})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ArchiveError(f"expected a manifest in {path.name}, found {error}") from error
    # Names become paths: one that leads elsewhere, or that is no module's, is refused here, once for all.
    parts = (manifest.name, manifest.version, manifest.kernel, manifest.arch)
    if not all(isinstance(part, str) and re.fullmatch(r"[\w][\w.+:~-]*", part) for part in parts):
        raise ArchiveError(f"expected plain names in the manifest of {path.name}, found {parts}")
    for module in manifest.modules:
        if not re.fullmatch(r"[\w-]+\.ko(\.(gz|xz|zst))?", str(module.file)):
            raise ArchiveError(f"expected names of modules in {path.name}, found {module.file!r}")
    if not manifest.modules:
        raise ArchiveError(f"expected modules in {path.name}, found none")
    return manifest


def extract(path: Path, manifest: Manifest, folder: Path) -> bytes:
    """Unpack the modules into a folder, each checked against its sum and read again; returns dkms.conf.

    Raises ArchiveError for content that is not what the manifest says, OSError for a full disk.
    """
    with _open(path) as tar:
        config = _content(tar, CONFIG, 1 << 20)
        if hashlib.sha256(config).hexdigest() != manifest.config_sha256:
            raise ArchiveError(f"expected the dkms.conf that the manifest of {path.name} describes, found another")
        for module in manifest.modules:
            data = _content(tar, f"{FOLDER}/{module.file}", LARGEST)
            if hashlib.sha256(data).hexdigest() != module.sha256:
                raise ArchiveError(f"expected sha256 {module.sha256} for {module.file}, found another; the archive is damaged")
            (folder / module.file).write_bytes(data)
    for module in manifest.modules:
        try:
            found = _kernel_module.read(folder / module.file)
        except _kernel_module.UnreadableModuleError as error:
            raise ArchiveError(f"expected a kernel module, found {error}") from error
        # The manifest is text that anybody can write; what the kernel will read is the module.
        if (found.vermagic, found.signer, found.version) != (module.vermagic, module.signer, module.version):
            raise ArchiveError(f"expected {module.file} as the manifest describes it, found {found}")
    return config


@dataclass(frozen=True)
class Place:
    """What a node needs of an archive.

    kernels, arch: for which modules can be used. vermagic: of a module that came with the kernel; None: none was readable.
    enforced: the kernel refuses modules without a signature that it trusts.
    trusted: what it calls the keys that it trusts; None: they cannot be read.
    """

    kernels: Sequence[str]
    arch: str
    vermagic: str | None
    enforced: bool
    trusted: Sequence[str] | None


def trusted_keys(proc_keys: str) -> list[str]:
    """The certificates in /proc/keys, as the kernel names them: `Debian Secure Boot CA`, `O: CN` where both are there."""
    return re.findall(r"(?m)\basymmetri (.+?): (?:[0-9a-f]+: )?X509", proc_keys)


def judge(
    manifest: Manifest, place: Place, *, name: str, version: str = "", flavour: str = "", signer: str = ""
) -> list[Check]:
    """Whether an archive fits a node and is what was asked for: name, version, flavour, kernel, machine, vermagic, signature.

    Empty text: not asked for.
    """
    subject = f"{manifest.what} for kernel {manifest.kernel}"
    again = "Build the module for this node's kernel, and export it again."
    wrong = [
        (f"{manifest.name}", name, "the module"),
        (manifest.version, version, "version"),
        (manifest.flavour or "unknown", flavour, "flavour"),
    ]
    checks = [
        Check(ID, FAIL, f"{what} {found} in the archive", expected, "Name the archive of what is planned.", subject=subject)
        for found, expected, what in wrong
        if expected and found != expected
    ]
    if manifest.kernel not in place.kernels:
        checks.append(Check(ID, FAIL, f"modules for kernel {manifest.kernel}", list(place.kernels), again, subject=subject))
    if manifest.arch != place.arch:
        checks.append(Check(ID, FAIL, f"modules for {manifest.arch}", place.arch, again, subject=subject))
    odd = [module for module in manifest.modules if module.vermagic != manifest.vermagic]
    if odd:
        found = f"{odd[0].file} with vermagic {odd[0].vermagic}"
        checks.append(Check(ID, FAIL, found, f"vermagic {manifest.vermagic} in all modules", again, subject=subject))
    elif not manifest.vermagic.split() or manifest.vermagic.split()[0] != manifest.kernel:
        expected = f"vermagic of kernel {manifest.kernel}"
        checks.append(Check(ID, FAIL, f"vermagic {manifest.vermagic}", expected, again, subject=subject))
    elif place.vermagic is not None and place.vermagic != manifest.vermagic and manifest.kernel in place.kernels:
        found = f"vermagic {manifest.vermagic}"
        checks.append(Check(ID, FAIL, found, f"this kernel's vermagic {place.vermagic}", again, subject=subject))
    checks.extend(_signature(manifest, place, signer, subject))
    if any(check.status == FAIL for check in checks):
        return checks
    evidence = [f"{module.file} sha256 {module.sha256}" for module in manifest.modules]
    return [Check(ID, PASS, manifest.file_name, f"vermagic {manifest.vermagic}", evidence=evidence, subject=subject), *checks]


def _signature(manifest: Manifest, place: Place, signer: str, subject: str) -> list[Check]:
    """Signatures: by the one that was asked for, and by a key that an enforcing kernel trusts."""
    subject = f"{subject}, signature"
    signers = sorted({module.signer if module.signer is not None else "nobody" for module in manifest.modules})
    found = f"modules signed by {' and '.join(name or 'an unnamed key' for name in signers)}"
    if signer and signers != [signer]:
        remedy = "Sign the modules with that key where they are built (mok_signing_key in /etc/dkms/framework.conf)."
        return [Check(ID, FAIL, found, f"all signed by {signer}", remedy, subject=subject)]
    if not place.enforced:
        return []
    if "nobody" in signers:
        remedy = "Build them where DKMS has a key that this node's firmware has enrolled, or disable Secure Boot."
        return [Check(ID, FAIL, found, "signatures: this kernel refuses modules without", remedy, subject=subject)]
    if not place.trusted:
        remedy = "Make sure that the signer's certificate is enrolled (mokutil --list-enrolled) before the module is loaded."
        return [Check(ID, SKIP, found, "a key that this kernel trusts; its keys cannot be read", remedy, subject=subject)]
    strangers = [name for name in signers if not name or not any(key.endswith(name) for key in place.trusted)]
    if strangers:
        remedy = "Enrol the signer's certificate on this node (mokutil --import), or sign with a key that is enrolled."
        return [Check(ID, FAIL, found, "a key that this kernel trusts", remedy, list(place.trusted), subject)]
    return []
