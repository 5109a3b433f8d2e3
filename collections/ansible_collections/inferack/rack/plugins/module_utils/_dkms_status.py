# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""What `dkms status` says, of every version of DKMS.

Pure; runs on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A line of `dkms status`.

    kernel, arch: None for a module that is only added. state: `added`, `built`, `installed`, `installed-weak`, `broken`.
    differs: the installed file is not the one that was built. missing: some of the built files are gone.
    """

    name: str
    version: str
    kernel: str | None
    arch: str | None
    state: str
    differs: bool = False
    missing: bool = False

    def __str__(self) -> str:
        """As DKMS 3 prints it."""
        where = f", {self.kernel}, {self.arch}" if self.kernel else ""
        warning = " (differs from what was built)" if self.differs else ""
        warning += " (built files are missing)" if self.missing else ""
        return f"{self.name}/{self.version}{where}: {self.state}{warning}"


def parse_status(text: str) -> list[Row]:
    """The rows of `dkms status`, in the form of version 2 (`name, version, kernel, arch: state`) or 3 (`name/version, …`).

    A tree whose source is gone is told in a sentence of its own by version 3 and counts as `broken`. Other lines are left out.
    """
    rows: list[Row] = []
    for line in text.splitlines():
        broken = re.match(r"\s*(?:Error! )?([\w.+-]+)/([\w.+:~-]+): (?:broken\b|Missing the module source directory)", line)
        if broken:
            rows.append(Row(broken.group(1), broken.group(2), None, None, "broken"))
            continue
        head, colon, tail = line.partition(": ")
        if not colon:
            head, colon, tail = line.partition(":")
        state = re.match(r"\s*([a-z]+(?:-[a-z]+)?)", tail)
        parts = [part.strip() for part in head.split(",")]
        if not colon or not state or not parts[0] or " " in parts[0]:
            continue
        if "/" in parts[0]:
            name, _slash, version = parts[0].partition("/")
            rest = parts[1:]
        elif len(parts) > 1:
            name, version, rest = parts[0], parts[1], parts[2:]
        else:
            continue
        rows.append(
            Row(
                name,
                version,
                rest[0] if rest else None,
                rest[1] if len(rest) > 1 else None,
                state.group(1),
                "Diff between built and installed" in tail,
                "Missing some built modules" in tail,
            )
        )
    return rows
