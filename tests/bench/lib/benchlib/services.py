"""The services host: registry with a login, package repositories, the LPU's stand-in."""

from __future__ import annotations

from benchlib import images, nodes
from benchlib.shell import docker_ok, say


def up() -> None:
    """Start the services host."""
    one = nodes.host(nodes.SERVICES)
    if not docker_ok("image", "inspect", images.tag(nodes.SERVICES)):
        say("  services: not built yet")
        return
    nodes.start(one)


def trust(one: nodes.Host) -> None:
    """Make a node trust the registry's certificate."""
