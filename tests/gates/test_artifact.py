"""What Galaxy would ship works by itself: built, installed elsewhere, and called by its full names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COLLECTION = ROOT / "collections/ansible_collections/inferack/rack"
TOOLS = Path(sys.executable).parent


def run(folder: Path, tool: str, *arguments: str) -> str:
    """What the tool prints in `folder`, with no configuration but the place where the collection is installed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    environment["ANSIBLE_COLLECTIONS_PATH"] = str(folder / "installed")
    done = subprocess.run(
        [str(TOOLS / tool), *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("galaxy")
    run(folder, "ansible-galaxy", "collection", "build", str(COLLECTION))
    (artifact,) = folder.glob("inferack-rack-*.tar.gz")
    run(folder, "ansible-galaxy", "collection", "install", "--no-deps", "-p", str(folder / "installed"), artifact.name)
    return folder


def files(folder: Path) -> set[str]:
    """Files below a folder, without what tools leave there."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {path.as_posix() for path in paths if not any(part.startswith((".", "__pycache__")) for part in path.parts)}


def test_it_holds_what_the_collection_holds(installed: Path) -> None:
    shipped = files(installed / "installed/ansible_collections/inferack/rack") - {"MANIFEST.json", "FILES.json"}
    assert shipped == files(COLLECTION) - {"galaxy.yml"}


def test_the_playbook_runs_by_its_full_name(installed: Path) -> None:
    (installed / "hosts").write_text("[gpu_nodes]\nnode-1\n[proxy_nodes]\nnode-1\n", encoding="utf-8")
    listed = run(installed, "ansible-playbook", "-i", "hosts", "inferack.rack.site", "--list-tasks")
    for words in ("Preflight", "Driver", "Adapter proxy", "Write the report", "Judge every node"):
        assert words in listed


def test_a_rack_whose_only_node_is_unreachable_still_gets_its_report(installed: Path) -> None:
    """The roles, modules and data of the artifact really load, from the first role to the report."""
    (installed / "dead").write_text("[gpu_nodes]\nnode-1 ansible_host=127.0.0.1 ansible_port=9\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="0 of 1 node accepted; unreachable: node-1"):
        run(installed, "ansible-playbook", "-i", "dead", "inferack.rack.site", "-e", "inferack_report_dir=reports")
    assert '"accepted": false' in (installed / "reports/report.json").read_text(encoding="utf-8")
    assert (installed / "reports/index.html").read_text(encoding="utf-8").endswith("</html>\n")


def test_roles_and_modules_explain_themselves(installed: Path) -> None:
    assert "inferack.rack.nvidia_driver" in run(installed, "ansible-doc", "-t", "role", "-l", "inferack.rack")
    assert "report_only" in run(installed, "ansible-doc", "-t", "module", "inferack.rack.nvidia_smi")
