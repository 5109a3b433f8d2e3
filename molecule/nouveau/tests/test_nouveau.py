"""nouveau stays away: in the files, in the image, in memory, and after another boot."""

from __future__ import annotations

import pytest
from rack_node import reboot

FILE = "/etc/modprobe.d/inferack-nouveau.conf"


def image(host) -> str:
    release = host.check_output("uname -r")
    for path in (f"/boot/initrd.img-{release}", f"/boot/initramfs-{release}.img"):
        if host.file(path).exists:
            return path
    pytest.fail(f"no initramfs of {release} in /boot: {host.check_output('ls /boot')}")


def contents(host) -> list[str]:
    """Paths in the image."""
    tool = "lsinitramfs" if host.exists("lsinitramfs") else "lsinitrd"
    with host.sudo():
        return [line.split()[-1] for line in host.check_output("%s %s", tool, image(host)).splitlines() if line.split()]


def is_loaded(host) -> bool:
    return host.file("/sys/module/nouveau").exists


def bound(host) -> str:
    return host.check_output(
        "for d in /sys/bus/pci/devices/*/driver; do if [ -e $d ]; then basename $(readlink -f $d); fi; done"
    )


def test_both_lines_are_in_force(host) -> None:
    with host.sudo():
        file = host.file(FILE)
        lines = file.content_string.splitlines()
        assert (file.user, file.group, file.mode) == ("root", "root", 0o644)
        assert "blacklist nouveau" in lines
        assert "options nouveau modeset=0" in lines
        shown = host.check_output("PATH=$PATH:/usr/sbin:/sbin modprobe --showconfig").splitlines()
    assert "blacklist nouveau" in shown
    assert "options nouveau modeset=0" in shown


def test_the_image_does_not_bring_it_back(host) -> None:
    names = contents(host)
    assert len(names) > 20, names
    has_module = any("/nouveau.ko" in name for name in names)
    has_file = any(name.lstrip("./") == FILE.lstrip("/") for name in names)
    assert has_file or not has_module, [name for name in names if "nouveau" in name or "modprobe.d" in name]


def test_the_first_image_is_kept_once(host) -> None:
    name = image(host).rsplit("/", 1)[-1]
    with host.sudo():
        kept = host.file(f"/var/backups/inferack/{name}")
        assert kept.is_file
        assert kept.size > 1000
        assert kept.mode == 0o600
        listed = host.check_output("ls /var/backups/inferack").split()
        assert [entry for entry in listed if name in entry] == [name]


def test_it_is_not_loaded(host) -> None:
    assert not is_loaded(host), host.check_output("ls /sys/module")
    assert "nouveau" not in bound(host)


def test_it_is_not_loaded_after_another_boot(host) -> None:
    reboot(host)
    assert not is_loaded(host), host.run("journalctl -b -t kernel --no-pager").stdout
    assert "nouveau" not in bound(host)
