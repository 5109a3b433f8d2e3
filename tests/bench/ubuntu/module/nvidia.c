// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Stand-in for nvidia.ko: what modinfo, depmod, DKMS and the simulated kernel read of it (name, version, licence,
 * aliases, dependencies, firmware, vermagic), and nothing else.
 */
#include <linux/module.h>
#include <linux/pci.h>

static int NVreg_ModifyDeviceFiles = 1;
module_param(NVreg_ModifyDeviceFiles, int, 0400);
static int NVreg_OpenRmEnableUnsupportedGpus = 1;
module_param(NVreg_OpenRmEnableUnsupportedGpus, int, 0400);
static char *NVreg_RegistryDwords;
module_param(NVreg_RegistryDwords, charp, 0400);

static const struct pci_device_id nvidia_ids[] = {
	{ PCI_DEVICE(0x10de, PCI_ANY_ID), .class = PCI_CLASS_DISPLAY_VGA << 8, .class_mask = ~0 },
	{ PCI_DEVICE(0x10de, PCI_ANY_ID), .class = PCI_CLASS_DISPLAY_3D << 8, .class_mask = ~0 },
	{ }
};
MODULE_DEVICE_TABLE(pci, nvidia_ids);

const char *nvidia_release(void)
{
	return NV_VERSION;
}
EXPORT_SYMBOL(nvidia_release);

static int __init nvidia_init(void)
{
	return 0;
}

static void __exit nvidia_exit(void)
{
}

module_init(nvidia_init);
module_exit(nvidia_exit);
MODULE_LICENSE(NV_LICENSE);
MODULE_INFO(supported, "external");
MODULE_VERSION(NV_VERSION);
MODULE_FIRMWARE("nvidia/" NV_VERSION "/gsp_tu10x.bin");
MODULE_FIRMWARE("nvidia/" NV_VERSION "/gsp_ga10x.bin");
