# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Making DKMS do what is wanted, kernel by kernel, and leaving nothing half done when it cannot.

Runs on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.inferack.rack.plugins.module_utils import _dkms, _dkms_log, _run
from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, PASS, SKIP, Check
from ansible_collections.inferack.rack.plugins.module_utils._dkms_status import Row, parse_status

#: How long DKMS may take for what is no build, in seconds: `status` reads every dkms.conf, `install` runs depmod.
QUICK = 300.0

Runner = Callable[[Sequence[str], float], _run.Output]


class DkmsError(Exception):
    """DKMS cannot be asked at all; the text says why."""


def package_of(path: Path) -> str | None:
    """The package that owns a file or folder; None where no package does or no database can be asked."""
    for command in (["dpkg", "-S", str(path)], ["rpm", "-qf", "--qf", "%{NAME}\\n", str(path)]):
        answer = _run.run(command, 60)
        if answer.ok and answer.out.strip():
            return answer.out.split(":")[0].split("\n")[0].strip()
    return None


@dataclass(frozen=True)
class Dkms:
    """DKMS on a node.

    command: its program. machine: the architecture it builds for, as `uname -m` says. running: the running kernel's release.
    timeout: longest time one build may take, in seconds. jobs: of make at once; None: as many as there are processors.
    run: runs a command; owner: finds the package that owns a path.
    """

    command: str = "dkms"
    trees: _dkms.Trees = field(default_factory=_dkms.Trees)
    machine: str = field(default_factory=lambda: os.uname().machine)
    running: str = field(default_factory=lambda: os.uname().release)
    timeout: float = 1800.0
    jobs: int | None = None
    run: Runner = _run.run
    owner: Callable[[Path], str | None] = package_of

    def status(self) -> list[Row]:
        """What DKMS knows. Raises DkmsError when it cannot be asked; a broken tree does not keep it from the others."""
        answer = self.run([self.command, "status"], QUICK)
        if answer.problem == "missing":
            raise DkmsError(f"{self.command} is not installed")
        if answer.rc is None:
            raise DkmsError(f"`{self.command} status` gave no answer: {answer.problem}")
        return parse_status(answer.out + "\n" + answer.err)

    def call(self, step: str, name: str, version: str, kernel: str = "", *extra: str) -> _run.Output:
        """One step of DKMS, such as `build`; for one kernel, or for the module as a whole without one."""
        where = ["-k", kernel, "-a", self.machine] if kernel else []
        jobs = ["-j", str(self.jobs)] if self.jobs and step == "build" else []
        line = [self.command, step, "-m", name, "-v", version, *where, *jobs, *extra]
        return self.run(line, self.timeout if step == "build" else QUICK)


@dataclass
class Outcome:
    """What became of one kernel. before, after: DKMS's states; steps: what was done; check: the verdict."""

    kernel: str
    before: str
    after: str
    check: Check
    steps: list[str] = field(default_factory=list)
    seconds: float = 0.0
    failure: dict[str, object] | None = None

    @property
    def changed(self) -> bool:
        """Something was done."""
        return bool(self.steps)


def state_of(rows: Sequence[Row], name: str, version: str, kernel: str) -> str:
    """A kernel's state in one word: that of its row, else `added` or `absent`."""
    row = _dkms.row_for(rows, name, version, kernel)
    if row is not None:
        return row.state
    return "added" if _dkms.registered(rows, name, version) else "absent"


def subject_of(name: str, version: str, kernel: str) -> str:
    """What a check is about."""
    return f"{name}/{version} for kernel {kernel}"


def compilers(dkms: Dkms, kernel: str) -> _dkms_log.Compilers:
    """The compiler that built a kernel, from its configuration or its own words, and the one that DKMS would find here."""
    config, proc = "", ""
    with contextlib.suppress(OSError):
        config = (dkms.trees.headers(kernel) / ".config").read_text(encoding="utf-8", errors="replace")
    with contextlib.suppress(OSError):
        proc = Path("/proc/version").read_text(encoding="utf-8", errors="replace") if kernel == dkms.running else ""
    theirs = _dkms_log.config_compiler(config) or _dkms_log.proc_compiler(proc)
    for tool in dict.fromkeys([*(theirs or "").split()[:1], "cc", "gcc"]):
        answer = dkms.run([tool, "--version"], 30)
        if answer.ok and answer.out.strip():
            return _dkms_log.Compilers(theirs, answer.out.splitlines()[0].strip())
    return _dkms_log.Compilers(theirs, None)


