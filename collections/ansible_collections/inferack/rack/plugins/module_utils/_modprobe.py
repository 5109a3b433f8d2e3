# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""What modprobe's configuration does to nouveau: blacklisted, modeset off, and the mistakes that make it do nothing.

Pure functions over the texts of the files. Source of the rules: modprobe.d(5) (only names ending in .conf are read, a file in
/etc hides one of the same name in /run and /usr/lib), the kernel's admin guide for `module.parameter=` and
`modprobe.blacklist=`, dracut.cmdline(7) for `rd.driver.blacklist=`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

#: Folders modprobe reads, the strongest first.
FOLDERS = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")

#: Parameters of nouveau, from `modinfo nouveau` of Linux 6.1 and 6.12.
NOUVEAU_PARAMETERS = frozenset(
    (
        *("atomic", "config", "debug", "duallink", "hdmimhz", "ignorelid", "modeset", "mst", "noaccel", "nofbaccel"),
        *("runpm", "svm", "tv_disable", "tv_norm", "vram_pushbuf"),
    )
)


@dataclass(frozen=True)
class Nouveau:
    """nouveau in a set of modprobe files.

    blacklisted: udev does not load it by itself (`blacklist`, `install … false`, `alias … off`).
    modeset_disabled: `options nouveau modeset=0` is in force.
    problems: lines that were meant for nouveau and do nothing, or the opposite.
    """

    blacklisted: bool = False
    modeset_disabled: bool = False
    problems: list[str] = field(default_factory=list)


def effective(files: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split files (path to text) into those modprobe reads, in its order, and those it does not.

    Of two files with the same name the one in the stronger folder counts; the other is neither read nor a mistake.
    """
    ranked = sorted(files, key=lambda path: (PurePosixPath(path).name, _rank(path), path))
    read: dict[str, str] = {}
    ignored: dict[str, str] = {}
    seen: set[str] = set()
    for path in ranked:
        name = PurePosixPath(path).name
        if not name.endswith(".conf"):
            ignored[path] = files[path]
        elif name not in seen:
            seen.add(name)
            read[path] = files[path]
    return read, ignored


def _rank(path: str) -> int:
    folder = str(PurePosixPath(path).parent)
    return FOLDERS.index(folder) if folder in FOLDERS else len(FOLDERS)


def lines(text: str) -> list[list[str]]:
    """The words of each effective line: continued lines joined, comments and blanks left out."""
    joined = re.sub(r"\\\r?\n", " ", text)
    return [line.split() for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def _like_nouveau(word: str) -> bool:
    """A misspelling of nouveau, such as noveau or nouvaeu."""
    word = word.lower()
    return word != "nouveau" and difflib.SequenceMatcher(None, word, "nouveau").ratio() >= 0.8


def _option(path: str, words: list[str], state: dict[str, bool], problems: list[str]) -> None:
    """Take `options nouveau …` into the state; modprobe hands all of them on and the kernel keeps the last."""
    for word in words:
        key, _equals, value = word.partition("=")
        if key == "modeset":
            state["modeset"] = value == "0"
            if value != "0":
                problems.append(
                    f"{path}: 'options nouveau {word}' turns modeset on or leaves it to nouveau; it must be modeset=0"
                )
        elif key not in NOUVEAU_PARAMETERS:
            near = difflib.get_close_matches(key, NOUVEAU_PARAMETERS, 1)
            hint = f"; was {near[0]} meant?" if near else ""
            problems.append(f"{path}: nouveau has no parameter {key!r} ('options nouveau {word}' does nothing){hint}")


def nouveau(files: Mapping[str, str], cmdline: str = "") -> Nouveau:
    """What the files (path to text) and the kernel's command line do to nouveau."""
    read, ignored = effective(files)
    problems: list[str] = []
    state = {"blacklisted": False, "modeset": False}
    for path, text in read.items():
        for words in lines(text):
            verb, rest = words[0].lower(), words[1:]
            target = rest[0] if rest else ""
            if verb in ("blacklist", "options", "install", "alias") and _like_nouveau(target):
                problems.append(f"{path}: '{' '.join(words)}' names {target!r}; the module is called nouveau")
            elif target != "nouveau":
                if "nouveau" in words and _like_verb(verb):
                    problems.append(f"{path}: '{' '.join(words)}' is not understood by modprobe")
            elif words[0] != verb:
                problems.append(f"{path}: '{' '.join(words)}' must be written in lower case")
            elif verb == "blacklist":
                state["blacklisted"] = True
                if len(rest) > 1:
                    problems.append(f"{path}: modprobe ignores what follows the module's name in '{' '.join(words)}'")
            elif verb == "options":
                _option(path, rest[1:], state, problems)
            elif (verb == "install" and rest[-1].rsplit("/", 1)[-1] in ("false", "true", ":")) or (
                verb == "alias" and rest[1:] == ["off"]
            ):
                state["blacklisted"] = True
            elif verb not in ("softdep", "weakdep", "remove", "install", "alias"):
                problems.append(f"{path}: '{' '.join(words)}' is not understood by modprobe")
    for path, text in ignored.items():
        if any("nouveau" in words for words in lines(text)):
            problems.append(f"{path}: modprobe reads only files whose names end in .conf")
    for word in cmdline.split():
        key, _equals, value = word.partition("=")
        if key in ("modprobe.blacklist", "module_blacklist") and "nouveau" in value.split(","):
            state["blacklisted"] = True
        elif word == "nouveau.modeset=0":
            state["modeset"] = True
        elif key == "nouveau.modeset":
            state["modeset"] = False
            problems.append(f"kernel command line: {word} overrides modprobe's options; it must be nouveau.modeset=0")
    return Nouveau(state["blacklisted"], state["modeset"], problems)


def _like_verb(verb: str) -> bool:
    """A misspelling of a command that people write about nouveau, such as blacklsit, or `blacklist=`."""
    known = ("blacklist", "options", "install", "alias")
    return verb not in (*known, "softdep", "weakdep", "remove") and bool(difflib.get_close_matches(verb, known, 1, 0.7))
