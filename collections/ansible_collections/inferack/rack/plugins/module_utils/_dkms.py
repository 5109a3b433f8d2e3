# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""DKMS's own records: where it keeps things, and what has to be done for a wanted state.

Runs on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.inferack.rack.plugins.module_utils import _kernel_module
from ansible_collections.inferack.rack.plugins.module_utils._dkms_status import Row
from ansible_collections.inferack.rack.plugins.module_utils._version_order import version_key

ABSENT, BUILT, INSTALLED = "absent", "built", "installed"

#: The states of `dkms status` in which modules are there for a kernel, and in which the kernel finds them too.
BUILT_STATES = ("built", "installed", "installed-weak")
INSTALLED_STATES = ("installed", "installed-weak")


@dataclass(frozen=True)
class Trees:
    """DKMS's folders: its records, the sources, where kernels find modules (dkms.8, framework.conf)."""

    records: Path = Path("/var/lib/dkms")
    sources: Path = Path("/usr/src")
    modules: Path = Path("/lib/modules")

    def version(self, name: str, version: str) -> Path:
        """The records of one version of a module."""
        return self.records / name / version

    def built(self, name: str, version: str, kernel: str, arch: str) -> Path:
        """Where the modules of one build lie."""
        return self.version(name, version) / kernel / arch / "module"

    def source(self, name: str, version: str) -> Path:
        """The source of one version of a module."""
        return self.sources / f"{name}-{version}"

    def config(self, name: str, version: str) -> Path | None:
        """Its dkms.conf, from the records or the source; None where neither has one."""
        candidates = (self.version(name, version) / "source" / "dkms.conf", self.source(name, version) / "dkms.conf")
        return next((path for path in candidates if path.is_file()), None)

    def headers(self, kernel: str) -> Path:
        """The headers of a kernel."""
        return self.modules / kernel / "build"


def configured_trees(texts: Iterable[str], default: Trees | None = None) -> Trees:
    """The folders that framework.conf and the files of framework.conf.d set, in their order; the usual ones where unset."""
    found: dict[str, str] = {}
    for text in texts:
        for key, value in re.findall(r"""(?m)^\s*(dkms_tree|source_tree|install_tree)=["']?(/[^"'\s#]*)""", text):
            found[key] = value
    base = default or Trees()
    return Trees(
        Path(found.get("dkms_tree", base.records)),
        Path(found.get("source_tree", base.sources)),
        Path(found.get("install_tree", base.modules)),
    )


def newest_version(name: str, rows: Sequence[Row], trees: Trees) -> str | None:
    """The newest version of a module that DKMS knows or whose source is on the node; None where there is none."""
    known = {row.version for row in rows if row.name == name and row.state != "broken"}
    known.update(
        path.parent.name[len(name) + 1 :]
        for path in trees.sources.glob(f"{name}-*/dkms.conf")
        if path.parent.name[len(name) + 1 :][:1].isdigit()
    )
    return max(known, key=version_key, default=None)


def row_for(rows: Iterable[Row], name: str, version: str, kernel: str) -> Row | None:
    """The row of one build; None where this version is not built for that kernel."""
    return next((row for row in rows if (row.name, row.version, row.kernel) == (name, version, kernel)), None)


def registered(rows: Iterable[Row], name: str, version: str) -> bool:
    """Whether DKMS has this version's source: what `dkms add` does and `dkms remove --all` undoes."""
    return any(row.name == name and row.version == version and row.state != "broken" for row in rows)


def steps(row: Row | None, added: bool, wanted: str, differs: bool = False) -> list[str]:
    """What DKMS has to do for one kernel: some of `remove`, `add`, `build`, `install`, `reinstall`, in this order.

    row: the kernel's row. added: the version is registered. wanted: `built` or `installed`.
    differs: what is installed is not what was built, by content; DKMS itself also says so of one file compressed in two ways.
    """
    due = [] if added else ["add"]
    if row is not None and row.missing:
        return [*due, "remove", "add", "build", *(["install"] if wanted == INSTALLED else [])]
    if row is None or row.state not in BUILT_STATES:
        return [*due, "build", *(["install"] if wanted == INSTALLED else [])]
    if wanted == INSTALLED and row.state not in INSTALLED_STATES:
        return [*due, "install"]
    if wanted == INSTALLED and differs:
        return [*due, "reinstall"]
    return due


def really_differs(row: Row | None, trees: Trees) -> bool:
    """Whether the installed modules hold something else than the built ones, which DKMS suspects."""
    if row is None or not row.differs or row.kernel is None or row.arch is None:
        return False
    for built in sorted(trees.built(row.name, row.version, row.kernel, row.arch).glob("*.ko*")):
        name = _kernel_module.module_name(built.name)
        installed = [
            path for path in (trees.modules / row.kernel).rglob(f"{name}.ko*") if _kernel_module.SUFFIX.search(path.name)
        ]
        if not any(_kernel_module.same_content(built, path) for path in installed):
            return True
    return False


def header_facts(trees: Trees, kernel: str) -> dict[str, object]:
    """What can be told of a kernel's headers: path (None where absent), release they say they are of, complete.

    complete: Makefile, generated configuration and Module.symvers are there; without any of them no module builds.
    """
    folder = trees.headers(kernel)
    if not folder.is_dir():
        return {"path": None, "release": None, "complete": False}
    try:
        release: str | None = (folder / "include/config/kernel.release").read_text(encoding="utf-8").strip() or None
    except OSError:
        release = None
    parts = ("Makefile", "include/generated/autoconf.h", "Module.symvers")
    return {"path": str(folder.resolve()), "release": release, "complete": all((folder / part).exists() for part in parts)}


def header_problem(facts: Mapping[str, object], kernel: str) -> str:
    """Why nothing can be built with these headers; empty when something can be tried.

    Incomplete ones are tried: what a module needs of them differs, and the compiler says it best.
    """
    if facts["path"] is None:
        return f"no headers of kernel {kernel}"
    if facts["release"] not in (None, kernel):
        return f"headers of kernel {facts['release']} in the place of {kernel}'s"
    return ""


def log_path(output: str, trees: Trees, name: str, version: str, kernel: str, arch: str) -> Path | None:
    """The make.log that DKMS's output names, else the one in the usual place; None where there is none."""
    named = re.search(
        r"Consult (?:the )?(?:make\.log in the build directory\s+)?(/\S+?)(?:/make\.log)? for more information", output
    )
    places = [Path(named.group(1)) / "make.log"] if named else []
    places += [
        trees.version(name, version) / "build" / "make.log",
        trees.version(name, version) / kernel / arch / "log/make.log",
    ]
    return next((path for path in places if path.is_file()), None)
