"""Faults: what goes wrong in life, one command away, and mended by another.

A fault that changes files keeps the former ones in the node at /opt/bench/faults/<name>, so that `repair` brings back
exactly what was there.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from benchlib import nodes
from benchlib.nodes import Gpu, Host
from benchlib.shell import docker, docker_ok, say

Settings = dict[str, str]
Action = Callable[[Host, Settings], None]


@dataclass(frozen=True)
class Fault:
    """A fault: what it is in words, how it is caused and how it is repaired."""

    text: str
    cause: Action
    repair: Action


def script(text: str) -> Action:
    """An action that runs a shell script as root in the node; settings are shell variables in upper case."""

    def act(one: Host, settings: Settings) -> None:
        head = "".join(f"{key.upper()}={shlex.quote(value)}\n" for key, value in settings.items())
        output = nodes.shell(one, head + HELPERS + text)
        if output:
            say("\n".join(f"    {line}" for line in output.splitlines()))

    return act


HELPERS = r"""
# keep FOLDER PATH: remember a file (or that there was none) the first time; give_back FOLDER PATH: as it was.
keep() {
    mkdir -p "/opt/bench/faults/$1"
    saved=/opt/bench/faults/$1/$(printf '%s' "$2" | tr / @)
    [ -e "$saved" ] || [ -L "$saved" ] || [ -e "$saved.none" ] && return 0
    if [ -e "$2" ] || [ -L "$2" ]; then cp -a "$2" "$saved"; else : > "$saved.none"; fi
}
give_back() {
    saved=/opt/bench/faults/$1/$(printf '%s' "$2" | tr / @)
    if [ -e "$saved.none" ]; then rm -f "$2" "$saved.none"; fi
    if [ -e "$saved" ] || [ -L "$saved" ]; then rm -f "$2"; mv "$saved" "$2"; fi
}
rebuild_initramfs() {
    if command -v update-initramfs >/dev/null; then update-initramfs -u -k "$(uname -r)" >/dev/null 2>&1
    else dracut --force --kver "$(uname -r)" >/dev/null 2>&1; fi
}
library_folder() {
    for folder in /usr/lib/*-linux-gnu/nvidia/current /usr/lib/*-linux-gnu /usr/lib64; do
        for file in "$folder"/libnvidia-ml.so.[0-9]*.*; do
            [ ! -f "$file" ] || [ -L "$file" ] || { echo "$folder"; return 0; }
        done
    done
    echo "no libnvidia-ml.so is installed; install the driver first" >&2
    return 1
}
"""


# --- GPUs ---------------------------------------------------------------------------------------------------------


def hardware(change: Callable[[Host, Settings], list[Gpu]]) -> Action:
    """An action that writes new hardware and lets the running kernel see it."""

    def act(one: Host, settings: Settings) -> None:
        nodes.write_hardware(one, change(one, settings))
        docker("exec", one.container, "/opt/bench/kernel", "refresh")

    return act


def chosen(one: Host, settings: Settings) -> int:
    """The index of the GPU meant: gpu=N, default the last one. Raises SystemExit when there is no such GPU."""
    index = int(settings.get("gpu", len(one.gpus) - 1))
    if not 0 <= index < len(one.gpus):
        raise SystemExit(f"{one.name} has no GPU {index}; expected 0 to {len(one.gpus) - 1}")
    return index


def with_state(state: str) -> Callable[[Host, Settings], list[Gpu]]:
    """Hardware in which the GPU meant is in another state."""

    def change(one: Host, settings: Settings) -> list[Gpu]:
        index = chosen(one, settings)
        return [{**gpu, "state": state} if n == index else gpu for n, gpu in enumerate(one.gpus)]

    return change


def without_gpu(one: Host, settings: Settings) -> list[Gpu]:
    """Hardware that lacks the GPU meant."""
    index = chosen(one, settings)
    return [gpu for n, gpu in enumerate(one.gpus) if n != index]


def whole(one: Host, settings: Settings) -> list[Gpu]:
    """All GPUs, healthy."""
    return list(one.gpus)


# --- driver and nouveau -------------------------------------------------------------------------------------------

NEWER_LIBRARY = r"""
folder=$(library_folder)
keep version-mismatch "$folder/libnvidia-ml.so.1"
old=$(basename "$(ls "$folder"/libnvidia-ml.so.[0-9]*.* | head -n 1)")
branch=$(printf '%s' "$old" | sed -E 's/^libnvidia-ml.so.([0-9]+)\..*/\1/')
new="libnvidia-ml.so.${VERSION:-$branch.999.01}"
cp "$folder/$old" "$folder/$new"
ln -sfn "$new" "$folder/libnvidia-ml.so.1"
echo "$folder" > /opt/bench/faults/version-mismatch/folder
echo "$new" > /opt/bench/faults/version-mismatch/new
nvidia-smi || true
"""

OLD_LIBRARY = r"""
folder=$(cat /opt/bench/faults/version-mismatch/folder)
rm -f "$folder/$(cat /opt/bench/faults/version-mismatch/new)"
give_back version-mismatch "$folder/libnvidia-ml.so.1"
rm -rf /opt/bench/faults/version-mismatch
"""

# As after an unattended upgrade: the files are new and fit, the module in memory is the one from before.
OLDER_MODULE = r"""
[ -e /sys/module/nvidia/version ] || { echo "nvidia is not loaded on this node" >&2; exit 1; }
now=$(cat /sys/module/nvidia/version)
old=${VERSION:-${now%%.*}.43.02}
echo "$old" > /sys/module/nvidia/version
sed -i "s/  $now  /  $old  /" /proc/driver/nvidia/version
nvidia-smi || true
"""

RELOAD_MODULE = r"""
systemctl stop nvidia-persistenced 2>/dev/null || true
for module in nvidia_drm nvidia_modeset nvidia_uvm nvidia; do
    [ ! -e "/sys/module/$module/initstate" ] || rmmod "$module"
done
modprobe nvidia
systemctl start nvidia-persistenced 2>/dev/null || true
"""

# The initramfs as it would be if nobody had rebuilt it: made while the blacklist is out of the way.
INITRAMFS_WITHOUT_BLACKLIST = r"""
mkdir -p /opt/bench/faults/nouveau-back
for file in /etc/modprobe.d/* /usr/lib/modprobe.d/* /lib/modprobe.d/* /etc/dracut.conf.d/*; do
    [ -e "$file" ] && grep -qs nouveau "$file" || continue
    case $file in /lib/*) [ "$(readlink -f /lib)" != /usr/lib ] || continue ;; esac
    mv "$file" "/opt/bench/faults/nouveau-back/$(printf '%s' "$file" | tr / @)"
done
status=0
rebuild_initramfs || status=$?
for saved in /opt/bench/faults/nouveau-back/@*; do
    [ -e "$saved" ] || [ -L "$saved" ] || continue
    mv "$saved" "$(basename "$saved" | tr @ /)"
done
[ "$status" = 0 ] || echo "the initramfs could not be rebuilt" >&2
exit "$status"
"""


def nouveau_back(one: Host, settings: Settings) -> None:
    """Give the node an initramfs without the blacklist, and reboot it: nouveau is there again."""
    script(INITRAMFS_WITHOUT_BLACKLIST)(one, settings)
    nodes.reboot(one)


def nouveau_gone(one: Host, settings: Settings) -> None:
    """Rebuild the initramfs from what modprobe.d says, and reboot."""
    script("rebuild_initramfs")(one, settings)
    nodes.reboot(one)


HEADERS_GONE = r"""
release=$(uname -r)
mkdir -p /opt/bench/faults/headers-gone
if command -v apt-get >/dev/null; then
    installed=$(dpkg-query -W -f '${Package} ${db:Status-Abbrev}\n' 'linux-headers*' 2>/dev/null | awk '$2 ~ /^i/ {print $1}')
    [ -z "$installed" ] || dpkg --purge --force-depends $installed >/dev/null
    printf 'Package: linux-headers-*\nPin: release *\nPin-Priority: -1\n' > /etc/apt/preferences.d/headers-gone.pref
else
    rpm -q kernel-devel >/dev/null && rpm -e --nodeps kernel-devel
    keep headers-gone /etc/dnf/dnf.conf
    echo 'excludepkgs=kernel-devel*' >> /etc/dnf/dnf.conf
fi
rm -f "/lib/modules/$release/build" "/lib/modules/$release/source"
"""

HEADERS_BACK = r"""
if command -v apt-get >/dev/null; then rm -f /etc/apt/preferences.d/headers-gone.pref
else give_back headers-gone /etc/dnf/dnf.conf; fi
"""

# --- network, registry, ports -------------------------------------------------------------------------------------


def unreachable(one: Host, settings: Settings) -> None:
    """Pull the node's cable."""
    if docker_ok("network", "disconnect", nodes.network(), one.container):
        say(f"    {one.ip} answers no more")


def reachable(one: Host, settings: Settings) -> None:
    """Plug the cable in again."""
    if one.ip not in docker("network", "inspect", nodes.network()):
        docker("network", "connect", "--ip", one.ip, nodes.network(), one.container)
    nodes.wait_for_ssh(one)


def registry_at(last: int) -> Action:
    """An action that lets the node's registry name lead to the instance's address that ends in `last`."""

    def act(one: Host, settings: Settings) -> None:
        # Docker mounts /etc/hosts into the node, so it is rewritten in place.
        text = f"sed -E 's/^\\S+(\\s+registry\\.bench\\.test)$/{nodes.address(last)}\\1/' /etc/hosts > /tmp/hosts\n"
        nodes.shell(one, text + "cat /tmp/hosts > /etc/hosts\nrm /tmp/hosts\ngrep -q registry.bench.test /etc/hosts\n")

    return act


PORT_TAKEN = r"""
systemctl stop port-taken.service 2>/dev/null || true
systemd-run --quiet --unit=port-taken --service-type=simple python3 -m http.server "${PORT:-8000}"
for _ in 1 2 3 4 5 6 7 8 9 10; do
    python3 -c "import socket; socket.create_connection(('127.0.0.1', ${PORT:-8000}), 1)" 2>/dev/null && exit 0
    sleep 0.3
done
echo "nothing listens on port ${PORT:-8000}" >&2
exit 1
"""

# --- daemon.json --------------------------------------------------------------------------------------------------


def daemon_json(name: str, content: str) -> Fault:
    """A fault that leaves /etc/docker/daemon.json with `content`."""
    cause = f"mkdir -p /etc/docker\nkeep {name} /etc/docker/daemon.json\nprintf '%s' {shlex.quote(content)} > /etc/docker/daemon.json\n"
    return Fault(
        f"/etc/docker/daemon.json is {name.rsplit('-', 1)[1]}",
        script(cause),
        script(f"give_back {name} /etc/docker/daemon.json\n"),
    )


INVALID = '{\n  "log-driver": "json-file"\n  "log-opts": {"max-size": "10m"},\n}\n'
FOREIGN = (
    '{\n  "log-driver": "json-file",\n  "log-opts": {"max-size": "10m", "max-file": "3"},\n'
    '  "registry-mirrors": [],\n  "default-address-pools": [{"base": "10.210.0.0/16", "size": 24}],\n'
    '  "labels": ["rack=bench"],\n  "runtimes": {"other": {"path": "/usr/local/bin/other-runtime", "runtimeArgs": []}}\n}\n'
)

FAULTS: dict[str, Fault] = {
    "gpu-lost": Fault("a GPU fell off the bus (gpu=N)", hardware(with_state("lost")), hardware(whole)),
    "gpu-missing": Fault("one GPU fewer than the node should have (gpu=N)", hardware(without_gpu), hardware(whole)),
    "gpu-ecc": Fault("a GPU reports uncorrectable memory errors (gpu=N)", hardware(with_state("ecc")), hardware(whole)),
    "version-mismatch": Fault(
        "the library is of another version than the module, also after a reboot (version=X)",
        script(NEWER_LIBRARY),
        script(OLD_LIBRARY),
    ),
    "module-older": Fault(
        "the loaded module is older than the files, until a reboot (version=X)", script(OLDER_MODULE), script(RELOAD_MODULE)
    ),
    "nouveau-back": Fault("the initramfs lacks the blacklist; the node reboots", nouveau_back, nouveau_gone),
    "headers-gone": Fault(
        "headers of the running kernel are neither installed nor to be had", script(HEADERS_GONE), script(HEADERS_BACK)
    ),
    "unreachable": Fault("the node's network cable is out", unreachable, reachable),
    "registry-refuses": Fault(
        "the registry refuses the key", registry_at(nodes.REFUSING_ADDRESS), registry_at(nodes.SERVICES_ADDRESS)
    ),
    "port-taken": Fault(
        "another program listens on an engine's port (port=8000)",
        script(PORT_TAKEN),
        script("systemctl stop port-taken.service"),
    ),
    "daemon-json-invalid": daemon_json("daemon-json-invalid", INVALID),
    "daemon-json-empty": daemon_json("daemon-json-empty", ""),
    "daemon-json-foreign": daemon_json("daemon-json-foreign", FOREIGN),
}
