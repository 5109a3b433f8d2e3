# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""The shape of a rule that names a cause in a log.

Rules are data: `_causes_*.py` hold them, `_diagnose.py` applies them, and
docs/troubleshooting.md is rendered from them. Runs on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: How sure a rule is of its words: `high` they say the cause itself, `medium` another one is possible, `low` a hint.
CONFIDENCE = ("high", "medium", "low")

#: `fault` must be mended; `application` an application's own error, the node is well; `notice` nothing has to be done at once;
#: `symptom` a consequence of something else, whatever that is.
SEVERITIES = ("fault", "application", "notice", "symptom")

#: Groups of a pattern that name what is affected, and the word for it; `bus_b` is another `bus` of the same pattern.
SUBJECTS = {"bus": "gpu", "model": "model", "container": "container", "image": "image"}


@dataclass(frozen=True)
class Rule:
    """Words of a log, and the cause that they name.

    id: stable, in kebab case; a heading of docs/troubleshooting.md.
    log: where the words stand: `kernel`, `build`, `packages`, `nvidia-smi`, `docker`, `container`, `engine`, `api`, `node`.
    anchors: in small letters; one of them is in every text that the pattern fits, so that most rules cost one search.
    pattern: regular expression, case ignored, over messages joined to one line; groups of SUBJECTS name what is affected.
    found: the cause in words; `{group}` stands for a group of the pattern.
    affects: what is affected where no group names it.
    remedy: one imperative sentence.
    source: where the words come from.
    example: words that it fits, as a reader of the documentation meets them.
    blames: `hardware`, `driver`, `kernel`, `node`, `container`, `registry`, `engine`, `application` or `provider`.
    explains: ids of causes that are consequences of this one.
    needs: a further pattern that must be somewhere in the same text; unless: one that must not.
    reach: how far behind an anchor the pattern may end, in characters.
    """

    id: str
    log: str
    anchors: tuple[str, ...]
    pattern: str
    found: str
    affects: str
    remedy: str
    source: str
    example: str
    blames: str = "node"
    confidence: str = "high"
    severity: str = "fault"
    explains: tuple[str, ...] = ()
    needs: str = ""
    unless: str = ""
    reach: int = 1200

    def compiled(self) -> re.Pattern[str]:
        """The pattern, ready to search; the standard library keeps it after the first time."""
        return re.compile(self.pattern, re.IGNORECASE)


@dataclass(frozen=True)
class Harmless:
    """Words that look like an error and are none.

    inconclusive: they stand where something else failed, so that a text with nothing else proves nothing.
    """

    pattern: str
    why: str
    example: str
    inconclusive: bool = False


#: Consequences of a driver that does not run, or of a GPU that it could not start.
NO_DRIVER = (
    "smi-no-driver",
    "smi-library-missing",
    "container-driver-not-loaded",
    "no-gpu-in-container",
    "module-load-failed",
)
NO_GPU = ("gpu-init-failed", "gpu-probe-failed", "no-gpu-found", "smi-no-devices", "gsp-init-failed", "no-gpu-in-container")
NOT_BUILT = ("build-failed", "installer-failed", "module-missing", "module-load-failed", "package-not-configured", *NO_DRIVER)
