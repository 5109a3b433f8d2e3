# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Packages, holds and package sources of a node: readers for what dpkg, rpm, apt and dnf write.

Pure functions over texts; they run on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: The packages that matter on a GPU node (docs/architecture.md, `inferack_node.packages`).
INTERESTING = re.compile(
    r"nvidia|cuda|docker|moby|containerd|podman|runc|dkms|linux-headers|linux-image|kernel-devel|kernel-headers|^gcc"
)

DPKG_FORMAT = "${db:Status-Abbrev}\\t${Package}\\t${Version}\\n"
RPM_FORMAT = "%{NAME}\\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\n"


@dataclass(frozen=True)
class Packages:
    """Installed packages that matter: versions by name, names that are held, names that dpkg left half-configured."""

    versions: dict[str, str] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


def parse_dpkg(text: str) -> Packages:
    """Read `dpkg-query -W -f DPKG_FORMAT`.

    Of the three letters of a status the first is what is wanted (`h`: held), the second what is there (`i`: installed,
    `U` and `F`: unpacked but not configured).
    """
    found = Packages()
    for line in text.splitlines():
        parts = line.split("\t")
        if len(parts) != 3 or len(parts[0]) < 2:
            continue
        status, name, version = parts
        if status[0] == "h":
            found.held.append(name)
        if not INTERESTING.search(name):
            continue
        if status[1] in "UFH":
            found.broken.append(name)
        if status[1] in "iUFHWt" and version:
            found.versions[name] = version
    return Packages(dict(sorted(found.versions.items())), sorted(set(found.held)), sorted(set(found.broken)))


def parse_rpm(text: str, kernel: str = "") -> Packages:
    """Read `rpm -qa --qf RPM_FORMAT`.

    kernel: the running kernel's release. Of several kernel packages of one name the one of that release counts, else the one
    rpm lists last.
    """
    versions: dict[str, str] = {}
    for line in text.splitlines():
        name, tab, version = line.partition("\t")
        if not tab or not INTERESTING.search(name):
            continue
        version = version[2:] if version.startswith("0:") else version
        if name in versions and kernel and kernel.startswith(versions[name]):
            continue
        versions[name] = version
    return Packages(dict(sorted(versions.items())))


def parse_apt_marks(text: str) -> list[str]:
    """Read `apt-mark showhold`: one name a line, perhaps with `:architecture`."""
    return sorted({line.strip().partition(":")[0] for line in text.splitlines() if line.strip()})


def parse_versionlock(text: str) -> list[str]:
    """Names locked by dnf's or yum's versionlock.list (one `name-epoch:version-release.arch` a line; `!` excludes instead)."""
    names: set[str] = set()
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith(("#", "!")):
            continue
        line = re.sub(r"^\d+:(?=[^:]*-)", "", line)  # yum writes the epoch first
        match = re.match(r"^(.+?)-(?:\d+:)?[^-:]+-[^-]+$", line)
        names.add(match.group(1) if match else re.sub(r"\.\*$|-\*$", "", line))
    return sorted(names)


def parse_versionlock_toml(text: str) -> list[str]:
    """Names locked by dnf 5's versionlock.toml; only the key `name` of each package is needed."""
    return sorted(set(re.findall(r'^\s*name\s*=\s*"([^"]+)"', text, re.MULTILINE)))


def without_login(uri: str) -> str:
    """A URI without the user name and password that private mirrors put in it: facts are shown and logged."""
    return re.sub(r"(?<=://)[^/@\s]*@", "", uri)


def parse_one_line_sources(file: str, text: str) -> list[dict[str, Any]]:
    """Read a one-line sources.list(5) file; disabled (commented) entries are left out."""
    sources: list[dict[str, Any]] = []
    for raw in text.splitlines():
        match = re.match(r"^\s*(deb|deb-src)\s+(?:\[([^\]]*)\]\s*)?(\S+)\s+(\S+)\s*([^#]*)", raw)
        if not match:
            continue
        kind, options, uri, suite, components = match.groups()
        signed = re.search(r"(?:^|\s)signed-by=(\S+)", options or "", re.IGNORECASE)
        sources.append(
            {
                "file": file,
                "type": kind,
                "uris": [without_login(uri)],
                "suites": [suite],
                "components": components.split(),
                "signed_by": signed.group(1) if signed else None,
            }
        )
    return sources


def paragraphs(text: str) -> list[dict[str, str]]:
    """The paragraphs of a deb822 text as fields in lower case; continued lines joined with newlines, comments dropped."""
    found: list[dict[str, str]] = []
    current: dict[str, str] = {}
    key = ""
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):
            continue
        if not line.strip():
            if current:
                found.append(current)
            current, key = {}, ""
        elif line[0] in " \t":
            if key:
                current[key] += "\n" + line.strip()
        else:
            key, colon, value = line.partition(":")
            key = key.strip().lower()
            if colon:
                current[key] = value.strip()
            else:
                key = ""
    return found


def parse_deb822_sources(file: str, text: str) -> list[dict[str, Any]]:
    """Read a deb822 .sources file; paragraphs with `Enabled: no` are left out. An inlined key is named `inline`."""
    sources: list[dict[str, Any]] = []
    for fields in paragraphs(text):
        if fields.get("enabled", "yes").lower() in ("no", "false", "0", "off", "disable", "without"):
            continue
        signed: str | None = " ".join(fields.get("signed-by", "").split()) or None
        if signed and "BEGIN PGP" in signed:
            signed = "inline"
        sources.append(
            {
                "file": file,
                "type": " ".join(fields.get("types", "").split()),
                "uris": [without_login(uri) for uri in fields.get("uris", "").split()],
                "suites": fields.get("suites", "").split(),
                "components": fields.get("components", "").split(),
                "signed_by": signed,
            }
        )
    return sources


def parse_repo_file(file: str, text: str) -> list[dict[str, Any]]:
    """Read a .repo file of yum or dnf; disabled repositories are left out. A file that is no INI text gives nothing."""
    parser = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    try:
        parser.read_string(text)
    except configparser.Error:
        return []
    sources: list[dict[str, Any]] = []
    for section in parser.sections():
        if section == "main" or (parser.get(section, "enabled", fallback="1") or "").strip().lower() in ("0", "no", "false"):
            continue
        base = parser.get(section, "baseurl", fallback=None) or parser.get(section, "metalink", fallback=None)
        base = base or parser.get(section, "mirrorlist", fallback=None)
        sources.append({"file": file, "id": section, "baseurl": without_login(base) if base else None})
    return sources


def sources(files: Mapping[str, str]) -> list[dict[str, Any]]:
    """The enabled sources in files (path to text), by the kind each name ends in."""
    found: list[dict[str, Any]] = []
    for file in sorted(files):
        if file.endswith(".list"):
            found += parse_one_line_sources(file, files[file])
        elif file.endswith(".sources"):
            found += parse_deb822_sources(file, files[file])
        elif file.endswith(".repo"):
            found += parse_repo_file(file, files[file])
    return found