def explain(
    dkms: Dkms, output: _run.Output, step: str, name: str, version: str, kernel: str
) -> tuple[Check, dict[str, object]]:
    """The verdict on a step that failed, and what was found out about it: kind, error, log, compilers, headers."""
    said = output.out + "\n" + output.err
    path = _dkms.log_path(said, dkms.trees, name, version, kernel, dkms.machine) if step == "build" else None
    text = ""
    if path is not None:
        with contextlib.suppress(OSError):
            text = path.read_text(encoding="utf-8", errors="replace")
    # What DKMS itself refuses (headers, BUILD_EXCLUSIVE) it says before there is a log; a log beside it is an older build's.
    own = _dkms_log.read(said)
    early = own is not None and own.kind in (_dkms_log.HEADERS, _dkms_log.EXCLUDED, _dkms_log.DISK, _dkms_log.COMPILER_ABSENT)
    failure = own if early else (_dkms_log.read(text) or own)
    node, told = compilers(dkms, kernel), _dkms_log.compilers_of(text)
    both = _dkms_log.Compilers(told.kernel or node.kernel, told.found or node.found)
    headers = _dkms.header_facts(dkms.trees, kernel)
    tail = [line.rstrip()[: _dkms_log.WIDTH] for line in said.splitlines() if line.strip()][-6:]
    evidence = [
        f"kernel's compiler: {both.kernel or 'unknown'}",
        f"compiler found: {both.found or 'none'}",
        f"headers: {headers['path'] or 'none'}{'' if headers['complete'] else ', incomplete'}",
        *([f"log: {path}"] if path else []),
        *(f"dkms: {line}" for line in tail),
    ]
    subject = subject_of(name, version, kernel)
    if output.rc is None:
        limit = f"within {dkms.timeout:g} s" if output.problem == "timeout" else "at all"
        found = f"`dkms {step}` did not end {limit} ({output.problem})"
        remedy = "Look at what keeps the node busy, or allow more time, and run again."
        check = Check("driver.dkms", FAIL, found, f"{name} {version} for kernel {kernel}", remedy, evidence, subject)
    elif step == "build" or early:
        check = _dkms_log.verdict(failure, f"{name} {version}", kernel, both, evidence=evidence, subject=subject)
    else:
        error = next((line for line in tail if line.startswith("Error! ")), tail[-1] if tail else f"exit status {output.rc}")
        found = f"`dkms {step}` failed: {error.removeprefix('Error! ')}"
        remedy = "Read the evidence, mend it on the node, and run again."
        check = Check("driver.dkms", FAIL, found, f"{name} {version} for kernel {kernel}", remedy, evidence, subject)
    return check, {
        "step": step,
        "kind": failure.kind if failure else _dkms_log.OTHER,
        "error": failure.error if failure else "",
        "symbol": failure.symbol if failure else "",
        "line": failure.number if failure else 0,
        "log": str(path) if path else None,
        "compiler": {"kernel": both.kernel, "found": both.found},
        "headers": headers,
    }


def passed(name: str, version: str, kernel: str, state: str, evidence: Sequence[str] = ()) -> Check:
    """The verdict on a kernel that is as wanted."""
    return Check(
        "driver.dkms", PASS, f"{name}/{version} {state}", evidence=list(evidence), subject=subject_of(name, version, kernel)
    )


