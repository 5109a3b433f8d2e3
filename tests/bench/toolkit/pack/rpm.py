"""Signed RPM packages from a table, and repositories of them as dnf expects them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pack import signing
from pack.deb import EPOCH


@dataclass
class Rpm:
    """One binary package. `files` and `modes` are as in pack.deb.Deb; `scripts` maps post, preun, postun, posttrans."""

    name: str
    version: str
    release: str
    summary: str
    architecture: str = "x86_64"
    files: Mapping[str, str | bytes | Path] = field(default_factory=dict)
    modes: Mapping[str, int] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    requires: Sequence[str] = ()
    provides: Sequence[str] = ()
    obsoletes: Sequence[str] = ()
    scripts: Mapping[str, str] = field(default_factory=dict)
    config: Sequence[str] = ()


def spec(package: Rpm, source: Path) -> str:
    """The spec file that packs what lies in the folder `source`."""
    lines = [
        "%global debug_package %{nil}",
        "%global __os_install_post %{nil}",
        "%global _build_id_links none",
        "%global _binary_payload w3.zstdio",
        f"Name: {package.name}",
        f"Version: {package.version}",
        f"Release: {package.release}",
        f"Summary: {package.summary}",
        "License: Apache-2.0",
        "Vendor: test bench",
        f"BuildArch: {package.architecture}",
        "AutoReqProv: no",
    ]
    lines += [f"Requires: {text}" for text in package.requires]
    lines += [f"Provides: {text}" for text in package.provides]
    lines += [f"Obsoletes: {text}" for text in package.obsoletes]
    lines += ["%description", "A stand-in made by the test bench.", "%install", f"cp -a {source}/. %{{buildroot}}/"]
    for section, text in package.scripts.items():
        lines += [f"%{section}", text.rstrip()]
    lines.append("%files")
    lines += [("%config(noreplace) " if name in package.config else "") + name for name in (*package.files, *package.links)]
    return "\n".join(lines) + "\n"


def build(package: Rpm, folder: Path) -> Path:
    """Build the package into `folder` and return its path. Raises CalledProcessError when rpmbuild refuses it."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        source = top / "source"
        source.mkdir(mode=0o755)
        for path, content in package.files.items():
            target = source / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            mode = 0o644
            if isinstance(content, Path):
                mode = 0o755 if os.access(content, os.X_OK) else 0o644
                content = content.read_bytes()
            target.write_bytes(content.encode() if isinstance(content, str) else content)
            target.chmod(package.modes.get(path, mode))
        for path, goal in package.links.items():
            link = source / path.lstrip("/")
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(goal)
        (top / "package.spec").write_text(spec(package, source), encoding="utf-8")
        subprocess.run(
            [
                "rpmbuild",
                "-bb",
                "--quiet",
                "--define",
                f"_topdir {top}/build",
                "--define",
                "use_source_date_epoch_as_buildtime 1",
                "--define",
                "clamp_mtime_to_source_date_epoch 1",
                str(top / "package.spec"),
            ],
            check=True,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)},
        )
        made = next((top / "build/RPMS").rglob("*.rpm"))
        target = folder / made.name
        shutil.copyfile(made, target)
    return target


def index(folder: Path) -> None:
    """Write repodata for the packages in `folder`."""
    shutil.rmtree(folder / "repodata", ignore_errors=True)
    subprocess.run(["createrepo_c", "--quiet", "--general-compress-type=gz", str(folder)], check=True)


def sign(packages: Sequence[Path], key: signing.Key) -> None:
    """Sign the packages with `key`, in place."""
    command = [
        "rpmsign",
        "--define",
        f"_gpg_name {key.fingerprint}",
        "--define",
        f"_gpg_path {key.home}",
        "--define",
        "__gpg /usr/bin/gpg",
        "--addsign",
        *map(str, packages),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "GNUPGHOME": str(key.home)})
