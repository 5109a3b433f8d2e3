# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""The first real error of a kernel-module build, from what make, the compiler, modpost and DKMS print.

A build that fails prints hundreds of lines, of which one is the cause and the rest are consequences. Pure functions over
texts; they run on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, Check

DISK = "disk"
MEMORY = "memory"
COMPILER_ABSENT = "compiler absent"
HEADERS = "headers"
COMPILER_MISMATCH = "compiler mismatch"
CONFTEST = "conftest"
LICENCE = "licence"
API = "api change"
EXCLUDED = "excluded"
SIGNING = "signing"
LOAD = "load"
OTHER = "other"

#: Kinds that hide all others wherever they stand: without room, memory, compiler or headers every later line is a consequence.
#: Of the rest the earliest line counts.
FIRST = (DISK, MEMORY, COMPILER_ABSENT, HEADERS, COMPILER_MISMATCH, EXCLUDED)

#: Kinds that count only when nothing else does: sign-file's complaints also stand in logs of builds that went well.
LAST = (SIGNING, LOAD, OTHER)

#: How much of a line is kept: compilers print commands of several thousand characters.
WIDTH = 300

#: Lines before and after the error that are kept as evidence.
BEFORE, AFTER = 2, 4

_Q = "['\"`‘’]"

#: Headers of the kernel that every release has; without them the tree is absent or unprepared. Any other missing header was
#: moved or removed by a kernel release.
_EVER = r"(?:linux/(?:kconfig|version|kernel|module|init|types|compiler-version|compiler_types)|asm/\S+|generated/\S+)\.h"

#: (kind, pattern) in the order in which a line is tried.
#: Sources of the wordings: GNU make 4.3, GCC 10 to 14, clang 14, Linux 5.10 to 6.12 (Makefile, scripts/Makefile.*,
#: scripts/mod/modpost.c, scripts/sign-file.c), dkms 2.8 to 3.2, Kbuild and conftest.sh of NVIDIA's modules 470 to 580.
PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (DISK, r"No space left on device|Disk quota exceeded"),
        (
            MEMORY,
            r"Killed signal terminated program|virtual memory exhausted|out of memory allocating|Cannot allocate memory"
            r"|\*\*\* \[.*\] (?:Killed|Error 137)\b|(?i:Out of memory: Killed process)",
        ),
        (
            COMPILER_ABSENT,
            r"(?:^|[\s:/'])(?:\S*-)?(?:gcc|cc|clang|ld|ld\.lld|make|as)(?:-[\d.]+)?'?: (?:command not found|not found)\b"
            r"|(?:^|\s)(?:make(?:\[\d+\])?|/bin/sh): (?:\d+: )?\S*(?:gcc|cc|clang)(?:-[\d.]+)?: No such file or directory"
            r"|[Uu]nable to find the development tool|Failed CC sanity check|cannot execute 'cc1'"
            r"|unable to find (?:a )?(?:suitable )?(?:C )?compiler",
        ),
        (
            HEADERS,
            r"[Kk]ernel headers for kernel \S+ cannot be found|[Uu]nable to find the kernel source tree"
            r"|The kernel header file '[^']*' does not exist|Kernel configuration is invalid"
            r"|include/(?:generated/autoconf\.h|config/auto\.conf) (?:or|are|is)\b.*missing"
            r"|The Module\.symvers file is missing|Module\.symvers.* (?:is missing|does not exist)"
            r"|\*\*\* \S*/(?:build|source|linux-headers\S*|kernels/\S+): No such file or directory"
            r"|No rule to make target [`'](?:modules|oldconfig)'"
            rf"|fatal error: {_EVER}: No such file or directory"
            r"|scripts/(?:basic/fixdep|mod/modpost|genksyms/genksyms): (?:not found|No such file|Exec format error)"
            r"|tools/(?:objtool/objtool|bpf/resolve_btfids/resolve_btfids): (?:not found|No such file|Exec format error)"
            r"|(?:asm-offsets|bounds)\.[hs]: No such file",
        ),
        (
            COMPILER_MISMATCH,
            r"unrecognized command.line option|unknown argument: '-|error: unrecognized argument (?:in|to) (?:option|'-)"
            r"|incompatible gcc/plugin versions|cannot load plugin|was built with different (?:gcc|compiler)"
            r"|(?:[Cc]ompiler|CC) version check failed|does not exactly match the current compiler"
            r"|error: (?:sorry, this file requires|Sorry, your (?:version of GCC|compiler) is too old)"
            r"|compiler lacks (?:asm-goto|retpoline) support|\bis too old\. (?:Clang|GCC)|Compiler '?\S+'? is too old",
        ),
        (EXCLUDED, r"BUILD_EXCLUSIVE directive which does not match"),
        (CONFTEST, r"#error .*conftest failed!|conftest\.(?:sh|h): .*(?:error|[Nn]o such file|[Nn]ot found|[Pp]ermission)"),
        (LICENCE, r"modpost: GPL-incompatible module \S+ uses GPL-only symbol|incompatible with GPL-only|GPL-only symbol '"),
        (
            API,
            r"error: too (?:few|many) arguments to (?:function|macro)"
            r"|error: (?:implicit declaration of function|(?:call to )?undeclared (?:function|identifier))"
            rf"|error: (?:struct |union )?.*has no member named|error: no member named|error: {_Q}\w+{_Q} undeclared"
            r"|error: (?:unknown type name|conflicting types for|redefinition of|static declaration of|storage size of)"
            r"|error: (?:incompatible (?:pointer|integer|function|type)|passing argument|initialization of|assignment to"
            r"|initializing|returning|dereferencing pointer to incomplete|invalid use of|variable .* has initializer but"
            r"|field .* has incomplete|expected |no previous prototype|macro \S+ requires|macro \S+ passed"
            r"|use of undeclared|called object|void value not ignored|cast |invalid application|subscripted value)"
            r"|fatal error: \S+\.h: No such file or directory"
            rf"|ERROR: modpost: {_Q}?\w+{_Q}? \[\S+\] undefined!",
        ),
        (SIGNING, r"sign-file: .*|At main\.c:\d+|SSL error:|[Ff]ailed to sign|Signing (?:of )?.* failed|kmodsign: "),
        (LOAD, r"Unable to load the kernel module|could not insert '?\S+'?: "),
        (
            OTHER,
            r"\berror: |(?:^|\s)ERROR: |(?:make(?:\[\d+\])?: |^)\*\*\* (?!\[)|Error! |FATAL: "
            r"|cannot find -l|: command not found|: Permission denied",
        ),
    )
)