def ensure(dkms: Dkms, name: str, version: str, kernel: str, wanted: str, *, check_mode: bool = False) -> Outcome:
    """Have a module built or installed for a kernel.

    A step that fails is undone: no half-written build stays, and a registration that this call made goes again unless a
    package owns the source, since the package then also removes it.
    """
    rows = dkms.status()
    row = _dkms.row_for(rows, name, version, kernel)
    before = state_of(rows, name, version, kernel)
    added = _dkms.registered(rows, name, version)
    due = _dkms.steps(row, added, wanted, _dkms.really_differs(row, dkms.trees))
    if not due:
        return Outcome(kernel, before, before, passed(name, version, kernel, before, [str(row)] if row else []))
    refused = _refusal(dkms, name, version, kernel, due)
    if refused is not None:
        return Outcome(kernel, before, before, refused)
    if check_mode:
        found = f"{name}/{version} {before}; would {', '.join(due)}"
        skipped = Check(
            "driver.dkms", SKIP, found, wanted, "Run without check mode.", subject=subject_of(name, version, kernel)
        )
        return Outcome(kernel, before, wanted, skipped, due)
    outcome = Outcome(kernel, before, before, Check("driver.dkms", SKIP))
    if row is None:
        remove_half(dkms, name, version, kernel)
    for step in due:
        if step == "add" and outcome.steps and _dkms.registered(dkms.status(), name, version):
            continue
        output = _step(dkms, step, name, version, kernel)
        outcome.steps.append(step)
        outcome.seconds = round(outcome.seconds + output.seconds, 3)
        if not output.ok:
            outcome.check, outcome.failure = explain(dkms, output, step, name, version, kernel)
            undo(dkms, name, version, kernel, added_here=not added)
            outcome.after = state_of(dkms.status(), name, version, kernel)
            return outcome
    rows = dkms.status()
    row = _dkms.row_for(rows, name, version, kernel)
    outcome.after = state_of(rows, name, version, kernel)
    enough = _dkms.INSTALLED_STATES if wanted == _dkms.INSTALLED else _dkms.BUILT_STATES
    if outcome.after in enough and not (row and row.missing):
        outcome.check = passed(name, version, kernel, outcome.after, [str(row)])
    else:
        # DKMS ends with 0 when it leaves a module out that it finds older than the kernel's own.
        found = f"{row or outcome.after} although DKMS reported success"
        remedy = "Look for another module of that name in the kernel's folder, and for its version (modinfo)."
        outcome.check = Check("driver.dkms", FAIL, found, wanted, remedy, subject=subject_of(name, version, kernel))
    return outcome


def _step(dkms: Dkms, step: str, name: str, version: str, kernel: str) -> _run.Output:
    if step == "add":
        return dkms.call("add", name, version)
    if step == "reinstall":
        return dkms.call("install", name, version, kernel, "--force")
    if step == "remove":
        return remove_kernel(dkms, name, version, kernel)
    return dkms.call(step, name, version, kernel)


def no_kernel(dkms: Dkms, name: str, version: str, kernel: str) -> Check:
    """The verdict on a kernel that the node does not have."""
    folders = sorted(path.name for path in dkms.trees.modules.glob("*") if path.is_dir())
    remedy = f"Name an installed kernel ({', '.join(folders) or 'there is none'}), or install that one."
    found = f"no kernel {kernel} on this node"
    return Check("driver.dkms", FAIL, found, "an installed kernel", remedy, subject=subject_of(name, version, kernel))


def _refusal(dkms: Dkms, name: str, version: str, kernel: str, due: Sequence[str]) -> Check | None:
    """What makes the attempt pointless before anything is touched."""
    subject = subject_of(name, version, kernel)
    if not (dkms.trees.modules / kernel).is_dir():
        return no_kernel(dkms, name, version, kernel)
    if "add" in due and not (dkms.trees.source(name, version) / "dkms.conf").is_file():
        remedy = "Install the package that brings the source, or run NVIDIA's installer with --dkms."
        found = f"no {dkms.trees.source(name, version)}/dkms.conf"
        return Check("driver.dkms", FAIL, found, f"the source of {name} {version}", remedy, subject=subject)
    problem = _dkms.header_problem(_dkms.header_facts(dkms.trees, kernel), kernel) if "build" in due else ""
    if problem:
        remedy = "Install the kernel's header package, or update the kernel and reboot into it."
        return Check("driver.headers", FAIL, problem, f"headers of kernel {kernel}", remedy, subject=subject)
    return None


def remove_half(dkms: Dkms, name: str, version: str, kernel: str) -> None:
    """Remove a build that is not whole: DKMS lists none, but takes its folder for a finished one and builds no other."""
    shutil.rmtree(dkms.trees.version(name, version) / kernel / dkms.machine, ignore_errors=True)
    with contextlib.suppress(OSError):
        (dkms.trees.version(name, version) / kernel).rmdir()


