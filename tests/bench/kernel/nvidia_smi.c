/* The bench's nvidia-smi. It answers as the real one does, from what a simulated nvidia module shows:
 *   /proc/driver/nvidia/version               the loaded module's version
 *   /proc/driver/nvidia/gpus/<bus id>/simulated   what a GPU would answer (key=value)
 *   libnvidia-ml.so.<version>                 the user-space version, by the library's file name
 *   /dev/nvidia<minor>                        a GPU whose node is absent is not visible here (containers)
 * Words and exit codes are those of the real program: 2 usage, 6 no device, 9 no driver, 12 no library,
 * 15 GPU lost, 18 versions differ. XML layout: nvsmi_device_v12.dtd. Linked statically: it runs in any container. */
#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define MAX_GPUS 32
#define PROC "/proc/driver/nvidia"
#define PERSISTENCE PROC "/simulated_persistence"

struct gpu {
	char bus[32], state[16], product[96], architecture[32], uuid[64], serial[32], vbios[32], device_id[8],
		subsystem_id[16], class[8];
	int memory_mib, minor, power_w, clock_mhz, memory_clock_mhz, pcie;
};

static struct gpu gpus[MAX_GPUS];
static int gpu_count;
static char driver[64], library[64];
static const char *chosen;

/* Read a whole small file; empty text when it cannot be read. */
static char *slurp(const char *path)
{
	static char text[8192];
	FILE *file = fopen(path, "r");
	size_t length = 0;

	if (file) {
		length = fread(text, 1, sizeof text - 1, file);
		fclose(file);
	}
	text[length] = 0;
	return text;
}

/* Copy the first word that looks like a version (535.309, 580.82.07) out of a text. */
static int find_version(const char *text, char *into, size_t size)
{
	for (const char *at = text; *at; at++) {
		size_t length = strspn(at, "0123456789.");

		if (length >= 5 && length < size && memchr(at, '.', length) && isdigit((unsigned char)at[length - 1]) &&
		    (at == text || isspace((unsigned char)at[-1]))) {
			memcpy(into, at, length);
			into[length] = 0;
			return 1;
		}
		at += length ? length - 1 : 0;
	}
	return 0;
}

/* The version in a name like libnvidia-ml.so.535.309, if it carries one. */
static int version_of_name(const char *path)
{
	const char *name = strrchr(path, '/'), *at;

	name = name ? name + 1 : path;
	if (strncmp(name, "libnvidia-ml.so.", 16))
		return 0;
	at = name + 16;
	if (!strchr(at, '.') || strspn(at, "0123456789.") != strlen(at))
		return 0;
	snprintf(library, sizeof library, "%s", at);
	return 1;
}

/* Find libnvidia-ml: what libnvidia-ml.so.1 leads to, else a versioned file (containers without an ldconfig run). */
static int find_library(void)
{
	static const char *const folders[] = {
		"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/lib64", "/lib/x86_64-linux-gnu",
		"/lib/aarch64-linux-gnu", "/usr/lib", "/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu/nvidia/current",
		"/usr/lib/aarch64-linux-gnu/nvidia/current",
	};
	char path[PATH_MAX + 300], real[PATH_MAX];

	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
			DIR *folder;
			struct dirent *entry;

			if (pass == 0) {
				snprintf(path, sizeof path, "%s/libnvidia-ml.so.1", folders[i]);
				if (realpath(path, real) && version_of_name(real))
					return 1;
				continue;
			}
			folder = opendir(folders[i]);
			while (folder && (entry = readdir(folder)))
				if (version_of_name(entry->d_name)) {
					closedir(folder);
					return 1;
				}
			if (folder)
				closedir(folder);
		}
	return 0;
}

static void set_text(char *into, size_t size, const char *from) { snprintf(into, size, "%s", from); }

