// SPDX-License-Identifier: GPL-2.0
/*
 * Stand-in for the nouveau driver: what the tools around a kernel read of a module (name, aliases, parameters, vermagic,
 * the symbol by which dracut finds graphics drivers), and nothing else. It is never loaded into a real kernel.
 */
#include <linux/module.h>
#include <linux/pci.h>

extern int standin_drm_dev_register(void);

static int modeset = -1;
module_param(modeset, int, 0400);
MODULE_PARM_DESC(modeset, "enable driver (default: auto, 0 = disabled, 1 = enabled, 2 = headless)");

static const struct pci_device_id nouveau_ids[] = {
	{ PCI_DEVICE(0x10de, PCI_ANY_ID), .class = PCI_BASE_CLASS_DISPLAY << 16, .class_mask = 0xff << 16 },
	{ }
};
MODULE_DEVICE_TABLE(pci, nouveau_ids);

static int __init nouveau_init(void)
{
	return modeset ? standin_drm_dev_register() : -ENODEV;
}

static void __exit nouveau_exit(void)
{
}

module_init(nouveau_init);
module_exit(nouveau_exit);
MODULE_DESCRIPTION("nouveau (stand-in)");
MODULE_LICENSE("GPL");
