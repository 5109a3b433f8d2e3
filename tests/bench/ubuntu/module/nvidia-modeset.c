// SPDX-License-Identifier: MIT OR GPL-2.0
/* Stand-in for nvidia-modeset.ko: depends on nvidia.ko by one symbol. See nvidia.c. */
#include <linux/module.h>

const char *nvidia_release(void);

const char *nvidia_modeset_release(void)
{
	return nvidia_release();
}
EXPORT_SYMBOL(nvidia_modeset_release);

static int __init nvidia_modeset_init(void)
{
	return 0;
}

static void __exit nvidia_modeset_exit(void)
{
}

module_init(nvidia_modeset_init);
module_exit(nvidia_modeset_exit);
MODULE_LICENSE(NV_LICENSE);
MODULE_INFO(supported, "external");
MODULE_VERSION(NV_VERSION);
