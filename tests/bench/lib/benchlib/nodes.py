"""The hosts of the bench: addresses, hardware, containers."""

from __future__ import annotations

import json
import shutil
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchlib import images, paths
from benchlib.shell import CommandFailed, docker, docker_ok, run, say

Gpu = dict[str, Any]

SERVICES = "services"
ALIASES = ("registry.bench.test", "packages.bench.test", "lpu.bench.test")
SERVICES_ADDRESS = 2
REFUSING_ADDRESS = 3
"""The services host's second address: a registry that refuses every login (fault registry-refuses)."""

SECURITY = [
    "--cap-add=SYS_ADMIN", "--cap-add=NET_ADMIN", "--cap-add=SYS_PTRACE", "--cap-add=MKNOD",
    "--security-opt=seccomp=unconfined", "--security-opt=apparmor=unconfined",
    "--cgroupns=host", "--volume=/sys/fs/cgroup:/sys/fs/cgroup:rw",
    "--tmpfs=/run:exec,mode=755", "--tmpfs=/run/lock", "--tmpfs=/tmp:exec,mode=1777", "--env=container=docker",
]  # fmt: skip
"""What systemd and a Docker Engine of its own need in a container. No SYS_MODULE: nothing is loaded for real."""

DEVICES = ["--device-cgroup-rule=c 195:* rwm", "--device-cgroup-rule=c 511:* rwm", "--device-cgroup-rule=c 10:200 rwm"]
"""Device numbers of the simulated GPUs, so that containers inside a node may be given them."""


def gpu(bus_id: str, device_id: str, subsystem_id: str, product: str, memory_mib: int, vbios: str, index: int) -> Gpu:
    """One GPU of hardware.json, healthy."""
    serial = f"16{int(device_id, 16) % 100:02d}{index:02d}{int(bus_id[5:7], 16):03d}2026"
    tail = f"{int(device_id, 16):04x}{index:02x}{int(bus_id[5:7], 16):02x}"
    return {
        "bus_id": bus_id, "device_id": device_id, "subsystem_id": subsystem_id, "product": product,
        "uuid": f"GPU-{tail}-5f3a-4c1e-9b7d-{tail}{index:04x}", "serial": serial, "memory_mib": memory_mib,
        "vbios": vbios, "state": "ok",
    }  # fmt: skip


@dataclass(frozen=True)
class Host:
    """A host of the bench: its last address byte and, for a node, its GPUs."""

    name: str
    address: int
    gpus: tuple[Gpu, ...] = field(default_factory=tuple)

    @property
    def container(self) -> str:
        """The container's name."""
        return f"inferack-{paths.number()}-{self.name}"

    @property
    def ip(self) -> str:
        """The IPv4 address."""
        return address(self.address)

    @property
    def folder(self) -> Path:
        """This host's folder in the instance's state."""
        return paths.instance_state() / "nodes" / self.name


def address(last: int) -> str:
    """The instance's address that ends in `last`."""
    return f"172.31.{200 + paths.number()}.{last}"


def h100(bus_id: str, index: int) -> Gpu:
    """An H100 SXM."""
    return gpu(bus_id, "2330", "16c1", "NVIDIA H100 80GB HBM3", 81559, "96.00.74.00.01", index)


def l40s(bus_id: str, index: int) -> Gpu:
    """An L40S."""
    return gpu(bus_id, "26b9", "1851", "NVIDIA L40S", 46068, "95.02.66.00.02", index)


def a100(bus_id: str, index: int) -> Gpu:
    """An A100 SXM4 with 80 GB."""
    return gpu(bus_id, "20b2", "1463", "NVIDIA A100-SXM4-80GB", 81920, "92.00.45.00.03", index)


HOSTS = (
    Host(SERVICES, SERVICES_ADDRESS),
    Host("debian-12", 11, (h100("0000:07:00.0", 0), h100("0000:41:00.0", 1))),
    Host("ubuntu-24.04", 12, tuple(l40s(f"0000:{bus}:00.0", n) for n, bus in enumerate(("0a", "21", "81", "c1")))),
    Host("openeuler-24.03", 13, (a100("0000:0f:00.0", 0), a100("0000:b7:00.0", 1))),
)


def host(name: str) -> Host:
    """The host called `name`. Raises SystemExit naming the known ones."""
    for one in HOSTS:
        if one.name == name:
            return one
    raise SystemExit(f"there is no host {name!r}; expected one of {', '.join(one.name for one in HOSTS)}")