#: Lines that only repeat that something failed before.
CONSEQUENCE = re.compile(
    r"\(ignored\)|\*\*\* \[.*\] Error (?!137\b)\d+|\*\*\* Waiting for unfinished jobs|\*\*\* Deleting file"
    r"|warnings being treated as errors|compilation terminated|[Bb]ad (?:return|exit) status|Consult /?\S* for more"
    r"|An error occurred while performing the step|Failed to run `|Installation has failed|See \S*/nvidia-installer\.log"
    r"|Unable to open 'kernel/dkms\.conf'|^\s*WARNING: |recipe for target"
    r"|One or more modules failed|Refer to previous errors|autoinstall on .* failed for"
    r"|Build of \S+ failed for:|: warning: |: note: "
)

#: Worth a closer look at all: most of a log is not.
CANDIDATE = re.compile(
    r"(?i)error|fatal|\*\*\*|no such|not found|no space|quota|killed|memory|conftest|missing|invalid|sign|cannot|unable"
    r"|undefined|exclusive|too old|denied|does not exist|failed|main\.c"
)


@dataclass(frozen=True)
class Failure:
    """Why a module did not build.

    kind: one of the kinds above.
    error: the line that says it, without folders in front of file names; empty when no line does.
    number: its number in the log, from 1; 0 without one.
    symbol: the kernel function, type, member or header that the error is about; empty when it names none.
    lines: the log around it.
    """

    kind: str
    error: str = ""
    number: int = 0
    symbol: str = ""
    lines: list[str] = field(default_factory=list)


def classify(line: str) -> str | None:
    """The kind of error that a line of a build log names; None for one that names none or only repeats another."""
    if len(line) > 4000 or not CANDIDATE.search(line) or CONSEQUENCE.search(line):
        return None
    return next((kind for kind, pattern in PATTERNS if pattern.search(line)), None)


