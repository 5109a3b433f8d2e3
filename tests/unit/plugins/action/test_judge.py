"""The judge, run by a real ansible-playbook: what a role sees is what counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[4]
PASS = {"id": "node.disk", "status": "pass", "found": 1}
WARN = {"id": "node.reboot", "status": "warn", "found": True}
FAIL = {"id": "gpu.count", "status": "fail", "found": 3, "expected": 4, "remedy": "Reseat the GPU."}
FAIL_2 = {"id": "gpu.ecc.uncorrectable", "status": "fail", "found": 3, "subject": "GPU 0"}


def play(tmp_path: Path, tasks: list[dict[str, Any]], *options: str) -> tuple[int, list[dict[str, Any]], str]:
    """Run the tasks for a host that nothing answers for: return code, each task's result, all output."""
    book = tmp_path / "book.yml"
    book.write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    config = tmp_path / "ansible.cfg"
    config.write_text("[defaults]\n")
    run = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", "unreachable.invalid,", str(book), *options],
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(config),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"),
            "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
            "ANSIBLE_INJECT_FACT_VARS": "false",
            "ANSIBLE_LOCAL_TEMP": str(tmp_path),
            "ANSIBLE_DEPRECATION_WARNINGS": "false",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.stdout, run.stderr
    report = json.loads(run.stdout[run.stdout.index("{") :])
    results = [task["hosts"]["unreachable.invalid"] for task in report["plays"][0]["tasks"]]
    return run.returncode, results, run.stdout + run.stderr


def judge(*checks: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {"name": "Judge", "inferack.rack.judge": {"checks": list(checks), **options}}


@pytest.mark.parametrize("options", [(), ("--check",)])
def test_checks_collect_in_the_fact_without_a_connection(tmp_path: Path, options: tuple[str, ...]) -> None:
    show = {"name": "Show", "ansible.builtin.debug": {"msg": "{{ ansible_facts['inferack_checks'] }}"}}
    rc, results, output = play(tmp_path, [judge(PASS), judge(WARN, {**PASS, "found": 2}), show], *options)
    assert rc == 0, output
    assert results[1]["worst"] == "warn"
    assert [(c["id"], c["status"], c["found"]) for c in results[2]["msg"]] == [
        ("node.disk", "pass", 2),
        ("node.reboot", "warn", True),
    ]
    assert all(result["changed"] is False for result in results)


def test_a_failing_check_fails_with_its_sentence(tmp_path: Path) -> None:
    rc, results, output = play(tmp_path, [judge(PASS, FAIL, FAIL_2)])
    assert rc != 0, output
    assert results[0]["msg"] == "gpu.count: found 3, expected 4; reseat the GPU. (and 1 more)"
    assert [check["id"] for check in results[0]["checks"]] == ["node.disk", "gpu.count", "gpu.ecc.uncorrectable"]
    assert "ansible_facts" not in results[0]


def test_report_only_keeps_the_failure_and_what_set_fact_stored(tmp_path: Path) -> None:
    store = {"name": "Store", "ansible.builtin.set_fact": {"inferack_checks": [PASS]}}
    rc, results, output = play(tmp_path, [store, judge(FAIL, report_only=True)])
    assert rc == 0, output
    facts = results[1]["ansible_facts"]["inferack_checks"]
    assert [check["id"] for check in facts] == ["node.disk", "gpu.count"]


@pytest.mark.parametrize(
    ("checks", "words"),
    [([{"id": "gpu.count"}], "checks[0] is not a check"), ([{**PASS, "status": "broken"}], "broken")],
)
def test_what_is_no_check_is_refused_and_named(tmp_path: Path, checks: list[dict[str, Any]], words: str) -> None:
    rc, results, output = play(tmp_path, [judge(*checks)])
    assert rc != 0, output
    assert words in results[0]["msg"]
