#!/usr/bin/env python3
"""Renders the variable tables of docs/inventory.md and of each role's README from the argument specs.

usage: render_docs.py [--check]

With --check nothing is written, and the exit status is 1 when a page differs from its source.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
ROLES = ROOT / "collections/ansible_collections/inferack/rack/roles"
ORDER = [
    "preflight",
    "nouveau",
    "nvidia_driver",
    "container_runtime",
    "nvidia_container_toolkit",
    "triton",
    "nim",
    "adapter_proxy",
    "acceptance",
]
BEGIN, END = "<!-- begin variables: rendered by tools/render_docs.py -->", "<!-- end variables -->"
PAGE_HEAD = """# The inventory

A rack is a group; what a node does is a group: `gpu_nodes`, `proxy_nodes`. What the operator states is below, role by role;
the rest is derived and refused early when impossible. `inventories/example` is a commented rack. `rack_unit` (lowest unit a
node occupies) and `rack_units` (its height) place a node in the report's drawing.

Rendered from the roles' `meta/argument_specs.yml` by `tools/render_docs.py`.
"""


def specs(role: str) -> dict[str, Any]:
    """Options of a role's main entry point by name."""
    loaded = yaml.safe_load((ROLES / role / "meta/argument_specs.yml").read_text())
    options: dict[str, Any] = loaded["argument_specs"]["main"].get("options") or {}
    return options


def text(description: Any) -> str:
    """A description as one line."""
    lines = description if isinstance(description, list) else [description]
    return " ".join(" ".join(str(line).split()) for line in lines).replace("|", "\\|")


def default(option: dict[str, Any]) -> str:
    """The default as an operator would write it."""
    if option.get("required"):
        return "required"
    value = yaml.safe_dump(option.get("default"), default_flow_style=True, width=10_000).removesuffix("...\n").strip()
    return f"`{value}`".replace("|", "\\|")


def table(role: str) -> str:
    """Markdown table of a role's variables."""
    rows = ["| variable | type | default | meaning |", "|---|---|---|---|"]
    for name, option in specs(role).items():
        kind = option.get("type", "str") + (f" of {option['elements']}" if "elements" in option else "")
        meaning = text(option.get("description", ""))
        if choices := option.get("choices"):
            meaning += f" One of {', '.join(f'`{choice}`' for choice in choices)}."
        rows.append(f"| `{name}` | {kind} | {default(option)} | {meaning} |")
    return "\n".join(rows)


def rendered() -> dict[Path, str]:
    """Every page that this script owns a part of, as it should be."""
    pages = {ROOT / "docs/inventory.md": PAGE_HEAD + "".join(f"\n## {role}\n\n{table(role)}\n" for role in ORDER)}
    for role in ORDER:
        path = ROLES / role / "README.md"
        old = path.read_text()
        if BEGIN not in old:
            old = f"{old.rstrip()}\n\n## Variables\n\n{BEGIN}\n{END}\n"
        head, rest = old.split(BEGIN, 1)
        pages[path] = f"{head}{BEGIN}\n\n{table(role)}\n\n{END}{rest.split(END, 1)[1]}"
    return pages


def main() -> int:
    """Render, or compare with --check."""
    stale = {path: new for path, new in rendered().items() if not path.exists() or path.read_text() != new}
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} differs from the argument specs; run tools/render_docs.py")
        return 1 if stale else 0
    for path, new in stale.items():
        path.write_text(new)
        print(f"rendered {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