def tidy(line: str) -> str:
    """A line in one piece, without the folders in front of the file that an error is in, and bounded."""
    return re.sub(r"(?:^|(?<=\s))/\S*/(?=[\w.+-]+:\d)", "", " ".join(line.split()))[:WIDTH]


def symbol_of(line: str) -> str:
    """The name that a compiler's or modpost's message is about; empty when it quotes none."""
    header = re.search(r"fatal error: (\S+\.h): No such file", line)
    if header:
        return header.group(1)
    member = re.search(rf"has no member named {_Q}(\w+)", line)
    if member:
        return member.group(1)
    conftest = re.search(r"#error (\w+)(?:\(\))? conftest failed", line)
    if conftest:
        return conftest.group(1)
    quoted = re.search(
        rf"(?:function|symbol|type name|types for|declaration of|undeclared identifier|modpost:|redefinition of|error:) "
        rf"{_Q}(?:struct |union )?(\w+)",
        line,
    )
    return quoted.group(1) if quoted else ""


def read(log: str) -> Failure | None:
    """The first real error of a build's log or output; None when there is no sign of one.

    A cause that hides all others (no room, no memory, no compiler, no headers) counts wherever it stands.
    """
    lines = log.splitlines()
    found: dict[str, int] = {}
    for index, line in enumerate(lines):
        kind = classify(line)
        if kind is not None:
            found.setdefault(kind, index)
    if not found:
        return None
    kind = min(found, key=lambda name: (_rank(name), found[name]))
    index = found[kind]
    around = [line.rstrip()[:WIDTH] for line in lines[max(0, index - BEFORE) : index + AFTER + 1] if line.strip()]
    return Failure(kind, tidy(lines[index]), index + 1, symbol_of(lines[index]), around)


def _rank(kind: str) -> int:
    """The lower, the sooner a kind counts; kinds of one rank by their place in the log."""
    if kind in FIRST:
        return FIRST.index(kind)
    return len(FIRST) + (1 + LAST.index(kind) if kind in LAST else 0)


@dataclass(frozen=True)
class Compilers:
    """The compiler that built a kernel and the one that builds modules on this node, as each names itself; None: unknown."""

    kernel: str | None = None
    found: str | None = None

    @property
    def differ(self) -> bool:
        """Both are known, and their major versions differ."""
        kernel, found = major_version(self.kernel), major_version(self.found)
        return kernel is not None and found is not None and kernel != found


def compilers_of(log: str) -> Compilers:
    """The compilers that a build's log compares, as NVIDIA's Kbuild prints where their names differ."""
    theirs = re.search(r"The kernel was built by:\s*(\S.*)", log)
    ours = re.search(r"You are using:\s*(\S.*)", log)
    return Compilers(theirs.group(1).strip() if theirs else None, ours.group(1).strip() if ours else None)


def major_version(compiler: str | None) -> int | None:
    """The major version in a compiler's own words: `gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0` → 12.

    The version stands at the end, or behind the package's in brackets; clang says `clang version 16.0.6 (…)`.
    """
    bare = re.sub(r"\([^()]*\)", " ", compiler or "")
    numbers = re.findall(r"(?<![\w.-])(\d+)\.\d+(?:\.\d+)*", bare)
    return int(numbers[-1]) if numbers else None


def config_compiler(config: str) -> str | None:
    """The compiler in a kernel's .config (CONFIG_CC_VERSION_TEXT, since Linux 4.18)."""
    match = re.search(r'^CONFIG_CC_VERSION_TEXT="(.*)"$', config, re.MULTILINE)
    return match.group(1).strip() if match and match.group(1).strip() else None


def proc_compiler(version: str) -> str | None:
    """The compiler in /proc/version: `Linux version 6.1.0-42-amd64 (maintainer) (gcc-12 (Debian …) 12.2.0, GNU ld …) …`."""
    match = re.search(r"\(((?:[\w.-]*gcc|[\w.-]*clang)[^,]*?(?:\([^()]*\))?[^,()]*)(?:, |\) #)", version)
    return match.group(1).strip() if match else None


