#!/usr/bin/python
# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Merge settings into Docker's daemon.json and keep what others wrote there."""

from __future__ import annotations

DOCUMENTATION = r"""
module: daemon_json
short_description: Merge settings into Docker's daemon.json and keep what others wrote there
version_added: 0.1.0
author:
  - inferack contributors (@inferack)
description:
  - Changes only what is asked for. Other keys, their order, the indentation and the digits of numbers stay as they are.
  - A setting that is right already under another spelling is left alone, such as a runtime whose O(path) has a folder that is
    searched anyway, or whose arguments are called C(runtimeArgs) instead of C(args).
  - A missing or empty file counts as V({}). A malformed one is refused with line and column and left untouched.
  - Refuses what would keep dockerd from starting. That is a value of the wrong type, an option that is also a flag in the
    engine's unit or its drop-ins, and whatever C(dockerd --validate) says where dockerd knows that flag (from 23.0).
  - The new file replaces the old one in one step, keeps its mode and owner, and a copy of the old one is left beside it.
  - Does not restart the engine. Do that in a handler.
options:
  path:
    description:
      - The file. A link is followed.
    type: path
    default: /etc/docker/daemon.json
  settings:
    description:
      - The settings as they should be. Objects are merged with those in the file.
    type: dict
    default: {}
  remove:
    description:
      - Settings to take out, by name, V(runtimes.nvidia) for one within another. They are taken out before O(settings) go in.
    type: list
    elements: str
    default: []
  lists:
    description:
      - With V(extend) the items of a list that are missing in the file are added to it; in C(exec-opts) and C(storage-opts) an
        item C(name=value) takes the place of the one of the same name. With V(replace) the list is replaced.
    type: str
    choices: [extend, replace]
    default: extend
  unit:
    description:
      - The engine's systemd unit, whose flags must not name the same options.
    type: str
    default: docker.service
  validate:
    description:
      - Ask dockerd whether it accepts the new file, where it can be asked.
    type: bool
    default: true
  backup:
    description:
      - Keep a copy of the old file beside it.
    type: bool
    default: true
extends_documentation_fragment:
  - inferack.rack.attributes
  - inferack.rack.attributes.checks
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Register NVIDIA's runtime
  inferack.rack.daemon_json:
    settings:
      runtimes:
        nvidia:
          path: nvidia-container-runtime
          args: []
  notify: Restart the engine

- name: Move images to another disk, keep logs small, and no longer use the old mirror
  inferack.rack.daemon_json:
    settings:
      data-root: /srv/docker
      log-opts:
        max-size: 20m
        max-file: "3"
    remove:
      - registry-mirrors
"""

RETURN = r"""
path:
  description: The file, links resolved.
  returned: always
  type: str
settings:
  description: What the file says, or would say in check mode.
  returned: when the file can be read
  type: dict
changes:
  description: What was set, changed or removed, in words.
  returned: when the file can be read
  type: list
  elements: str
  sample: [runtimes.nvidia set]
flags:
  description: Options on dockerd's command line, each with C(key), C(written), C(value) and C(file).
  returned: always
  type: list
  elements: dict
backup_file:
  description: The copy of the old file.
  returned: when an existing file was changed and O(backup=true)
  type: str
checks:
  description: C(container.daemon_json), one for each problem or a single one that passes.
  returned: always
  type: list
  elements: dict
worst:
  description: The most harmful status among the checks.
  returned: always
  type: str
msg:
  description: The first failing check in one sentence.
  returned: when a check fails
  type: str
"""

import os
import tempfile
from dataclasses import asdict
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.inferack.rack.plugins.module_utils import _daemon_json, _run
from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, PASS, REPORT_ONLY, Check, failing, finish

CHECK = "container.daemon_json"


def read_flags(unit: str) -> list[_daemon_json.Flag]:
    """The options on the command line of a unit; none where the unit or systemd is absent."""
    shown = _run.run(["systemctl", "cat", "--no-pager", unit], timeout=15)
    files = _daemon_json.unit_files(shown.out) if shown.ok else []
    if not files:
        for folder in ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"):
            text = read_text(os.path.join(folder, unit))
            if text is not None:
                files = [(os.path.join(folder, unit), text)]
                break
        drop_ins = f"/etc/systemd/system/{unit}.d"
        for name in sorted(os.listdir(drop_ins)) if os.path.isdir(drop_ins) else []:
            text = read_text(os.path.join(drop_ins, name)) if name.endswith(".conf") else None
            if text is not None:
                files.append((os.path.join(drop_ins, name), text))
    environment = {path: read_text(path) or "" for path in _daemon_json.environment_files(files)}
    return _daemon_json.flags(files, environment)


