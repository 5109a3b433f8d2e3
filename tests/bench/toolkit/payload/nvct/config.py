"""/etc/nvidia-container-runtime/config.toml: the keys that the programs obey."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomllib

PATH = Path("/etc/nvidia-container-runtime/config.toml")
DEFAULT = """#accept-nvidia-visible-devices-as-volume-mounts = false
#accept-nvidia-visible-devices-envvar-when-unprivileged = true
disable-require = false
supported-driver-capabilities = "compat32,compute,display,graphics,ngx,utility,video"

[nvidia-container-cli]
environment = []
ldconfig = "@/sbin/ldconfig"
load-kmods = true
#no-cgroups = false
#path = "/usr/bin/nvidia-container-cli"

[nvidia-container-runtime]
log-level = "info"
mode = "auto"
runtimes = ["runc", "crun"]

[nvidia-container-runtime-hook]
path = "nvidia-container-runtime-hook"
skip-mode-detection = false

[nvidia-ctk]
path = "nvidia-ctk"
"""


def read() -> dict[str, Any]:
    """The settings; the defaults when there is no file. Raises tomllib.TOMLDecodeError for a broken one."""
    settings = tomllib.loads(DEFAULT)
    if PATH.exists():
        for key, value in tomllib.loads(PATH.read_text(encoding="utf-8")).items():
            if isinstance(value, dict) and isinstance(settings.get(key), dict):
                settings[key].update(value)
            else:
                settings[key] = value
    return settings