def label() -> str:
    """The label of everything that belongs to this instance."""
    return f"inferack.bench={paths.number()}"


def network() -> str:
    """The name of the instance's network."""
    return f"inferack-bench-{paths.number()}"


def ensure_network() -> None:
    """Make the instance's network unless it is there."""
    if docker_ok("network", "inspect", network()):
        return
    subnet, gateway = f"172.31.{200 + paths.number()}.0/24", address(1)
    docker(
        "network", "create", "--label", label(), "--subnet", subnet, "--gateway", gateway,
        "--opt", "com.docker.network.bridge.name=infbench" + str(paths.number()), network(),
    )  # fmt: skip


def write_hardware(one: Host, gpus: list[Gpu] | tuple[Gpu, ...]) -> None:
    """Write the node's hardware.json. The file is written in place: a container sees its folder as a mount."""
    folder = one.folder / "hardware"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hardware.json").write_text(json.dumps({"gpus": list(gpus)}, indent=1) + "\n", encoding="utf-8")


def read_hardware(one: Host) -> list[Gpu]:
    """The node's GPUs as hardware.json has them now."""
    text = (one.folder / "hardware/hardware.json").read_text(encoding="utf-8")
    gpus: list[Gpu] = json.loads(text)["gpus"]
    return gpus


def status(one: Host) -> str:
    """running, exited, …; empty when there is no such container."""
    return docker("container", "inspect", "--format", "{{.State.Status}}", one.container, check=False)


def image_of(one: Host) -> str:
    """The name (in the bench) of the image a host is made from."""
    return SERVICES if one.name == SERVICES else f"node-{one.name}"


def remove(one: Host) -> None:
    """Take the host's container and volumes away, if they are this bench's."""
    owner = docker("container", "inspect", "--format", '{{index .Config.Labels "inferack.bench"}}', one.container, check=False)
    if owner == str(paths.number()):
        docker("rm", "--force", "--volumes", one.container)
    for volume in docker("volume", "ls", "--quiet", "--filter", f"label={label()}").splitlines():
        if volume.startswith(f"{one.container}-"):
            docker("volume", "rm", volume)
    shutil.rmtree(one.folder, ignore_errors=True)


def volume(one: Host, name: str) -> str:
    """The name of the host's volume `name`; made when absent."""
    full = f"{one.container}-{name}"
    docker("volume", "create", "--label", label(), full)
    return full


def drop_stranger(one: Host) -> None:
    """Remove a container of the same name that another checkout, or this one with another .bench, left behind."""
    made_by = docker(
        "container", "inspect", "--format", '{{index .Config.Labels "inferack.bench.state"}}', one.container, check=False
    )
    if made_by and (made_by != str(paths.state()) or not one.folder.is_dir()):
        say(f"  {one.name}: removing what {made_by} left")
        remove(one)


def drop_outdated(one: Host) -> None:
    """Replace a services host made from an older image: it keeps nothing. A node is only told of: it has a life."""
    runs = docker("container", "inspect", "--format", "{{.Image}}", one.container, check=False)
    if not runs or runs == images.image_id(image_of(one)):
        return
    if one.name == SERVICES:
        remove(one)
    else:
        say(f"  {one.name}: runs an older image; `bench reset {one.name}` replaces it")


def start(one: Host) -> None:
    """Make and start a host; one that is stopped is started as it was. Raises SystemExit without its image."""
    drop_stranger(one)
    drop_outdated(one)
    state = status(one)
    if state == "running":
        return
    if state:
        docker("start", one.container)
        return
    image = images.tag(image_of(one))
    if not docker_ok("image", "inspect", image):
        raise SystemExit(f"there is no image {image}; run `bench build` first")
    one.folder.mkdir(parents=True, exist_ok=True)
    mounts = services_mounts(one) if one.name == SERVICES else node_mounts(one)
    hosts = [f"--add-host={alias}:{address(SERVICES_ADDRESS)}" for alias in ALIASES]
    docker(
        "run", "--detach", "--name", one.container, "--hostname", one.name, "--label", label(),
        "--label", f"inferack.bench.state={paths.state()}",
        "--network", network(), "--ip", one.ip, "--restart=always", "--stop-signal=SIGRTMIN+3", "--stop-timeout=10",
        "--log-driver=json-file", "--log-opt=max-size=1m", *hosts, *SECURITY, *DEVICES, *mounts, image,
    )  # fmt: skip
    authorize(one)


