// SPDX-License-Identifier: MIT OR GPL-2.0
/* Stand-in for nvidia-drm.ko: depends on nvidia-modeset.ko by one symbol. See nvidia.c. */
#include <linux/module.h>

const char *nvidia_modeset_release(void);

static bool modeset;
module_param(modeset, bool, 0400);

static int __init nvidia_drm_init(void)
{
	return nvidia_modeset_release() ? 0 : -ENODEV;
}

static void __exit nvidia_drm_exit(void)
{
}

module_init(nvidia_drm_init);
module_exit(nvidia_drm_exit);
MODULE_LICENSE(NV_LICENSE);
MODULE_INFO(supported, "external");
MODULE_VERSION(NV_VERSION);
