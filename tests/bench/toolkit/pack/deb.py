"""Debian packages from a table, and repositories of them as apt expects them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pack import signing

EPOCH = 1_735_689_600
"""The time (seconds) that every packaged file carries, so that equal content makes equal packages: 2025-01-01."""

RELATIONS = ("Pre-Depends", "Depends", "Recommends", "Suggests", "Provides", "Conflicts", "Breaks", "Replaces")


@dataclass
class Deb:
    """One binary package.

    `files` maps a path on the node to its content, or to a file or folder here; `modes` overrides 0644 (0755 where the
    content is a file here that may be executed). `relations` maps control fields (RELATIONS) to their text; `scripts`
    maps preinst, postinst, prerm, postrm to shell text.
    """

    name: str
    version: str
    summary: str
    section: str = "misc"
    component: str = "main"
    architecture: str = "amd64"
    files: Mapping[str, str | bytes | Path] = field(default_factory=dict)
    modes: Mapping[str, int] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    relations: Mapping[str, str] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)
    conffiles: Sequence[str] = ()
    source: str = ""

    @property
    def file_name(self) -> str:
        """The name of the package's file in a pool; an epoch is left out, as everywhere."""
        return f"{self.name}_{self.version.split(':', 1)[-1]}_{self.architecture}.deb"


def control(package: Deb) -> str:
    """The text of the package's control file.

    Raises ValueError for a relation that dpkg does not know.
    """
    unknown = set(package.relations) - set(RELATIONS)
    if unknown:
        raise ValueError(f"{package.name}: unknown relations {sorted(unknown)}; dpkg knows {', '.join(RELATIONS)}")
    lines = [f"Package: {package.name}", f"Version: {package.version}", f"Architecture: {package.architecture}"]
    if package.source:
        lines.append(f"Source: {package.source}")
    prefix = "" if package.component == "main" else f"{package.component}/"
    lines += ["Maintainer: test bench <root@localhost>", f"Section: {prefix}{package.section}", "Priority: optional"]
    lines += [f"{name}: {package.relations[name]}" for name in RELATIONS if package.relations.get(name)]
    lines += [f"Description: {package.summary}", " A stand-in made by the test bench."]
    return "\n".join(lines) + "\n"


def put(root: Path, package: Deb) -> None:
    """Lay the package's files out below `root`."""
    for name, content in package.files.items():
        target = root / name.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path) and content.is_dir():
            shutil.copytree(content, target, symlinks=True, dirs_exist_ok=True)
            continue
        mode = 0o644
        if isinstance(content, Path):
            mode = 0o755 if os.access(content, os.X_OK) else 0o644
            content = content.read_bytes()
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        target.chmod(package.modes.get(name, mode))
    for name, goal in package.links.items():
        link = root / name.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(goal)


def build(package: Deb, folder: Path) -> Path:
    """Build the package into `folder` and return its path. Raises CalledProcessError when dpkg-deb refuses it."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "root"
        (root / "DEBIAN").mkdir(parents=True)
        root.chmod(0o755)
        put(root, package)
        (root / "DEBIAN/control").write_text(control(package), encoding="utf-8")
        if package.conffiles:
            (root / "DEBIAN/conffiles").write_text("\n".join(package.conffiles) + "\n", encoding="utf-8")
        for script, text in package.scripts.items():
            path = root / "DEBIAN" / script
            path.write_text(text, encoding="utf-8")
            path.chmod(0o755)
        target = folder / package.file_name
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zzstd", "-z3", "--build", str(root), str(target)],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)},
        )
    return target


def repack(original: Path, folder: Path, depends: str) -> Path:
    """Copy a package into `folder` with `depends` added to what it depends on; the files stay as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "root"
        subprocess.run(["dpkg-deb", "-R", str(original), str(root)], check=True)
        path = root / "DEBIAN/control"
        lines = path.read_text(encoding="utf-8").splitlines()
        found = [index for index, line in enumerate(lines) if line.startswith("Depends: ")]
        if len(found) != 1:
            raise ValueError(f"{original.name}: expected one Depends line, found {len(found)}")
        lines[found[0]] += f", {depends}"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        target = folder / original.name
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zzstd", "-z3", "--build", str(root), str(target)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return target


def packages_index(root: Path, folder: str) -> str:
    """The Packages text of the packages in `root`/`folder`, with paths relative to `root`."""
    command = ["apt-ftparchive", "packages", folder]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout


def write_index(folder: Path, text: str) -> None:
    """Write Packages and its compressed forms into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Packages").write_text(text, encoding="utf-8")
    for command, suffix in ((["gzip", "-9n"], ".gz"), (["xz", "-6"], ".xz")):
        packed = subprocess.run([*command, "-c", str(folder / "Packages")], check=True, capture_output=True).stdout
        (folder / f"Packages{suffix}").write_bytes(packed)


def write_release(folder: Path, key: signing.Key, fields: Mapping[str, str]) -> None:
    """Write Release, Release.gpg and InRelease into `folder`, signed by `key`."""
    for name in ("Release", "Release.gpg", "InRelease"):
        (folder / name).unlink(missing_ok=True)
    options: list[str] = []
    for name, value in fields.items():
        options += ["-o", f"APT::FTPArchive::Release::{name}={value}"]
    command = ["apt-ftparchive", *options, "release", "."]
    text = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    (folder / "Release").write_text(text, encoding="utf-8")
    key.clear_sign(folder / "Release", folder / "InRelease")
    key.detach_sign(folder / "Release", folder / "Release.gpg")


def same(packages: Iterable[Deb]) -> None:
    """Refuse a table that names a package of one version twice. Raises ValueError."""
    seen: set[tuple[str, str]] = set()
    for package in packages:
        key = (package.name, package.version)
        if key in seen:
            raise ValueError(f"{package.name} {package.version} is there twice")
        seen.add(key)