def undo(dkms: Dkms, name: str, version: str, kernel: str, *, added_here: bool) -> None:
    """Remove what a failed step left: a build without all its modules, and a registration that nothing uses."""
    rows = dkms.status()
    row = _dkms.row_for(rows, name, version, kernel)
    if row is None or row.missing:
        remove_half(dkms, name, version, kernel)
    if not added_here or any(other.name == name and other.version == version and other.kernel for other in dkms.status()):
        return
    if dkms.owner(dkms.trees.source(name, version)) is None:
        dkms.call("remove", name, version, "", "--all")


def remove_kernel(dkms: Dkms, name: str, version: str, kernel: str) -> _run.Output:
    """Take a module away for one kernel. DKMS deregisters a version with its last kernel; a package's stays registered."""
    output = dkms.call("remove", name, version, kernel)
    if output.ok and not _dkms.registered(dkms.status(), name, version):
        source = dkms.trees.source(name, version)
        if (source / "dkms.conf").is_file() and dkms.owner(source) is not None:
            dkms.call("add", name, version)
    return output


def absent(dkms: Dkms, name: str, version: str, kernels: Sequence[str], *, check_mode: bool = False) -> list[Outcome]:
    """Take a module away: for the kernels named, or as a whole without any. A tree whose source is gone goes too."""
    rows = [row for row in dkms.status() if row.name == name and row.version == version]
    if not kernels:
        return [_absent_whole(dkms, name, version, rows, check_mode)]
    outcomes = []
    for kernel in kernels:
        before = state_of(rows, name, version, kernel)
        if before not in _dkms.BUILT_STATES:
            outcomes.append(Outcome(kernel, before, before, passed(name, version, kernel, "absent")))
        elif check_mode:
            found = f"{name}/{version} {before}; would remove"
            check = Check(
                "driver.dkms", SKIP, found, "absent", "Run without check mode.", subject=subject_of(name, version, kernel)
            )
            outcomes.append(Outcome(kernel, before, "absent", check, ["remove"]))
        else:
            output = remove_kernel(dkms, name, version, kernel)
            outcome = Outcome(kernel, before, before, passed(name, version, kernel, "absent"), ["remove"], output.seconds)
            outcome.after = state_of(dkms.status(), name, version, kernel)
            if not output.ok or outcome.after in _dkms.BUILT_STATES:
                outcome.check, outcome.failure = explain(dkms, output, "remove", name, version, kernel)
            outcomes.append(outcome)
    return outcomes


def _absent_whole(dkms: Dkms, name: str, version: str, rows: Sequence[Row], check_mode: bool) -> Outcome:
    tree = dkms.trees.version(name, version)
    before = ", ".join(str(row) for row in rows) or ("broken" if tree.is_dir() else "absent")
    gone = Check("driver.dkms", PASS, f"{name}/{version} absent", subject=f"{name}/{version}")
    if before == "absent":
        return Outcome("", before, before, gone)
    if check_mode:
        check = Check("driver.dkms", SKIP, f"{before}; would remove", "absent", "Run without check mode.", subject=gone.subject)
        return Outcome("", before, "absent", check, ["remove"])
    outcome = Outcome("", before, "absent", gone, ["remove"])
    if any(row.state != "broken" for row in rows):
        output = dkms.call("remove", name, version, "", "--all")
        outcome.seconds = output.seconds
        if not output.ok:
            outcome.check, outcome.failure = explain(dkms, output, "remove", name, version, "")
            outcome.after = before
            return outcome
    else:
        # Without its source DKMS removes nothing and says so at each status; the records are all that is left.
        shutil.rmtree(tree, ignore_errors=True)
        for link in (dkms.trees.records / name).glob("kernel-*"):
            if link.is_symlink() and not link.exists():
                link.unlink()
        with contextlib.suppress(OSError):
            (dkms.trees.records / name).rmdir()
    left = [row for row in dkms.status() if row.name == name and row.version == version]
    if left or tree.is_dir():
        found = ", ".join(str(row) for row in left) or f"{tree} still there"
        outcome.after = found
        outcome.check = Check("driver.dkms", FAIL, found, "absent", f"Remove {tree} by hand.", subject=gone.subject)
    return outcome
