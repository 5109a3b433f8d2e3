"""Which kernel boots next, by what boot loaders have written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferack.rack.plugins.module_utils import _boot_kernel as boot

NEW, OLD = "6.1.0-43-amd64", "6.1.0-42-amd64"

# As grub-mkconfig 2.06 writes it, shortened.
GRUB = f"""### BEGIN /etc/grub.d/00_header ###
if [ -s $prefix/grubenv ]; then
  set have_grubenv=true
  load_env
fi
if [ "${{next_entry}}" ] ; then
   set default="${{next_entry}}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="DEFAULT"
fi
function savedefault {{
  if [ -z "${{boot_once}}" ]; then
    saved_entry="${{chosen}}"
    save_env saved_entry
  fi
}}
### BEGIN /etc/grub.d/10_linux ###
menuentry 'Debian GNU/Linux' --class debian --class os $menuentry_id_option 'gnulinux-simple-ab' {{
	load_video
	if [ x$grub_platform = xxen ]; then insmod xzio; insmod lzopio; fi
	linux	/boot/vmlinuz-{NEW} root=UUID=ab ro  quiet
	initrd	/boot/initrd.img-{NEW}
}}
submenu 'Advanced options for Debian GNU/Linux' $menuentry_id_option 'gnulinux-advanced-ab' {{
	menuentry 'Debian GNU/Linux, with Linux {NEW}' --class debian $menuentry_id_option 'gnulinux-{NEW}-advanced-ab' {{
		linux	/boot/vmlinuz-{NEW} root=UUID=ab ro  quiet
	}}
	menuentry 'Debian GNU/Linux, with Linux {NEW} (recovery mode)' $menuentry_id_option 'gnulinux-{NEW}-recovery-ab' {{
		linux	/boot/vmlinuz-{NEW} root=UUID=ab ro single
	}}
	menuentry 'Debian GNU/Linux, with Linux {OLD}' --class debian $menuentry_id_option 'gnulinux-{OLD}-advanced-ab' {{
		linux	/boot/vmlinuz-{OLD} root=UUID=ab ro  quiet
	}}
}}
### BEGIN /etc/grub.d/30_uefi-firmware ###
menuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi-firmware' {{
	fwsetup
}}
"""


@pytest.mark.parametrize(
    ("default", "environment", "release"),
    [
        ("0", "", NEW),
        ("1>2", "", OLD),
        ("1", "", NEW),
        ("1>9", "", NEW),  # GRUB takes the first entry for one that is not there
        (f"gnulinux-advanced-ab>gnulinux-{OLD}-advanced-ab", "", OLD),
        (f"Advanced options for Debian GNU/Linux>Debian GNU/Linux, with Linux {OLD}", "", OLD),
        ("${saved_entry}", "", NEW),
        ("${saved_entry}", f"saved_entry=gnulinux-advanced-ab>gnulinux-{OLD}-advanced-ab\n", OLD),
        ("0", f"saved_entry=gnulinux-advanced-ab>gnulinux-{OLD}-advanced-ab\n", NEW),
        ("0", "next_entry=1>2\n", OLD),
        ("2", "", NEW),  # firmware settings boot no kernel
    ],
)
def test_grub(default: str, environment: str, release: str) -> None:
    text = f"# GRUB Environment Block\n{environment}####"
    assert boot.default_release(GRUB.replace("DEFAULT", default), text, {}, [NEW, OLD]) == release


def test_a_kernel_that_is_gone_does_not_boot() -> None:
    assert boot.default_release(GRUB.replace("DEFAULT", "0"), "", {}, [OLD]) is None
    assert boot.default_release("", "", {}, [NEW, OLD]) is None


BLS = 'set default="${saved_entry}"\nblscfg\n'
LOADER = {
    "ab-6.6.0-72.0.0.76.oe2403sp1.x86_64": "title openEuler\nversion 6.6.0-72.0.0.76.oe2403sp1.x86_64\nlinux /vmlinuz-x\n",
    "ab-6.6.0-98.0.0.103.oe2403sp2.x86_64": "title openEuler\nlinux /vmlinuz-6.6.0-98.0.0.103.oe2403sp2.x86_64\n",
    "ab-0-rescue": "title rescue\nversion 0-rescue-ab\n",
}
SP1, SP2 = "6.6.0-72.0.0.76.oe2403sp1.x86_64", "6.6.0-98.0.0.103.oe2403sp2.x86_64"


@pytest.mark.parametrize(
    ("environment", "release"),
    [
        ("", SP2),
        (f"saved_entry=ab-{SP1}\n", SP1),
        ("saved_entry=0\n", SP2),
        ("saved_entry=1\n", SP1),
        ("saved_entry=gone\n", SP2),
    ],
)
def test_boot_loader_specification(environment: str, release: str) -> None:
    assert boot.default_release(BLS, environment, LOADER, [SP1, SP2]) == release


def test_menu_as_a_tree() -> None:
    menu = boot.parse_grub_config(GRUB)
    assert [entry.title for entry in menu] == [
        "Debian GNU/Linux",
        "Advanced options for Debian GNU/Linux",
        "UEFI Firmware Settings",
    ]
    assert [entry.release for entry in menu[1].children] == [NEW, NEW, OLD]
    assert menu[2].release is None


@pytest.mark.parametrize(
    ("path", "release"),
    [
        ("/boot/vmlinuz-6.1.0-42-amd64", "6.1.0-42-amd64"),
        ("vmlinuz-6.6.0-72.0.0.76.oe2403sp1.x86_64", SP1),
        ("/vmlinuz", None),
        ("initrd.img-6.1.0-42-amd64", None),
    ],
)
def test_image_release(path: str, release: str | None) -> None:
    assert boot.image_release(path) == release


@given(st.text(max_size=300), st.text(max_size=100))
def test_no_text_upsets_the_readers(config: str, environment: str) -> None:
    boot.default_release(config, environment, {"a": config}, [NEW])
