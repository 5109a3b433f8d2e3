# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which kernel boots next: readers for what GRUB and the Boot Loader Specification write.

Pure functions over texts; they run on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.inferack.rack.plugins.module_utils._version_order import version_key

#: A kernel's file, in /boot and on GRUB's `linux` lines; the release stands behind it.
IMAGE = re.compile(r"(?:^|/)(?:vmlinuz|vmlinux|Image)-([\w.+~-]+)$")


@dataclass
class Entry:
    """An entry of a boot menu. release: of its kernel, None for one that boots none. children: of a submenu, else empty."""

    title: str
    id: str
    release: str | None = None
    children: list[Entry] = field(default_factory=list)


def image_release(path: str) -> str | None:
    """The release in a kernel's file name, `/boot/vmlinuz-6.1.0-42-amd64` → `6.1.0-42-amd64`."""
    match = IMAGE.search(path)
    return match.group(1) if match else None


def parse_grub_config(text: str) -> list[Entry]:
    """The menu in a grub.cfg that grub-mkconfig wrote: its entries, submenus with theirs, in order."""
    top = Entry("", "")
    stack: list[Entry] = [top]
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("#"):
            continue
        opened = re.match(r"(menuentry|submenu)\s+(?:'((?:[^']|'\\'')*)'|\"([^\"]*)\")(.*)\{$", line)
        if opened:
            title = (opened.group(2) or opened.group(3) or "").replace("'\\''", "'")
            names = re.search(r"(?:\$menuentry_id_option|--id[= ])\s*['\"]?([^'\"\s{]+)", opened.group(4))
            entry = Entry(title, names.group(1) if names else "")
            stack[-1].children.append(entry)
            stack.append(entry)
        elif line.endswith("{"):
            stack.append(Entry("", ""))
        elif line == "}" and len(stack) > 1:
            stack.pop()
        else:
            booted = re.match(r"(?:linux|linux16|linuxefi)\s+(\S+)", line)
            if booted and stack[-1].release is None:
                stack[-1].release = image_release(booted.group(1))
    return top.children


def parse_grub_environment(text: str) -> dict[str, str]:
    """The variables of a grubenv file."""
    return dict(re.findall(r"(?m)^(\w+)=(.*?)\s*$", text))


def configured_default(config: str) -> str:
    """What grub.cfg boots by default: a number, a title, an id, or `saved` where grubenv decides; `0` where it says nothing."""
    found = [value for value in re.findall(r"(?m)^\s*set default=\"?([^\"\n]*)\"?\s*$", config) if "next_entry" not in value]
    value = found[-1] if found else "0"
    return "saved" if "saved_entry" in value else value or "0"


def choose(entries: Sequence[Entry], choice: str) -> str | None:
    """The release that a choice boots: numbers, titles or ids, with `>` into submenus; None when it names none."""
    head, _more, rest = choice.partition(">")
    entry: Entry | None
    if head.isdigit():
        entry = entries[int(head)] if int(head) < len(entries) else None
    else:
        entry = next((one for one in entries if head and head in (one.id, one.title)), None)
    if entry is None:
        return None
    if entry.children:
        return choose(entry.children, rest or "0")
    return entry.release


def parse_loader_entry(text: str) -> str | None:
    """The release in an entry of the Boot Loader Specification: its `version`, else that of its kernel's file."""
    fields = dict(re.findall(r"(?m)^(version|linux)\s+(\S+)", text))
    return fields.get("version") or image_release(fields.get("linux", ""))


def default_release(config: str, environment: str, loader: Mapping[str, str], bootable: Iterable[str]) -> str | None:
    """The release that boots next, None when it cannot be told.

    config: grub.cfg. environment: grubenv. loader: entries of the Boot Loader Specification by file name without `.conf`.
    bootable: releases that have a kernel; without a boot loader's word nothing is guessed from them, but a choice that is none
    of them does not count.
    """
    there = set(bootable)
    variables = parse_grub_environment(environment)
    menu = parse_grub_config(config)
    default = configured_default(config)
    choices = [variables.get("next_entry", ""), variables.get("saved_entry", "") if default == "saved" else default, "0"]
    by_entry = {name: release for name, text in loader.items() if (release := parse_loader_entry(text))}
    if "blscfg" in config or (by_entry and not menu):
        # GRUB lists such entries newest first, and a number counts from there.
        order = sorted(by_entry, key=lambda name: version_key(by_entry[name]), reverse=True)
        menu = [Entry(name, name, by_entry[name]) for name in order]
    for choice in choices:
        release = choose(menu, choice) if choice else None
        if release in there:
            return release
    return None