#: kind → (check, what was found, what was expected, what to do); `{what}` is the module with its version, `{error}` the line.
VERDICTS: dict[str, tuple[str, str, str, str]] = {
    DISK: (
        "node.disk",
        "a full disk while building {what}: {error}",
        "room for the build",
        "Make room under /var and /tmp (old kernels, package caches, container images) and run again.",
    ),
    MEMORY: (
        "driver.dkms",
        "the compiler ended for want of memory while building {what}: {error}",
        "about 1 GB of free memory for each job of the build",
        "Stop what uses the memory, or build with fewer jobs, and run again.",
    ),
    COMPILER_ABSENT: (
        "driver.dkms",
        "no compiler for {what}: {error}",
        "the compiler that built kernel {kernel}{theirs}",
        "Install it (and make), and run again.",
    ),
    HEADERS: (
        "driver.headers",
        "headers of kernel {kernel} that are absent or incomplete: {error}",
        "the headers of exactly that kernel, prepared for building modules",
        "Install or reinstall the kernel's header package, or update the kernel and reboot into it.",
    ),
    COMPILER_MISMATCH: (
        "driver.dkms",
        "another compiler than kernel {kernel}'s{ours}: {error}",
        "the compiler that built the kernel{theirs}",
        "Install the compiler that built the kernel (see /proc/version), and run again.",
    ),
    EXCLUDED: (
        "driver.dkms",
        "{what}, which its packagers exclude from kernel {kernel}: {error}",
        "a module meant for that kernel",
        "Choose a driver release for this kernel, or boot a kernel that this release supports.",
    ),
    CONFTEST: (
        "driver.dkms",
        "{what}, whose probing of kernel {kernel} failed: {error}",
        "headers and a compiler with which the driver's test programs compile",
        "Reinstall the kernel's headers and the compiler that built it; if both fit, choose a later driver release.",
    ),
    LICENCE: (
        "driver.dkms",
        "{what} uses what kernel {kernel} gives to GPL modules only: {error}",
        "a driver release that does without it",
        "Choose a later release of the branch, or the open modules where the GPUs allow them.",
    ),
    API: (
        "driver.dkms",
        "{what} does not compile for kernel {kernel}: {error}",
        "a driver release that knows this kernel",
        "Choose a branch whose modules compile for kernel {kernel}, or boot a kernel that {what} supports.",
    ),
    SIGNING: (
        "driver.dkms",
        "{what} was built but not signed: {error}",
        "a key and a certificate that sign-file accepts",
        "Mend or remove the files that mok_signing_key and mok_certificate in /etc/dkms/framework.conf name, and run again.",
    ),
    LOAD: (
        "driver.module",
        "{what} was built and the kernel refused to load it: {error}",
        "a module that kernel {kernel} loads",
        "Look at `dmesg` on the node: a key error means Secure Boot, a format error a module of another kernel.",
    ),
    OTHER: (
        "driver.dkms",
        "{what} does not compile for kernel {kernel}: {error}",
        "a module built by DKMS",
        "Choose a branch whose modules compile for kernel {kernel}, or boot a kernel that {what} supports.",
    ),
}


def verdict(
    failure: Failure | None,
    what: str,
    kernel: str,
    compilers: Compilers | None = None,
    *,
    evidence: list[str] | None = None,
    subject: str = "",
) -> Check:
    """The failing check for a module that did not build.

    what: the module as people say it, such as `nvidia 580.95.05`. kernel: the release it was built for.
    evidence: lines to keep besides those around the error.
    """
    failure = failure or Failure(OTHER)
    compilers = compilers or Compilers()
    kind = failure.kind
    if kind in (CONFTEST, API, OTHER) and compilers.differ and _caused_by_compiler(failure):
        kind = COMPILER_MISMATCH
    identifier, found, expected, remedy = VERDICTS[kind]
    values = {
        "what": what,
        "kernel": kernel,
        "error": failure.error or "see the evidence",
        "theirs": f": {compilers.kernel}" if compilers.kernel else "",
        "ours": f" ({compilers.found})" if compilers.found else "",
    }
    lines = [*failure.lines, *(evidence or [])]
    return Check(identifier, FAIL, found.format(**values), expected.format(**values), remedy.format(**values), lines, subject)


def _caused_by_compiler(failure: Failure) -> bool:
    """A failed conftest or a complaint of the compiler about itself, not about a name of the kernel."""
    return failure.kind == CONFTEST or (failure.kind == OTHER and failure.error.startswith("cc1"))