static void read_gpu(const char *bus)
{
	struct gpu *gpu = &gpus[gpu_count];
	char path[PATH_MAX], *line, *rest;

	snprintf(path, sizeof path, PROC "/gpus/%s/simulated", bus);
	memset(gpu, 0, sizeof *gpu);
	set_text(gpu->bus, sizeof gpu->bus, bus);
	for (line = strtok_r(slurp(path), "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		char *value = strchr(line, '=');

		if (!value)
			continue;
		*value++ = 0;
#define TEXT(key) if (!strcmp(line, #key)) set_text(gpu->key, sizeof gpu->key, value)
#define NUMBER(key) if (!strcmp(line, #key)) gpu->key = atoi(value)
		TEXT(state); TEXT(product); TEXT(architecture); TEXT(uuid); TEXT(serial); TEXT(vbios); TEXT(device_id);
		TEXT(subsystem_id); TEXT(class);
		NUMBER(memory_mib); NUMBER(minor); NUMBER(power_w); NUMBER(clock_mhz); NUMBER(memory_clock_mhz); NUMBER(pcie);
	}
	for (char *at = gpu->bus; *at; at++)
		*at = (char)toupper((unsigned char)*at);
	snprintf(path, sizeof path, "/dev/nvidia%d", gpu->minor);
	if (gpu->uuid[0] && access(path, F_OK) == 0)
		gpu_count++;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void read_gpus(void)
{
	char *names[MAX_GPUS];
	int count = 0;
	DIR *folder = opendir(PROC "/gpus");
	struct dirent *entry;

	while (folder && (entry = readdir(folder)) && count < MAX_GPUS)
		if (entry->d_name[0] != '.')
			names[count++] = strdup(entry->d_name);
	if (folder)
		closedir(folder);
	qsort(names, (size_t)count, sizeof *names, by_name);
	for (int i = 0; i < count; i++) {
		read_gpu(names[i]);
		free(names[i]);
	}
}

static const char *cuda_version(void)
{
	/* Branch to CUDA version, as nvidia-smi of that branch prints it. */
	static const struct { int branch; const char *cuda; } table[] = {
		{620, "13.4"}, {610, "13.3"}, {595, "13.2"}, {590, "13.1"}, {580, "13.0"}, {575, "12.9"}, {570, "12.8"},
		{565, "12.7"}, {560, "12.6"}, {555, "12.5"}, {550, "12.4"}, {545, "12.3"}, {535, "12.2"}, {530, "12.1"},
		{525, "12.0"}, {515, "11.7"}, {470, "11.4"},
	};
	int branch = atoi(library);

	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (branch >= table[i].branch)
			return table[i].cuda;
	return "N/A";
}

static int lost(const struct gpu *gpu) { return !strcmp(gpu->state, "lost"); }
static int bad_memory(const struct gpu *gpu) { return !strcmp(gpu->state, "ecc"); }
static int persistent(void) { return access(PERSISTENCE, F_OK) == 0; }
static int used_mib(const struct gpu *gpu) { return gpu->memory_mib > 40000 ? 4 : 1; }
static int reserved_mib(const struct gpu *gpu) { return gpu->memory_mib / 130; }
static int temperature(const struct gpu *gpu) { return 29 + gpu->minor % 7; }
static double power(const struct gpu *gpu) { return gpu->power_w / 10.0 + gpu->minor % 5 * 0.7; }

/* Whether -i ID means this GPU: index, UUID, serial or bus id. */
static int is_chosen(const struct gpu *gpu, int index)
{
	char text[256], *part, *rest;

	if (!chosen)
		return 1;
	snprintf(text, sizeof text, "%s", chosen);
	for (part = strtok_r(text, ",", &rest); part; part = strtok_r(NULL, ",", &rest)) {
		char *end;
		long number = strtol(part, &end, 10);
		size_t length = strlen(part), whole = strlen(gpu->bus);

		if ((!*end && number == index) || !strcasecmp(part, gpu->uuid) || !strcmp(part, gpu->serial))
			return 1;
		if (length >= 7 && length <= whole + 4 && strchr(part, ':') &&
		    !strcasecmp(part + (length > whole ? length - whole : 0), gpu->bus + (whole > length ? whole - length : 0)))
			return 1;
	}
	return 0;
}

/* A bus id as nvidia-smi prints it: the domain has eight digits. */
static const char *long_bus(const struct gpu *gpu)
{
	static char text[48];

	snprintf(text, sizeof text, "0000%s", gpu->bus);
	return text;
}

/* Refuse as the real program does when driver, library and devices do not fit. */
static void initialise(void)
{
	if (!find_library()) {
		puts("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display "
		     "Driver is properly installed and present in your system.\nPlease also try adding directory that contains "
		     "libnvidia-ml.so to your system PATH.");
		exit(12);
	}
	if (!find_version(slurp(PROC "/version"), driver, sizeof driver) || access("/dev/nvidiactl", F_OK)) {
		puts("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
		     "NVIDIA driver is installed and running.\n");
		exit(9);
	}
	if (strcmp(driver, library)) {
		char *dot = strchr(library, '.');

		dot = dot ? strchr(dot + 1, '.') : NULL;
		printf("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: %.*s\n",
		       dot ? (int)(dot - library) : (int)strlen(library), library);
		exit(18);
	}
	read_gpus();
	if (!gpu_count) {
		puts("No devices were found");
		exit(6);
	}
	for (int i = 0; i < gpu_count; i++)
		if (lost(&gpus[i])) {
			printf("Unable to determine the device handle for GPU%s: GPU is lost.  Reboot the system to recover this GPU\n",
			       gpus[i].bus);
			exit(15);
		}
	if (chosen) {
		int found = 0;

		for (int i = 0; i < gpu_count; i++)
			found += is_chosen(&gpus[i], i);
		if (!found) {
			puts("No devices were found");
			exit(6);
		}
	}
}

static void list(void)
{
	for (int i = 0; i < gpu_count; i++)
		if (is_chosen(&gpus[i], i))
			printf("GPU %d: %s (UUID: %s)\n", i, gpus[i].product, gpus[i].uuid);
}

static void now(char *text, size_t size, const char *format)
{
	time_t seconds = time(NULL);

	strftime(text, size, format, localtime(&seconds));
}

static void repeat(char letter, int count)
{
	while (count-- > 0)
		putchar(letter);
}

/* The plain table; its middle column is two wider from 550 on. */
static void table(void)
{
	int wide = atoi(driver) >= 550 ? 2 : 0;
	char text[64], cell[64];

	now(text, sizeof text, "%a %b %e %H:%M:%S %Y");
	printf("%s       \n+", text);
	repeat('-', 87 + wide);
	printf("+\n| NVIDIA-SMI %-22s Driver Version: %-12s %sCUDA Version: %-8s |\n%c", library, driver, wide ? "  " : "",
	       cuda_version(), wide ? '+' : '|');
	repeat('-', 41);
	putchar('+');
	repeat('-', 22 + wide);
	printf("+----------------------+\n");
	printf("| GPU  Name                 Persistence-M | Bus-Id        %sDisp.A | Volatile Uncorr. ECC |\n", wide ? "  " : "");
	printf("| Fan  Temp   Perf          Pwr:Usage/Cap | %s        Memory-Usage | GPU-Util  Compute M. |\n", wide ? "  " : "");
	printf("|                                         |                      %s|               MIG M. |\n|", wide ? "  " : "");
	repeat('=', 41);
	putchar('+');
	repeat('=', 22 + wide);
	printf("+======================|\n");
	for (int i = 0; i < gpu_count; i++) {
		struct gpu *gpu = &gpus[i];

		if (!is_chosen(gpu, i))
			continue;
		printf("| %3d  %-27.27s    %3s | %s%s Off | %20d |\n", i, gpu->product, persistent() ? "On " : "Off",
		       wide ? "  " : "", long_bus(gpu), bad_memory(gpu) ? 3 : 0);
		snprintf(cell, sizeof cell, "%.0fW / %4dW", power(gpu), gpu->power_w);
		snprintf(text, sizeof text, "%dMiB / %6dMiB", used_mib(gpu), gpu->memory_mib);
		printf("| N/A  %3dC    P0   %21s | %*s | %6d%%      Default |\n", temperature(gpu), cell, 20 + wide, text, 0);
		printf("|                                         | %*s | %20s |\n+", 20 + wide, "",
		       !strcmp(gpu->architecture, "Ampere") || !strcmp(gpu->architecture, "Hopper") ? "Disabled" : "N/A");
		repeat('-', 41);
		putchar('+');
		repeat('-', 22 + wide);
		printf("+----------------------+\n");
	}
	printf("%*s\n+", 89 + wide, "");
	repeat('-', 87 + wide);
	printf("+\n| %-*s |\n", 85 + wide, "Processes:");
	printf("| %-*s |\n", 85 + wide, " GPU   GI   CI        PID   Type   Process name                            GPU Memory");
	printf("| %-*s |\n|", 85 + wide, "       ID   ID                                                             Usage");
	repeat('=', 87 + wide);
	printf("|\n| %-*s |\n+", 85 + wide, " No running processes found");
	repeat('-', 87 + wide);
	printf("+\n");
}

/* --- -q -x ------------------------------------------------------------------------------------------------------ */

static int depth;

static void open_tag(const char *tag) { repeat('\t', depth++); printf("<%s>\n", tag); }
static void close_tag(const char *tag) { repeat('\t', --depth); printf("</%s>\n", tag); }

__attribute__((format(printf, 2, 3))) static void leaf(const char *tag, const char *format, ...)
{
	va_list list;

	repeat('\t', depth);
	printf("<%s>", tag);
	va_start(list, format);
	vprintf(format, list);
	va_end(list);
	printf("</%s>\n", tag);
}

/* A group whose leaves, named one after the other, all say the same. */
static void group(const char *tag, const char *value, const char *names)
{
	char text[512], *name, *rest;

	open_tag(tag);
	snprintf(text, sizeof text, "%s", names);
	for (name = strtok_r(text, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
		leaf(name, "%s", value);
	close_tag(tag);
}

static void xml_ecc(const struct gpu *gpu)
{
	int turing = strcmp(gpu->architecture, "Volta") != 0;

	open_tag("ecc_errors");
	for (int i = 0; i < 2; i++) {
		open_tag(i ? "aggregate" : "volatile");
		if (turing) {
			leaf("sram_correctable", "0");
			leaf("sram_uncorrectable", "0");
			leaf("dram_correctable", "0");
			leaf("dram_uncorrectable", "%d", bad_memory(gpu) ? 3 : 0);
		} else {
			for (int single = 1; single >= 0; single--) {
				const char *count = bad_memory(gpu) && !single ? "3" : "0";

				open_tag(single ? "single_bit" : "double_bit");
				leaf("device_memory", "%s", count);
				leaf("register_file", "0");
				leaf("l1_cache", "0");
				leaf("l2_cache", "0");
				leaf("texture_memory", "N/A");
				leaf("texture_shm", "N/A");
				leaf("cbu", "N/A");
				leaf("total", "%s", count);
				close_tag(single ? "single_bit" : "double_bit");
			}
		}
		close_tag(i ? "aggregate" : "volatile");
	}
	close_tag("ecc_errors");
}

static void xml_pci(const struct gpu *gpu)
{
	open_tag("pci");
	leaf("pci_bus", "%.2s", gpu->bus + 5);
	leaf("pci_device", "%.2s", gpu->bus + 8);
	leaf("pci_domain", "%.4s", gpu->bus);
	leaf("pci_base_class", "3");
	leaf("pci_sub_class", "%c", gpu->class[3] ? gpu->class[3] : '0');
	leaf("pci_device_id", "%s10DE", gpu->device_id);
	leaf("pci_bus_id", "%s", long_bus(gpu));
	leaf("pci_sub_system_id", "%s", gpu->subsystem_id);
	open_tag("pci_gpu_link_info");
	open_tag("pcie_gen");
	leaf("max_link_gen", "%d", gpu->pcie);
	leaf("current_link_gen", "%d", gpu->pcie);
	leaf("device_current_link_gen", "%d", gpu->pcie);
	leaf("max_device_link_gen", "%d", gpu->pcie);
	leaf("max_host_link_gen", "N/A");
	close_tag("pcie_gen");
	open_tag("link_widths");
	leaf("max_link_width", "16x");
	leaf("current_link_width", "16x");
	close_tag("link_widths");
	close_tag("pci_gpu_link_info");
	group("pci_bridge_chip", "N/A", "bridge_chip_type bridge_chip_fw");
	leaf("replay_counter", "0");
	leaf("replay_rollover_counter", "0");
	leaf("tx_util", "0 KB/s");
	leaf("rx_util", "0 KB/s");
	leaf("atomic_caps_inbound", "N/A");
	leaf("atomic_caps_outbound", "N/A");
	close_tag("pci");
}

static void xml_state(const struct gpu *gpu)
{
	leaf("fan_speed", "N/A");
	leaf("performance_state", "P0");
	open_tag("clocks_event_reasons");
	leaf("clocks_event_reason_gpu_idle", "Active");
	for (const char *const *name = (const char *const[]){"applications_clocks_setting", "sw_power_cap", "hw_slowdown",
		     "hw_thermal_slowdown", "hw_power_brake_slowdown", "sync_boost", "sw_thermal_slowdown",
		     "display_clocks_setting", NULL}; *name; name++) {
		char tag[96];

		snprintf(tag, sizeof tag, "clocks_event_reason_%s", *name);
		leaf(tag, "Not Active");
	}
	close_tag("clocks_event_reasons");
	open_tag("fb_memory_usage");
	leaf("total", "%d MiB", gpu->memory_mib);
	leaf("reserved", "%d MiB", reserved_mib(gpu));
	leaf("used", "%d MiB", used_mib(gpu));
	leaf("free", "%d MiB", gpu->memory_mib - reserved_mib(gpu) - used_mib(gpu));
	close_tag("fb_memory_usage");
	open_tag("bar1_memory_usage");
	leaf("total", "131072 MiB");
	leaf("used", "1 MiB");
	leaf("free", "131071 MiB");
	close_tag("bar1_memory_usage");
	group("cc_protected_memory_usage", "0 MiB", "total used free");
	leaf("compute_mode", "Default");
	group("utilization", "0 %", "gpu_util memory_util encoder_util decoder_util jpeg_util ofa_util");
	group("encoder_stats", "0", "session_count average_fps average_latency");
	group("fbc_stats", "0", "session_count average_fps average_latency");
	group("ecc_mode", "Enabled", "current_ecc pending_ecc");
	xml_ecc(gpu);
	open_tag("retired_pages");
	group("multiple_single_bit_retirement", "N/A", "retired_count retired_pagelist");
	group("double_bit_retirement", "N/A", "retired_count retired_pagelist");
	leaf("pending_blacklist", "N/A");
	leaf("pending_retirement", "N/A");
	close_tag("retired_pages");
	open_tag("remapped_rows");
	leaf("remapped_row_corr", "0");
	leaf("remapped_row_unc", "0");
	leaf("remapped_row_pending", "No");
	leaf("remapped_row_failure", "No");
	close_tag("remapped_rows");
	open_tag("temperature");
	leaf("gpu_temp", "%d C", temperature(gpu));
	leaf("gpu_temp_tlimit", "%d C", 87 - temperature(gpu));
	leaf("gpu_temp_max_tlimit_threshold", "-8 C");
	leaf("gpu_temp_slow_tlimit_threshold", "-2 C");
	leaf("gpu_temp_max_gpu_tlimit_threshold", "0 C");
	leaf("gpu_target_temperature", "N/A");
	leaf("memory_temp", "%d C", temperature(gpu) + 8);
	leaf("gpu_temp_max_mem_tlimit_threshold", "0 C");
	close_tag("temperature");
	open_tag("gpu_power_readings");
	leaf("power_state", "P0");
	leaf("power_draw", "%.2f W", power(gpu));
	leaf("current_power_limit", "%d.00 W", gpu->power_w);
	leaf("requested_power_limit", "%d.00 W", gpu->power_w);
	leaf("default_power_limit", "%d.00 W", gpu->power_w);
	leaf("min_power_limit", "%d.00 W", gpu->power_w * 2 / 7);
	leaf("max_power_limit", "%d.00 W", gpu->power_w);
	close_tag("gpu_power_readings");
	open_tag("clocks");
	leaf("graphics_clock", "345 MHz");
	leaf("sm_clock", "345 MHz");
	leaf("mem_clock", "%d MHz", gpu->memory_clock_mhz);
	leaf("video_clock", "765 MHz");
	close_tag("clocks");
	open_tag("max_clocks");
	leaf("graphics_clock", "%d MHz", gpu->clock_mhz);
	leaf("sm_clock", "%d MHz", gpu->clock_mhz);
	leaf("mem_clock", "%d MHz", gpu->memory_clock_mhz);
	leaf("video_clock", "1545 MHz");
	close_tag("max_clocks");
	open_tag("fabric");
	leaf("state", "N/A");
	leaf("status", "N/A");
	close_tag("fabric");
}

static void xml_gpu(const struct gpu *gpu)
{
	int mig = !strcmp(gpu->architecture, "Ampere") || !strcmp(gpu->architecture, "Hopper");

	repeat('\t', depth++);
	printf("<gpu id=\"%s\">\n", long_bus(gpu));
	leaf("product_name", "%s", gpu->product);
	leaf("product_brand", "NVIDIA");
	leaf("product_architecture", "%s", gpu->architecture);
	leaf("display_mode", "Enabled");
	leaf("display_active", "Disabled");
	leaf("persistence_mode", "%s", persistent() ? "Enabled" : "Disabled");
	leaf("addressing_mode", "None");
	group("mig_mode", mig ? "Disabled" : "N/A", "current_mig pending_mig");
	repeat('\t', depth);
	printf("<mig_devices>\n");
	repeat('\t', depth + 1);
	printf("None\n");
	repeat('\t', depth);
	printf("</mig_devices>\n");
	leaf("accounting_mode", "Disabled");
	leaf("accounting_mode_buffer_size", "4000");
	group("driver_model", "N/A", "current_dm pending_dm");
	leaf("serial", "%s", gpu->serial);
	leaf("uuid", "%s", gpu->uuid);
	leaf("minor_number", "%d", gpu->minor);
	leaf("vbios_version", "%s", gpu->vbios);
	leaf("multigpu_board", "No");
	leaf("board_id", "0x%.2s00", gpu->bus + 5);
	leaf("board_part_number", "N/A");
	leaf("gpu_part_number", "%s-885-A1", gpu->device_id);
	leaf("gpu_fru_part_number", "N/A");
	group("inforom_version", "N/A", "img_version oem_object ecc_object pwr_object");
	group("gpu_operation_mode", "N/A", "current_gom pending_gom");
	leaf("gsp_firmware_version", "%s", driver);
	open_tag("gpu_virtualization_mode");
	leaf("virtualization_mode", "None");
	leaf("host_vgpu_mode", "N/A");
	close_tag("gpu_virtualization_mode");
	group("gpu_reset_status", "No", "reset_required drain_and_reset_recommended");
	xml_pci(gpu);
	xml_state(gpu);
	repeat('\t', depth);
	printf("<processes>\n");
	repeat('\t', depth);
	printf("</processes>\n");
	repeat('\t', depth);
	printf("<accounted_processes>\n");
	repeat('\t', depth);
	printf("</accounted_processes>\n");
	close_tag("gpu");
}

static void xml(void)
{
	char text[64];

	now(text, sizeof text, "%a %b %e %H:%M:%S %Y");
	printf("<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n");
	open_tag("nvidia_smi_log");
	leaf("timestamp", "%s", text);
	leaf("driver_version", "%s", driver);
	leaf("cuda_version", "%s", cuda_version());
	leaf("attached_gpus", "%d", gpu_count);
	for (int i = 0; i < gpu_count; i++)
		if (is_chosen(&gpus[i], i))
			xml_gpu(&gpus[i]);
	close_tag("nvidia_smi_log");
}

/* --- --query-gpu ------------------------------------------------------------------------------------------------ */

/* A field's value without its unit, and the unit ("" for none). 0 when there is no such field. */
static int field(const char *name, const struct gpu *gpu, int index, char *value, size_t size, const char **unit)
{
	static const char *const same[][2] = {
		{"gpu_name", "name"}, {"gpu_uuid", "uuid"}, {"gpu_serial", "serial"}, {"gpu_bus_id", "pci.bus_id"},
		{"clocks.gr", "clocks.current.graphics"}, {"clocks.sm", "clocks.current.sm"},
		{"clocks.mem", "clocks.current.memory"}, {"clocks.max.gr", "clocks.max.graphics"},
		{"clocks.max.mem", "clocks.max.memory"}, {"power.draw.average", "power.draw"},
		{"power.draw.instant", "power.draw"}, {"enforced.power.limit", "power.limit"},
		{"power.default_limit", "power.limit"}, {"power.max_limit", "power.limit"},
		{"pcie.link.gen.current", "pcie.link.gen.max"}, {"pcie.link.gen.gpucurrent", "pcie.link.gen.max"},
		{"pcie.link.gen.gpumax", "pcie.link.gen.max"}, {"pcie.link.width.current", "pcie.link.width.max"},
		{"mig.mode.pending", "mig.mode.current"}, {"ecc.mode.pending", "ecc.mode.current"},
	};
	int mig = !strcmp(gpu->architecture, "Ampere") || !strcmp(gpu->architecture, "Hopper");

	for (size_t i = 0; i < sizeof same / sizeof *same; i++)
		if (!strcmp(name, same[i][0]))
			name = same[i][1];
	*unit = "";
#define FIELD(key, ...) if (!strcmp(name, key)) { snprintf(value, size, __VA_ARGS__); return 1; }
#define UNIT(key, of, ...) if (!strcmp(name, key)) { snprintf(value, size, __VA_ARGS__); *unit = of; return 1; }
	if (!strcmp(name, "timestamp")) { now(value, size, "%Y/%m/%d %H:%M:%S.000"); return 1; }
	FIELD("index", "%d", index)
	FIELD("count", "%d", gpu_count)
	FIELD("name", "%s", gpu->product)
	FIELD("uuid", "%s", gpu->uuid)
	FIELD("serial", "%s", gpu->serial)
	FIELD("driver_version", "%s", driver)
	FIELD("vbios_version", "%s", gpu->vbios)
	FIELD("pci.bus_id", "%s", long_bus(gpu))
	FIELD("pci.domain", "0x%.4s", gpu->bus)
	FIELD("pci.bus", "0x%.2s", gpu->bus + 5)
	FIELD("pci.device", "0x%.2s", gpu->bus + 8)
	FIELD("pci.device_id", "0x%s10DE", gpu->device_id)
	FIELD("pci.sub_device_id", "0x%s", gpu->subsystem_id)
	FIELD("pstate", "P0")
	FIELD("compute_mode", "Default")
	FIELD("persistence_mode", "%s", persistent() ? "Enabled" : "Disabled")
	FIELD("display_active", "Disabled")
	FIELD("display_mode", "Enabled")
	FIELD("accounting.mode", "Disabled")
	FIELD("mig.mode.current", "%s", mig ? "Disabled" : "[N/A]")
	FIELD("ecc.mode.current", "Enabled")
	FIELD("gsp.mode.current", "Enabled")
	FIELD("compute_cap", "%s", !strcmp(gpu->architecture, "Hopper") ? "9.0" : !strcmp(gpu->architecture, "Ampere") ? "8.0" :
	      !strcmp(gpu->architecture, "Volta") ? "7.0" : "8.9")
	FIELD("pcie.link.gen.max", "%d", gpu->pcie)
	FIELD("pcie.link.width.max", "16")
	FIELD("temperature.gpu", "%d", temperature(gpu))
	FIELD("temperature.memory", "%d", temperature(gpu) + 8)
	UNIT("memory.total", "MiB", "%d", gpu->memory_mib)
	UNIT("memory.reserved", "MiB", "%d", reserved_mib(gpu))
	UNIT("memory.used", "MiB", "%d", used_mib(gpu))
	UNIT("memory.free", "MiB", "%d", gpu->memory_mib - reserved_mib(gpu) - used_mib(gpu))
	UNIT("utilization.gpu", "%", "0")
	UNIT("utilization.memory", "%", "0")
	UNIT("power.draw", "W", "%.2f", power(gpu))
	UNIT("power.limit", "W", "%d.00", gpu->power_w)
	UNIT("clocks.current.graphics", "MHz", "345")
	UNIT("clocks.current.sm", "MHz", "345")
	UNIT("clocks.current.video", "MHz", "765")
	UNIT("clocks.current.memory", "MHz", "%d", gpu->memory_clock_mhz)
	UNIT("clocks.max.graphics", "MHz", "%d", gpu->clock_mhz)
	UNIT("clocks.max.sm", "MHz", "%d", gpu->clock_mhz)
	UNIT("clocks.max.memory", "MHz", "%d", gpu->memory_clock_mhz)
	FIELD("fan.speed", "[N/A]")
	if (!strncmp(name, "retired_pages.", 14)) { snprintf(value, size, "[N/A]"); return 1; }
	if (!strncmp(name, "remapped_rows.", 14)) { snprintf(value, size, "0"); return 1; }
	if (!strncmp(name, "ecc.errors.corrected.", 21)) { snprintf(value, size, "0"); return 1; }
	if (!strncmp(name, "ecc.errors.uncorrected.", 23)) {
		snprintf(value, size, "%d", bad_memory(gpu) && !strstr(name, "sram") ? 3 : 0);
		return 1;
	}
	return 0;
}

static void query(const char *names, const char *format)
{
	int header = !strstr(format, "noheader"), units = !strstr(format, "nounits");
	char text[2048], value[160], *name, *rest;
	const char *unit;

	if (strncmp(format, "csv", 3)) {
		puts("Only --format=csv is supported, with noheader and nounits as options.");
		exit(2);
	}
	for (int row = header ? -1 : 0; row < gpu_count; row++) {
		const char *comma = "";

		if (row >= 0 && !is_chosen(&gpus[row], row))
			continue;
		snprintf(text, sizeof text, "%s", names);
		for (name = strtok_r(text, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
			while (*name == ' ')
				name++;
			if (!field(name, &gpus[row < 0 ? 0 : row], row, value, sizeof value, &unit)) {
				printf("Field \"%s\" is not a valid field to query.\n\n", name);
				exit(2);
			}
			if (row < 0)
				printf(*unit ? "%s%s [%s]" : "%s%s", comma, name, unit);
			else
				printf(*unit && units ? "%s%s %s" : "%s%s", comma, value, unit);
			comma = ", ";
		}
		putchar('\n');
	}
}

/* -pm 0|1: the driver keeps its state without a client. */
static int set_persistence(const char *mode)
{
	int on = !strcmp(mode, "1") || !strcasecmp(mode, "ENABLED");

	if (geteuid()) {
		printf("Unable to set persistence mode for GPU %s: Insufficient Permissions\n", long_bus(&gpus[0]));
		return 4;
	}
	if (on) {
		FILE *file = fopen(PERSISTENCE, "w");

		if (file)
			fclose(file);
	} else
		unlink(PERSISTENCE);
	for (int i = 0; i < gpu_count; i++)
		printf("%s persistence mode for GPU %s.\n", on ? "Enabled" : "Disabled", long_bus(&gpus[i]));
	puts("All done.");
	return 0;
}

static int usage(const char *word)
{
	printf("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n");
	fprintf(stderr, "nvidia-smi (test bench): no answer to '%s'\n", word);
	return 2;
}

int main(int count, char **words)
{
	const char *fields = NULL, *format = "csv", *persistence = NULL;
	int listing = 0, asked = 0, as_xml = 0;

	for (int i = 1; i < count; i++) {
		const char *word = words[i], *next = i + 1 < count ? words[i + 1] : NULL;

		if (!strcmp(word, "-L") || !strcmp(word, "--list-gpus")) listing = 1;
		else if (!strcmp(word, "-q") || !strcmp(word, "--query")) asked = 1;
		else if (!strcmp(word, "-x") || !strcmp(word, "--xml-format")) as_xml = 1;
		else if (!strcmp(word, "-qx") || !strcmp(word, "-xq")) asked = as_xml = 1;
		else if (!strncmp(word, "--query-gpu=", 12)) fields = word + 12;
		else if (!strncmp(word, "--format=", 9)) format = word + 9;
		else if (!strncmp(word, "--id=", 5)) chosen = word + 5;
		else if (!strcmp(word, "-i") && next) chosen = words[++i];
		else if (!strcmp(word, "-pm") && next) persistence = words[++i];
		else if (!strncmp(word, "--persistence-mode=", 19)) persistence = word + 19;
		else if (!strcmp(word, "-h") || !strcmp(word, "--help")) {
			puts("NVIDIA System Management Interface (test bench)\n"
			     "nvidia-smi [-L | -q -x | --query-gpu=FIELDS --format=csv[,noheader][,nounits] | -pm 0|1] [-i ID]");
			return 0;
		} else
			return usage(word);
	}
	initialise();
	if (persistence)
		return set_persistence(persistence);
	if (fields)
		query(fields, format);
	else if (listing)
		list();
	else if (asked && as_xml)
		xml();
	else if (asked)
		return usage("-q without -x");
	else
		table();
	return 0;
}
