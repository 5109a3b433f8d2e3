# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write the rack's report on the control node: report.json, junit.xml and index.html."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.release import __version__ as ansible_version

from ansible_collections.inferack.rack.plugins.plugin_utils._report import build, node_from, without_time
from ansible_collections.inferack.rack.plugins.plugin_utils._report_files import REPORT, as_json, read_report, write
from ansible_collections.inferack.rack.plugins.plugin_utils._report_junit import junit
from ansible_collections.inferack.rack.plugins.plugin_utils._report_page import page
from ansible_collections.inferack.rack.plugins.plugin_utils._report_secrets import holds_secret, redact_report, secret_values

ARGUMENTS: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "rack": {"type": "str", "required": True},
    "height": {"type": "int", "default": 42},
    "nodes": {"type": "list", "elements": "dict", "required": True},
    "time": {"type": "str"},
    "history": {"type": "int", "default": 20},
    "secrets": {"type": "list", "elements": "str", "default": [], "no_log": True},
}

#: Magic variables: other hosts' variables and this run's, which are no place where an operator keeps a secret.
NOT_OURS = frozenset({"ansible_facts", "groups", "hostvars", "vars", "environment"})


def collection_version() -> str | None:
    """The collection's version from its galaxy.yml or, installed, its MANIFEST.json; None when neither can be read."""
    root = Path(__file__).resolve().parents[2]
    for name, read in (("MANIFEST.json", json.loads), ("galaxy.yml", yaml.safe_load)):
        try:
            data = read((root / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError):
            continue
        version = data.get("collection_info", data).get("version")
        if version:
            return str(version)
    return None


class ActionModule(ActionBase):  # type: ignore[misc]
    """`inferack.rack.rack_report`; documented in plugins/modules/rack_report.py. Opens no connection."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False
    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Build, compare, and write; see RETURN in the module's documentation."""
        variables = task_vars or {}
        result: dict[str, Any] = super().run(tmp, variables)
        _unused, args = self.validate_argument_spec(argument_spec=ARGUMENTS)
        if args["history"] < 0:
            raise AnsibleActionFail(
                f"history must be 0 or more reports, found {args['history']}; give how many earlier reports to keep."
            )
        try:
            nodes = [node_from(entry) for entry in args["nodes"]]
        except ValueError as error:
            raise AnsibleActionFail(
                f"nodes must describe each node as the documentation says, found {error}; correct that entry."
            ) from error
        folder = Path(args["path"])
        previous = read_report(folder)
        secrets = set(filter(None, args["secrets"])) | self._secrets(variables, [node.name for node in nodes])
        report = redact_report(
            build(
                {"name": args["rack"], "height": args["height"]},
                nodes,
                {"collection": collection_version(), "ansible": ansible_version},
                args["time"] or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                previous,
            ),
            secrets,
        )
        changed = previous is None or without_time(previous) != without_time(report)
        result.update(
            changed=changed,
            accepted=report["accepted"],
            sentence=report["rack"]["sentence"],
            nodes={node["name"]: {key: node[key] for key in ("status", "accepted", "sentence")} for node in report["nodes"]},
            path=str(folder),
            files=[str(folder / name) for name in ("index.html", "junit.xml", REPORT)],
        )
        if self._task.diff and changed:
            result["diff"] = {
                "before": as_json(without_time(previous)) if previous else "",
                "after": as_json(without_time(report)),
                "before_header": str(folder / REPORT),
                "after_header": str(folder / REPORT),
            }
        if not self._task.check_mode:
            files = {REPORT: as_json(report), "junit.xml": junit(report), "index.html": page(report)}
            try:
                write(folder, files, previous if changed else None, args["history"])
            except OSError as error:
                raise AnsibleActionFail(
                    f"the report must be written to {folder}, found {error.strerror or error}; "
                    "make that folder writable or set path."
                ) from error
        return result

    def _secrets(self, variables: Mapping[str, Any], names: list[str]) -> set[str]:
        """The secret values among the variables of the rack's nodes (`password`, `api_key`, `token`, … at any depth).

        Only variables that hold such a name are resolved: others may be undefined here, or run a lookup.
        """
        found: set[str] = set()
        hostvars = variables.get("hostvars")
        for name in names:
            if hostvars is None or name not in hostvars:
                continue
            for key, raw in hostvars.raw_get(name).items():
                if key not in NOT_OURS and holds_secret(key, raw):
                    try:
                        value = hostvars[name][key]
                    except AnsibleError as error:
                        self._display.vv(
                            f"rack_report: {key} of {name} cannot be resolved and is not looked for in the report: {error}"
                        )
                        continue
                    found |= secret_values({key: value})
        return found
