# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""The order of versions and kernel releases. Runs on managed nodes: Python 3.9 and the standard library only."""

from __future__ import annotations

import re


def version_key(text: str) -> tuple[tuple[int, str], ...]:
    """Orders versions as people and GRUB do: numbers as numbers, words between them as words."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|[a-z]+", text.lower()))