def read_text(path: str) -> str | None:
    """A file's text; None when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def judge(path: str, merged: _daemon_json.Merged, given: list[_daemon_json.Flag]) -> list[Check]:
    """What dockerd would refuse in the merged file, as far as it can be told without dockerd."""
    checks: list[Check] = []
    for wrong in _daemon_json.wrong_types(merged.after):
        checks.append(
            Check(
                CHECK,
                FAIL,
                found=f"{wrong.written} as the value of {wrong.key} in {path}",
                expected=f"{wrong.wanted}, since dockerd refuses to start otherwise",
                remedy=f"Correct {wrong.key} in {path}, then run again; the file was left as it is",
                subject=wrong.key,
            )
        )
    for flag in _daemon_json.conflicts(merged.settings, given):
        checks.append(
            Check(
                CHECK,
                FAIL,
                found=f"{flag.key} both in {path} and as the flag {flag.written} in {flag.file}",
                expected="each option in one place, since dockerd refuses to start otherwise",
                remedy=f"Take {flag.written} out of {flag.file} (systemctl edit), or {flag.key} out of {path}, then run again",
                evidence=[f"{flag.file}: {flag.written} {flag.value}".rstrip()],
                subject=flag.key,
            )
        )
    return checks


def ask_dockerd(module: AnsibleModule, path: str, text: str) -> tuple[_run.Output, str]:
    """Have dockerd validate a text under a name of its own: how it ended, and its words with the real path in them."""
    handle, name = tempfile.mkstemp(dir=module.tmpdir, suffix=".json")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        answer = _run.run(["dockerd", "--validate", f"--config-file={name}"], timeout=30)
    finally:
        os.unlink(name)
    return answer, " ".join((answer.err + answer.out).replace(name, path).split())


def validate(module: AnsibleModule, path: str, text: str) -> tuple[list[Check], list[str]]:
    """dockerd's own opinion of the new file: a failing check when it refuses it, and what it said.

    A dockerd that refuses an empty object too misses something that its unit gives it on the command line, such as
    --userland-proxy-path, and says nothing about the file.
    """
    answer, words = ask_dockerd(module, path, text)
    if answer.problem:
        return [], [f"dockerd --validate was not run: {answer.problem}"]
    if "unknown flag: --validate" in words:
        return [], ["dockerd is older than 23.0 and cannot validate a file"]
    if answer.ok:
        return [], [f"dockerd --validate: {words}"]
    if not ask_dockerd(module, path, "{}")[0].ok:
        return [], [f"dockerd --validate refuses every file: {words}"]
    remedy = f"Correct the settings that are to be merged into {path}, then run again; the file was left as it is"
    return [Check(CHECK, FAIL, f"dockerd refuses the merged file: {words}", "a file that dockerd accepts", remedy, [words])], []


def write(module: AnsibleModule, path: str, text: str, backup: bool) -> str | None:
    """Replace the file in one step; returns the copy of the old one. Mode and owner of an existing file stay."""
    exists = os.path.exists(path)
    copy: str | None = module.backup_local(path) if exists and backup else None
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if not exists:
        os.chmod(name, 0o644)
    module.atomic_move(name, path)
    return copy


def main() -> None:
    """Merge, judge, write."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "default": "/etc/docker/daemon.json"},
            "settings": {"type": "dict", "default": {}},
            "remove": {"type": "list", "elements": "str", "default": []},
            "lists": {"type": "str", "choices": ["extend", "replace"], "default": "extend"},
            "unit": {"type": "str", "default": "docker.service"},
            "validate": {"type": "bool", "default": True},
            "backup": {"type": "bool", "default": True},
            **REPORT_ONLY,
        },
        supports_check_mode=True,
    )
    options: dict[str, Any] = module.params
    path = os.path.realpath(options["path"])
    given = read_flags(options["unit"])
    result: dict[str, Any] = {"path": path, "flags": [asdict(flag) for flag in given]}
    data = b""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        pass
    except OSError as error:
        module.fail_json(msg=f"{path} cannot be read: {error.strerror}; run with become as root.", **result)
    try:
        before = _daemon_json.read(data)
        merged = _daemon_json.merge(before, options["settings"], options["remove"], options["lists"] == "replace")
    except _daemon_json.MalformedError as error:
        check = Check(
            CHECK,
            FAIL,
            found=f"{path} malformed at line {error.line} column {error.column} ({error.problem})",
            expected="one JSON object",
            remedy=f"Correct line {error.line} of {path}, then run again; the file was left as it is",
            evidence=[f"{path}:{error.line}: {error.excerpt}"],
        )
        finish(module, [check], options["report_only"], **result)
    checks = judge(path, merged, given)
    changed = merged.after.encode() != data
    evidence: list[str] = []
    if changed and options["validate"] and not checks:
        checks, evidence = validate(module, path, merged.after)
    result.update(settings=merged.settings, changes=merged.changes)
    if not failing(checks):
        checks = [Check(CHECK, PASS, found=f"{path} has the settings", expected="the settings in place", evidence=evidence)]
        result["changed"] = changed
        result["diff"] = {
            "before": data.decode(errors="replace"),
            "after": merged.after if changed else data.decode(errors="replace"),
            "before_header": path,
            "after_header": path,
        }
        if changed and not module.check_mode:
            copy = write(module, path, merged.after, options["backup"])
            if copy:
                result["backup_file"] = copy
    finish(module, checks, options["report_only"], **result)


if __name__ == "__main__":
    main()
