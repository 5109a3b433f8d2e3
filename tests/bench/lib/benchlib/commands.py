"""The commands of tests/bench/bench."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time

from benchlib import nodes, paths, services
from benchlib.faults import FAULTS
from benchlib.parts import PARTS, build_all
from benchlib.shell import docker, engine_answers, say, sudo


def build(words: list[str]) -> None:
    """Run the parts' `build`, each with its progress. Raises CommandFailed naming the part that failed."""
    unknown = [word for word in words if word not in PARTS]
    if unknown:
        raise SystemExit(f"there is no part {unknown[0]!r}; expected some of {', '.join(PARTS)}")
    wanted = words or list(PARTS)
    begin = time.monotonic()
    # Parts write the same images and repositories whoever builds them; a second build waits, then finds most of it done.
    lock = (paths.state() / "build.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("another build is at work; waiting for it")
        fcntl.flock(lock, fcntl.LOCK_EX)
    build_all(wanted, os.cpu_count() or 1)
    lock.close()
    say(f"built in {time.monotonic() - begin:.0f} s")


def chosen(words: list[str]) -> list[nodes.Host]:
    """The hosts named, else all that have an image."""
    return [nodes.host(word) for word in words] if words else [one for one in nodes.HOSTS if one.name != nodes.SERVICES]


def up(words: list[str]) -> None:
    """Start the services host and the nodes named (default: all), and wait until each answers."""
    nodes.ensure_network()
    wanted = chosen([word for word in words if word != nodes.SERVICES])
    services.up()
    for one in wanted:
        nodes.start(one)
    for one in wanted:
        seconds = nodes.wait_for_ssh(one)
        services.trust(one)
        say(f"  {one.name}: {one.ip}, SSH after {seconds:.1f} s")


def down(words: list[str]) -> None:
    """Remove this instance's containers, volumes and network."""
    if words:
        raise SystemExit("down takes no words; `bench reset NODE` puts a fresh node in place")
    remove_instance(paths.number())
    shutil.rmtree(paths.instance_state(), ignore_errors=True)


def remove_instance(number: int) -> None:
    """Remove what is labelled as the instance's own."""
    label = f"label=inferack.bench={number}"
    for container in docker("ps", "--all", "--quiet", "--filter", label).splitlines():
        docker("rm", "--force", "--volumes", container)
    for volume in docker("volume", "ls", "--quiet", "--filter", label).splitlines():
        docker("volume", "rm", volume)
    for network in docker("network", "ls", "--quiet", "--filter", label).splitlines():
        docker("network", "rm", network)


def reset(words: list[str]) -> None:
    """Put fresh nodes in the place of those named."""
    if words == ["--all"]:
        words = [one.name for one in chosen([])]
    if not words:
        raise SystemExit("reset: which node? --all means every one")
    for one in [nodes.host(word) for word in words]:
        nodes.remove(one)
    up(words)


def reboot(words: list[str]) -> None:
    """Reboot the nodes named."""
    for word in words:
        nodes.reboot(nodes.host(word))


def fault(words: list[str]) -> None:
    """Break something on a node."""
    apply(words, "fault")


def repair(words: list[str]) -> None:
    """Mend what `fault` broke."""
    apply(words, "repair")


def apply(words: list[str], verb: str) -> None:
    """Carry out one half of a fault."""
    if len(words) < 2 or words[1] not in FAULTS:
        raise SystemExit(f"{verb} NODE NAME [KEY=VALUE…]; expected a name among: {', '.join(sorted(FAULTS))}")
    settings = dict(word.partition("=")[::2] for word in words[2:])
    one = FAULTS[words[1]]
    action = one.cause if verb == "fault" else one.repair
    say(f"  {words[0]}: {verb} {words[1]}: {one.text}")
    action(nodes.host(words[0]), settings)


def show(words: list[str]) -> None:
    """Print hosts and faults."""
    for one in nodes.HOSTS:
        gpus = f"{len(one.gpus)} x {one.gpus[0]['product']}" if one.gpus else ""
        say(f"{one.name:<16} {one.ip:<15} {nodes.status(one) or 'absent':<9} {gpus}")
    say("faults:")
    for name, one_fault in sorted(FAULTS.items()):
        say(f"  {name:<22} {one_fault.text}")


def ssh(words: list[str]) -> None:
    """Become an ssh client to a node."""
    command = nodes.ssh_command(nodes.host(words[0]), *words[1:])
    os.execvp(command[0], command)


def clean(words: list[str]) -> None:
    """Remove everything that the bench made on this machine; without an engine, the files at least."""
    if engine_answers():
        for container in docker("ps", "--all", "--quiet", "--filter", "label=inferack.bench").splitlines():
            docker("rm", "--force", "--volumes", container, check=False)
        for kind in ("volume", "network"):
            for name in docker(kind, "ls", "--quiet", "--filter", "label=inferack.bench").splitlines():
                docker(kind, "rm", name, check=False)
        images = docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "inferack-bench/*").splitlines()
        for label in ("inferack.bench", "inferack.bench.image"):
            images += docker("image", "ls", "--quiet", "--filter", f"label={label}").splitlines()
        for image in dict.fromkeys(images):
            docker("image", "rm", "--force", image, check=False)
    else:
        say("no Docker Engine answers: only files are removed")
    if paths.state().exists():
        subprocess.run([*sudo(), "rm", "-rf", str(paths.state())], check=True)
