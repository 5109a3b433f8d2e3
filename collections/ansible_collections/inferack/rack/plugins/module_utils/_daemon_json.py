# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Docker's daemon.json: merge settings into what others wrote there, and name what dockerd would refuse.

Pure functions over texts; they run on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from ansible_collections.inferack.rack.plugins.module_utils import _json_text
from ansible_collections.inferack.rack.plugins.module_utils._json_text import MalformedError, Node

__all__ = ["Flag", "MalformedError", "Merged", "WrongType", "conflicts", "flags", "merge", "read", "wrong_types"]

#: Folders in which a program named without a path is found, so that both spellings of a runtime's path are one.
PROGRAM_FOLDERS = frozenset({"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"})

#: A runtime's arguments: `runtimeArgs` is what dockerd reads, `args` what nvidia-ctk writes.
ARGUMENT_KEYS = ("args", "runtimeArgs")

#: Lists whose items are `name=value`: a wanted item replaces the one of the same name.
NAMED_LISTS = frozenset({"exec-opts", "storage-opts"})

#: Flags of dockerd whose name in daemon.json differs (dockerd's reference, "daemon configuration file").
FLAG_KEYS = {
    "H": "hosts",
    "host": "hosts",
    "D": "debug",
    "G": "group",
    "b": "bridge",
    "g": "data-root",
    "graph": "data-root",
    "l": "log-level",
    "p": "pidfile",
    "s": "storage-driver",
    "add-runtime": "runtimes",
    "allow-nondistributable-artifacts": "allow-nondistributable-artifacts",
    "authorization-plugin": "authorization-plugins",
    "cdi-spec-dir": "cdi-spec-dirs",
    "default-address-pool": "default-address-pools",
    "default-ulimit": "default-ulimits",
    "dns-opt": "dns-opts",
    "exec-opt": "exec-opts",
    "feature": "features",
    "insecure-registry": "insecure-registries",
    "label": "labels",
    "log-opt": "log-opts",
    "node-generic-resource": "node-generic-resources",
    "registry-mirror": "registry-mirrors",
    "storage-opt": "storage-opts",
}

#: Flags that take no value, so that the word behind them is not theirs.
SWITCHES = frozenset(
    (
        *("D", "debug", "experimental", "icc", "init", "ip-forward", "ip-masq", "ip6tables", "iptables", "ipv6"),
        *("live-restore", "no-new-privileges", "raw-logs", "selinux-enabled", "tls", "tlsverify", "userland-proxy"),
        *("validate", "rootless", "cri-containerd", "bridge-accept-fwmark", "allow-direct-routing"),
    )
)

#: dockerd merges these from both places (moby, daemon/config/config.go, `skipDuplicates`).
MERGED_BY_DOCKERD = frozenset({"runtimes"})

#: Types of options that people get wrong (dockerd's reference). dockerd refuses to start over a wrong one.
TYPES: dict[str, type] = {
    **dict.fromkeys(
        (
            *("debug", "experimental", "icc", "init", "ip-forward", "ip-masq", "ip6tables", "iptables", "ipv6"),
            *("live-restore", "no-new-privileges", "raw-logs", "selinux-enabled", "tls", "tlsverify", "userland-proxy"),
        ),
        bool,
    ),
    **dict.fromkeys(("max-concurrent-downloads", "max-concurrent-uploads", "max-download-attempts", "mtu"), int),
    **dict.fromkeys(("shutdown-timeout", "network-control-plane-mtu"), int),
    **dict.fromkeys(
        (
            *("authorization-plugins", "cdi-spec-dirs", "dns", "dns-opts", "dns-search", "exec-opts", "hosts"),
            *("insecure-registries", "labels", "node-generic-resources", "registry-mirrors", "storage-opts"),
        ),
        list,
    ),
    **dict.fromkeys(("default-ulimits", "features", "log-opts", "runtimes", "builder"), dict),
    **dict.fromkeys(("bip", "bridge", "data-root", "default-runtime", "group", "log-driver", "log-level"), str),
    **dict.fromkeys(("storage-driver", "default-cgroupns-mode", "fixed-cidr", "fixed-cidr-v6", "pidfile"), str),
}
TYPE_NAMES = {bool: "true or false", int: "a whole number", list: "a list", dict: "an object", str: "a text"}


@dataclass(frozen=True)
class Merged:
    """The outcome of a merge.

    before, after: the texts.
    changes: dotted names of what was set or removed, in words.
    settings: what the new text says.
    """

    before: str
    after: str
    changes: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        """The text is another one."""
        return self.before != self.after


