// SPDX-License-Identifier: MIT OR GPL-2.0
/* Stand-in for nvidia-uvm.ko: depends on nvidia.ko by one symbol. See nvidia.c. */
#include <linux/module.h>

const char *nvidia_release(void);

static int uvm_disable_hmm;
module_param(uvm_disable_hmm, int, 0400);

static int __init nvidia_uvm_init(void)
{
	return nvidia_release() ? 0 : -ENODEV;
}

static void __exit nvidia_uvm_exit(void)
{
}

module_init(nvidia_uvm_init);
module_exit(nvidia_uvm_exit);
MODULE_LICENSE(NV_UVM_LICENSE);
MODULE_VERSION(NV_VERSION);
