"""Requirements of images (NVIDIA_REQUIRE_CUDA and others): `cuda>=12.4 brand=tesla,driver>=535,driver<536`.

A blank means "or", a comma "and"; libnvidia-container's language.
"""

from __future__ import annotations

import re

OPERATORS = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}
ATOM = re.compile(r"(\w+)(!=|<=|>=|=|<|>)(\S+)$")


class Unsatisfied(Exception):
    """A requirement does not hold; the text names the condition."""


def number(text: str) -> tuple[int, ...]:
    """A version as numbers, trailing zeros left out, so that 13 equals 13.0. Raises ValueError."""
    parts = [int(part) for part in text.split(".")]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def holds(atom: str, values: dict[str, str]) -> bool:
    """Whether one condition holds for `values` (cuda, driver, arch, brand). Raises Unsatisfied when it is none."""
    found = ATOM.match(atom)
    if not found or found[1] not in values:
        raise Unsatisfied(f"invalid expression: {atom}")
    left, right = values[found[1]], found[3]
    if found[1] == "brand":
        return bool(OPERATORS[found[2]](left.lower(), right.lower()))
    try:
        return bool(OPERATORS[found[2]](number(left), number(right)))
    except ValueError as error:
        raise Unsatisfied(f"invalid expression: {atom}") from error


def check(expression: str, values: dict[str, str]) -> None:
    """Raise Unsatisfied, naming the first condition that does not hold, unless one alternative holds entirely."""
    first = ""
    for alternative in expression.split():
        failed = next((atom for atom in alternative.split(",") if not holds(atom, values)), "")
        if not failed:
            return
        first = first or failed
    if first:
        hint = ", please update your driver to a newer version, or use an earlier cuda container"
        raise Unsatisfied(f"unsatisfied condition: {first}{hint if first.startswith('cuda') else ''}")