def node_mounts(one: Host) -> list[str]:
    """A node's mounts: its hardware and a place for its own Docker Engine. A fresh node has all its GPUs."""
    write_hardware(one, one.gpus)
    return [
        f"--volume={one.folder / 'hardware'}:/opt/bench/hardware:ro",
        f"--volume={volume(one, 'docker')}:/var/lib/docker",
        f"--volume={volume(one, 'containerd')}:/var/lib/containerd",
    ]


def services_mounts(one: Host) -> list[str]:
    """What the services host serves, read-only, and its registry's store, which all instances share."""
    for name in ("repositories", "images", "registry"):
        (paths.state() / name).mkdir(exist_ok=True)
    return [
        f"--volume={paths.state() / 'repositories'}:/srv/repositories:ro",
        f"--volume={paths.state() / 'images'}:/srv/images:ro",
        f"--volume={paths.state() / 'tls'}:/srv/tls:ro",
        f"--volume={paths.BENCH_DIR / 'engines'}:/srv/engines:ro",
        f"--volume={paths.state() / 'registry'}:/var/lib/docker-registry",
    ]


def key() -> Path:
    """The bench's SSH key, .bench/ssh/id_ed25519; made when absent."""
    path = paths.state() / "ssh/id_ed25519"
    if not path.exists():
        path.parent.mkdir(mode=0o700, exist_ok=True)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "inferack-bench", "-f", str(path)])
    return path


AUTHORIZE = """
install -d -m 0700 -o operator -g operator /home/operator/.ssh
cat > /home/operator/.ssh/authorized_keys <<'EOF'
@KEY@
EOF
chown operator:operator /home/operator/.ssh/authorized_keys
"""


def authorize(one: Host) -> None:
    """Let the bench's key log in as the operator. Not part of the images: those do not depend on the checkout."""
    shell(one, AUTHORIZE.replace("@KEY@", key().with_suffix(".pub").read_text(encoding="utf-8").strip()))


def ssh_command(one: Host, *words: str) -> list[str]:
    """An ssh command line to the operator of a host, without a look at host keys: they are new with every node."""
    return [
        "ssh", "-i", str(key()), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes",
        "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
        "-o", "ConnectTimeout=5", f"operator@{one.ip}", *words,
    ]  # fmt: skip


def wait_for_ssh(one: Host, timeout_s: float = 180.0) -> float:
    """Wait until the host lets the operator in; returns the seconds it took.

    Raises CommandFailed with the last answer and the container's log when it does not in `timeout_s`.
    """
    begin = time.monotonic()
    answer = ""
    while time.monotonic() - begin < timeout_s:
        try:
            with socket.create_connection((one.ip, 22), timeout=2):
                pass
            result = run(ssh_command(one, "true"), check=False, timeout_s=20)
            if result.returncode == 0:
                return time.monotonic() - begin
            answer = result.stderr.strip()
        except (OSError, TimeoutError) as error:
            answer = str(error)
        time.sleep(0.3)
    log = docker("logs", "--tail", "15", one.container, check=False)
    raise CommandFailed(f"{one.name} ({one.ip}) did not answer by SSH in {timeout_s:.0f} s: {answer}\n{log}")


def shell(one: Host, script: str, check: bool = True) -> str:
    """Run a shell script as root in a host and return what it printed."""
    return docker("exec", "-i", one.container, "/bin/sh", "-eu", stdin=script, check=check)


def reboot(one: Host, timeout_s: float = 180.0) -> None:
    """Reboot a node and wait until it is back. Raises CommandFailed when it shows no new boot id in `timeout_s`."""
    read_boot_id = ("exec", one.container, "cat", "/proc/sys/kernel/random/boot_id")
    old = docker(*read_boot_id)
    begin = time.monotonic()
    docker("exec", one.container, "systemctl", "reboot", check=False)
    while docker(*read_boot_id, check=False) in ("", old):
        if time.monotonic() - begin > timeout_s:
            raise CommandFailed(f"{one.name} did not come back in {timeout_s:.0f} s; see `docker logs {one.container}`")
        time.sleep(0.3)
    wait_for_ssh(one)
    say(f"  {one.name}: rebooted, SSH after {time.monotonic() - begin:.1f} s")
