"""rack_report and the role acceptance, run by a real ansible-playbook over hosts that nothing answers for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[4]
PASSED = {"id": "driver.version", "status": "pass", "found": "1"}
LEAKS = {
    "id": "engine.registry",
    "status": "warn",
    "found": "login with very-secret-value",
    "evidence": ["key vaulted-secret-2"],
}
FAILED = {"id": "gpu.count", "status": "fail", "found": 3, "expected": 4, "remedy": "Reseat the GPU."}
FAILURE = {"role": "triton", "task": "Wait", "sentence": "engine.port: found taken; free port 8000."}
INVENTORY = {
    "all": {
        "children": {
            "gpu_nodes": {"hosts": {name: {"rack_unit": unit} for unit, name in enumerate(("good", "bad", "dead", "wrong"), 1)}}
        },
        "vars": {
            "inferack_rack_name": "r1",
            "triton_registry": {"host": "h", "password": "very-secret-value"},
            "nim_api_key": "{{ 'vaulted-' ~ 'secret-2' }}",
            "broken_password": "{{ nowhere_defined }}",
        },
    }
}
LEFT_BY_THE_RUN: dict[str, dict[str, Any]] = {
    "good": {"inferack_acceptance": {"checks": [PASSED, LEAKS]}},
    "bad": {"inferack_failure": FAILURE, "inferack_phase": "triton"},
    "dead": {"inferack_phase": "nvidia_driver"},
    "wrong": {"inferack_acceptance": {"checks": [PASSED, FAILED]}},
}
PLAYS = [
    {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [
            *(
                {
                    "name": f"As a run leaves {name}",
                    "ansible.builtin.set_fact": facts,
                    "when": f"inventory_hostname == '{name}'",
                }
                for name, facts in LEFT_BY_THE_RUN.items()
            ),
            {"name": "Report", "ansible.builtin.include_role": {"name": "inferack.rack.acceptance", "tasks_from": "report"}},
            {"name": "Verdict", "ansible.builtin.include_role": {"name": "inferack.rack.acceptance", "tasks_from": "verdict"}},
        ],
    }
]


def play(folder: Path, *options: str) -> tuple[int, str, dict[str, Any]]:
    """Run the plays in `folder`: return code, output, report.json."""
    (folder / "inventory.yml").write_text(yaml.safe_dump(INVENTORY))
    (folder / "book.yml").write_text(yaml.safe_dump(PLAYS))
    (folder / "ansible.cfg").write_text("[defaults]\n")
    run = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", "inventory.yml", "book.yml", *options],
        cwd=folder,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"),
            "ANSIBLE_INJECT_FACT_VARS": "false",
            "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
            "ANSIBLE_NOCOLOR": "1",
        },
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    target = folder / "reports/r1/report.json"
    return run.returncode, run.stdout + run.stderr, json.loads(target.read_text()) if target.exists() else {}


def test_report_verdict_secrets_and_history(tmp_path: Path) -> None:
    rc, output, report = play(tmp_path)
    assert rc == 2, output
    statuses = {node["name"]: node["status"] for node in report["nodes"]}
    assert statuses == {"good": "accepted", "bad": "failed", "dead": "unreachable", "wrong": "failed"}
    assert "the last phase begun was nvidia_driver" in next(
        node["sentence"] for node in report["nodes"] if node["name"] == "dead"
    )
    folder = tmp_path / "reports/r1"
    assert sorted(path.name for path in folder.iterdir()) == ["index.html", "junit.xml", "report.json"]
    for path in folder.iterdir():
        text = path.read_text()
        assert "very-secret-value" not in text
        assert "vaulted-secret-2" not in text
        assert path.name == "junit.xml" or "[redacted]" in text
    for sentence in (FAILURE["sentence"], "gpu.count: found 3, expected 4; reseat the GPU."):
        assert f"msg: {sentence}" in output.replace("'", "").replace('"msg": ', "msg: ").replace('"', ""), output
    recap = {line.split()[0]: line for line in output.splitlines() if "unreachable=" in line}
    assert "failed=0" in recap["good"]
    assert "failed=1" in recap["bad"]
    assert "failed=1" in recap["wrong"]
    assert all("changed=0" in line for line in recap.values())

    again = play(tmp_path)[2]
    assert not (folder / "history").exists(), "nothing but the time changed"
    assert again["rack"]["time"] >= report["rack"]["time"]

    rc, output, limited = play(tmp_path, "--limit", "good")
    assert rc == 0, output
    assert {node["name"]: node["status"] for node in limited["nodes"]} == {
        "good": "accepted",
        "bad": "not_looked_at",
        "dead": "not_looked_at",
        "wrong": "not_looked_at",
    }
    assert limited["accepted"] is False
    assert len(list((folder / "history").iterdir())) == 1
    wrong = next(node for node in limited["nodes"] if node["name"] == "wrong")
    assert wrong["last"]["status"] == "failed"
    assert wrong["last"]["time"] == again["rack"]["time"]


def test_check_mode_writes_nothing(tmp_path: Path) -> None:
    output, report = play(tmp_path, "--check")[1:]
    assert report == {}, output
    assert not (tmp_path / "reports").exists()
