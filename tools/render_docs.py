#!/usr/bin/env python3
"""Renders the variable tables of docs/inventory.md and of each role's README from the argument specs, and
docs/troubleshooting.md from the rules of the module diagnose.

usage: render_docs.py [--check]

With --check nothing is written, and the exit status is 1 when a page differs from its source.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "collections"))  # so that the rules can be imported by their collection's name

from ansible_collections.inferack.rack.plugins.module_utils import _diagnose, _smi_causes, _xid  # noqa: E402
from ansible_collections.inferack.rack.plugins.module_utils._cause_rule import Rule  # noqa: E402

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


#: Kinds of log in the order of the stack, and the headings of docs/troubleshooting.md.
LOGS = {
    "node": "The node",
    "kernel": "The kernel's log",
    "build": "DKMS, compilers and NVIDIA's installer",
    "packages": "Package managers",
    "nvidia-smi": "nvidia-smi",
    "docker": "Docker and registries",
    "container": "Containers and the NVIDIA Container Toolkit",
    "engine": "Engines: Triton, NIM, CUDA",
    "api": "APIs",
}
TROUBLE_HEAD = """# Troubleshooting

Every message below is a rule of the module `inferack.rack.diagnose`, which finds them in logs for you:

```console
ansible -i inventory node1 -b -m inferack.rack.diagnose                          # collects from the node, and explains
ansible localhost -m inferack.rack.diagnose -a '{"files": ["/tmp/dmesg.txt"]}'   # explains what someone sent
```

Its `verdict` is `cause` (a root is named), `symptom` (what fails is named, why is not in the texts), `notice` (nothing has to
be done at once), `none`, or `unknown` with the lines that no rule explains. Causes come with the lines that prove them, the
root first; `consequence_of` names what explains the others. Severity: a `fault` must be mended, an `application`'s error leaves
the node well, a `notice` can wait, and a `symptom` has another cause, whatever that is.

Rendered from the rules by `tools/render_docs.py`.
"""


def _shown(template: str) -> str:
    """A rule's words with its groups as ‹name›."""
    return re.sub(r"\{( ?)(\w+)\}", r"\1‹\2›", template)


def _row(cells: Iterable[object]) -> str:
    return "| " + " | ".join(" ".join(str(cell).split()).replace("|", "\\|") for cell in cells) + " |"


def _cause(rule: Rule) -> str:
    """One rule as a section."""
    explains = ", ".join(f"`{name}`" for name in dict.fromkeys(rule.explains))
    facts = f"Affects: {rule.affects}. Blames: {rule.blames}. Severity: {rule.severity}. Confidence: {rule.confidence}."
    lines = [
        f"### {rule.id}",
        "",
        "```text",
        rule.example,
        "```",
        "",
        f"{_shown(rule.found)[:1].upper()}{_shown(rule.found)[1:]}.",
        "",
    ]
    lines += [f"**What to do:** {_shown(rule.remedy)}.", "", facts + (f" Explains: {explains}." if explains else "")]
    return "\n".join([*lines, f"Source: {rule.source}.", ""])


def troubleshooting() -> str:
    """docs/troubleshooting.md from the rules, the Xid catalogue, and the lists of what is harmless."""
    parts = [TROUBLE_HEAD]
    unknown = {rule.log for rule in _diagnose.RULES} - set(LOGS)
    if unknown:
        raise SystemExit(
            f"rules for logs without a heading in LOGS: {', '.join(sorted(unknown))}; add one to tools/render_docs.py"
        )
    for log, heading in LOGS.items():
        parts += [f"## {heading}\n", *(_cause(rule) for rule in _diagnose.RULES if rule.log == log)]
        if log == "nvidia-smi":
            rows = [_row(("cause", "what it says", "blames")), "|---|---|---|"]
            rows += [_row((f"`{row.id}`", row.what, row.blames)) for row in _smi_causes.SMI_CAUSES]
            parts.append(
                "Where nvidia-smi answers, its values are judged as the module `nvidia_smi` does:\n\n" + "\n".join(rows) + "\n"
            )
    rows = [_row(("Xid", "what happened", "blames", "severity", "what to do")), "|---|---|---|---|---|"]
    for number, (name, what) in sorted(_xid.CATALOGUE.items()):
        kind = _xid.KINDS[name]
        rows.append(_row((number, what, kind.blames, kind.severity, kind.remedy)))
    parts.append(
        "## Xid numbers\n\nThe cause's id is `xid-` and the number; of an NVSwitch `sxid-` and the number. 144 to 150 are as "
        "grave as their text says (`Fatal`, `Nonfatal`); 154 states what the driver wants, and its last word about a GPU "
        "counts; 43 and 45 follow what came before them. Numbers that NVIDIA lists as unused, and newer ones, are named with "
        "low confidence. Source: NVIDIA, “Analyzing Xid Errors with the Xid Catalog”.\n\n" + "\n".join(rows) + "\n"
    )
    rows = [_row(("words", "why they are harmless")), "|---|---|"]
    rows += [_row((f"`{item.example}`", item.why)) for item in _diagnose.HARMLESS]
    parts.append("## Words that look like errors and are none\n\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


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
    pages[ROOT / "docs/troubleshooting.md"] = troubleshooting()
    return pages


def main() -> int:
    """Render, or compare with --check."""
    stale = {path: new for path, new in rendered().items() if not path.exists() or path.read_text() != new}
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} differs from its source (argument specs, rules); run tools/render_docs.py")
        return 1 if stale else 0
    for path, new in stale.items():
        path.write_text(new)
        print(f"rendered {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