def read(data: bytes) -> str:
    """The text in a file's bytes, without the byte order mark (dockerd before 23 refuses one; nothing needs it).

    Raises MalformedError for bytes that are no UTF-8 or hold a NUL, as an editor that saves UTF-16 leaves them.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MalformedError(
            "the file is not UTF-8 text", data[: error.start].decode("utf-8", "replace"), error.start
        ) from None
    if "\0" in text:
        raise MalformedError("the file holds a NUL, it may be UTF-16", text, text.index("\0"))
    return text


def _bare(path: str) -> str:
    """A program's path without a folder that is searched anyway."""
    folder, _slash, name = path.rpartition("/")
    return name if folder in PROGRAM_FOLDERS else path


def _is_runtime(path: Sequence[str]) -> bool:
    return len(path) == 2 and path[0] == "runtimes"


def _satisfied(path: Sequence[str], key: str, value: Any, members: Mapping[str, Any]) -> bool:
    """A runtime already has this setting, under the other spelling of its path or of its arguments' key."""
    if not _is_runtime(path):
        return False
    if key == "path":
        own = members.get("path")
        return isinstance(own, str) and isinstance(value, str) and _bare(own) == _bare(value)
    if key in ARGUMENT_KEYS:
        own = next((members[name] for name in ARGUMENT_KEYS if name in members), None)
        return (own or []) == (value or [])
    return False


def _united(name: str, own: list[Any], wanted: Sequence[Any]) -> list[Any]:
    """A list with the wanted items in it: new ones behind, in lists of name=value in the place of the same name."""
    result = list(own)
    for item in wanted:
        if item in result:
            continue
        if name in NAMED_LISTS and isinstance(item, str) and "=" in item:
            prefix = item.split("=", 1)[0] + "="
            places = [at for at, other in enumerate(result) if isinstance(other, str) and other.startswith(prefix)]
            if places:
                result[places[0]] = item
                for at in reversed(places[1:]):
                    del result[at]
                continue
        result.append(item)
    return result


def _set(text: str, path: list[str], wanted: Mapping[str, Any], replace_lists: bool, changes: list[str]) -> str:
    for key, value in wanted.items():
        here = [*path, str(key)]
        node = _json_text.find(_json_text.parse(text), here)
        parent = _json_text.find(_json_text.parse(text), path)
        members = _json_text.plain(parent) if parent is not None and isinstance(parent.value, dict) else {}
        if parent is not None and _satisfied(path, str(key), value, members):
            continue
        if node is not None and isinstance(value, Mapping) and isinstance(node.value, dict):
            text = _set(text, here, value, replace_lists, changes)
            continue
        if node is not None and isinstance(value, (list, tuple)) and isinstance(node.value, list) and not replace_lists:
            value = _united(str(key), _json_text.plain(node), value)
        if node is not None and _json_text.same(node, value):
            continue
        text = _json_text.put(text, here, value)
        changes.append(f"{'.'.join(here)} set" if node is None else f"{'.'.join(here)} changed")
    return text


def _key_path(root: Node, name: str) -> list[str]:
    """The path that a dotted name means; a key that itself holds dots is found first."""
    if isinstance(root.value, dict) and name in root.value:
        return [name]
    head, dot, tail = name.partition(".")
    while dot:
        child = _json_text.find(root, [head])
        if child is not None:
            return [head, *_key_path(child, tail)]
        more, dot, tail = tail.partition(".")
        head = f"{head}.{more}"
    return [name]


def merge(text: str, wanted: Mapping[str, Any], remove: Sequence[str] = (), replace_lists: bool = False) -> Merged:
    """Merge settings into the text of a daemon.json.

    wanted: settings as they should be; objects are merged, lists get the missing items (or are replaced), the rest is
    replaced. What is right already, under another spelling too, stays as it is written.
    remove: dotted names of settings to take out.
    An empty file counts as `{}`. Raises MalformedError when the text is no JSON object.
    """
    empty = not text.strip()
    current = "{}\n" if empty else text
    root = _json_text.parse(current)
    if not isinstance(root.value, dict):
        raise MalformedError("expected an object in braces", current, root.start)
    changes: list[str] = []
    for name in remove:
        root = _json_text.parse(current)
        path = _key_path(root, name)
        if _json_text.find(root, path) is not None:
            current = _json_text.drop(current, path)
            changes.append(f"{name} removed")
    current = _set(current, [], wanted, replace_lists, changes)
    after = current if changes else text
    settings = _json_text.plain(_json_text.parse(after)) if after.strip() else {}
    return Merged(text, after, changes, settings)


