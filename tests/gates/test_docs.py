"""Pages that are rendered, and lists that must agree with the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COLLECTION = ROOT / "collections/ansible_collections/inferack/rack"
CHECK_ID = re.compile(r"""["' ]((?:node|gpu|nouveau|driver|container|engine|proxy|role)\.[a-z0-9_]+(?:\.[a-z0-9_]+)?)["'\n]""")
# Names of the same form that are no checks: keys of facts and of plans.
NOT_A_CHECK = re.compile(r"^(engine|driver|container|node)\.(name|kind|packages|source|version|md|yml|py|json|service)$")


def ids_in_code() -> set[str]:
    found: set[str] = set()
    for path in [
        *COLLECTION.glob("plugins/**/*.py"),
        *COLLECTION.glob("roles/*/tasks/**/*.yml"),
        *COLLECTION.glob("playbooks/**/*.yml"),
    ]:
        for line in path.read_text().splitlines():
            if re.search(r"""(\bid\b|Check\(|check\(|_check|verdict|passed\(|failed\()""", line):
                found.update(name for name in CHECK_ID.findall(line + "\n") if not NOT_A_CHECK.match(name))
    return found


def test_variable_tables_are_rendered_from_the_specs() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/render_docs.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_check_id_is_documented() -> None:
    page = (ROOT / "docs/checks.md").read_text()
    documented = set(re.findall(r"^\| `([a-z0-9_.]+)` \|", page, re.MULTILINE))
    in_code = ids_in_code()
    assert len(in_code) > 20
    assert in_code - documented == set(), "checks that docs/checks.md leaves out"


def test_readme_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