@dataclass(frozen=True)
class WrongType:
    """An option whose value dockerd refuses: its name, the value as written, and what dockerd wants, in words."""

    key: str
    written: str
    wanted: str


def wrong_types(text: str) -> list[WrongType]:
    """The options of a daemon.json whose value has a type that dockerd refuses; none in an empty file."""
    if not text.strip():
        return []
    root = _json_text.parse(text)
    found: list[WrongType] = []
    for key, member in root.value.items() if isinstance(root.value, dict) else []:
        wanted = TYPES.get(key)
        node = member.node
        if wanted is None or node.value is None:
            continue
        number = isinstance(node.value, (int, Decimal)) and not isinstance(node.value, bool)
        if not (number if wanted is int else isinstance(node.value, wanted)):
            found.append(WrongType(key, " ".join(text[node.start : node.end].split()), TYPE_NAMES[wanted]))
    return found


@dataclass(frozen=True)
class Flag:
    """An option of dockerd given on its command line: its key in daemon.json, as written, its value, and the file."""

    key: str
    written: str
    value: str
    file: str


def _assignments(text: str) -> dict[str, str]:
    """The variables of an EnvironmentFile or of an Environment= line."""
    found: dict[str, str] = {}
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith(("#", ";")):
            continue
        key, equals, value = line.partition("=")
        if equals:
            try:
                words = shlex.split(value)
            except ValueError:
                words = [value]
            found[key.strip()] = " ".join(words)
    return found


def unit_files(text: str) -> list[tuple[str, str]]:
    """The files in the output of `systemctl cat`, each with its text; every file follows a line `# /its/path`."""
    files: list[tuple[str, str]] = []
    for line in text.splitlines():
        match = re.match(r"^# (/\S+)$", line)
        if match:
            files.append((match.group(1), ""))
        elif files:
            files[-1] = (files[-1][0], files[-1][1] + line + "\n")
    return files


def environment_files(files: Sequence[tuple[str, str]]) -> list[str]:
    """The paths named by EnvironmentFile= in a unit and its drop-ins."""
    return [
        match.group(1)
        for _file, text in files
        for match in re.finditer(r"^\s*EnvironmentFile\s*=\s*-?(/\S+)", text, re.MULTILINE)
    ]


def flags(files: Sequence[tuple[str, str]], environment: Mapping[str, str] | None = None) -> list[Flag]:
    """The options on dockerd's command line.

    files: unit and drop-ins in systemd's order, as `unit_files` gives them; an empty ExecStart= takes the earlier ones back.
    environment: texts of the environment files by path; the variables in them appear in ExecStart.
    """
    variables: dict[str, tuple[str, str]] = {}
    command, source = "", ""
    for file, raw in files:
        text = re.sub(r"\\\n", " ", raw)
        for line in text.splitlines():
            key, equals, value = (part.strip() for part in line.partition("="))
            if not equals:
                continue
            if key == "ExecStart":
                command, source = value, file
            elif key == "Environment":
                try:
                    words = shlex.split(value)
                except ValueError:
                    words = [value]
                for word in words:
                    variables.update({name: (text_, file) for name, text_ in _assignments(word).items()})
    for path, text in (environment or {}).items():
        variables.update({name: (value, path) for name, value in _assignments(text).items()})
    words_from: list[tuple[str, str]] = []
    for word in command.split():
        match = re.match(r"^\$\{?(\w+)\}?$", word)
        if match:
            value, file = variables.get(match.group(1), ("", source))
            words_from += [(part, file) for part in value.split()]
        else:
            words_from.append((re.sub(r"[\"']", "", word), source))
    return _flags_of(words_from)


def _flags_of(words: Sequence[tuple[str, str]]) -> list[Flag]:
    found: list[Flag] = []
    at = 1
    while at < len(words):
        word, file = words[at]
        at += 1
        match = re.match(r"^(--?)([A-Za-z][\w-]*)(?:=(.*))?$", word)
        if not match:
            continue
        dashes, name, value = match.groups()
        if dashes == "-" and len(name) > 1 and value is None:
            name, value = name[0], name[1:]
        written = dashes + name
        if value is None:
            value = ""
            if name not in SWITCHES and at < len(words) and not words[at][0].startswith("-"):
                value = words[at][0]
                at += 1
        found.append(Flag(FLAG_KEYS.get(name, name), written, value, file))
    return found


def conflicts(settings: Mapping[str, Any], given: Sequence[Flag]) -> list[Flag]:
    """The flags that name an option which is in the settings too: dockerd refuses to start over each."""
    return [flag for flag in given if flag.key in settings and flag.key not in MERGED_BY_DOCKERD]
