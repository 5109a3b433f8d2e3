/*
 * Stand-in for libcuda: the calls by which a program asks whether CUDA could start. It computes nothing.
 * VERSION is the library's version, CUDA its CUDA version (13000: 13.0). Return values are CUresult: 0 success,
 * 100 no device, 803 driver and library differ, 999 unknown.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROC "/proc/driver/nvidia"

static int devices(void)
{
	DIR *folder = opendir("/dev");
	struct dirent *entry;
	int found = 0;

	while (folder && (entry = readdir(folder)))
		found += !strncmp(entry->d_name, "nvidia", 6) && entry->d_name[6] >= '0' && entry->d_name[6] <= '9';
	if (folder)
		closedir(folder);
	return found;
}

int cuInit(unsigned int flags)
{
	char line[256] = "";
	FILE *file = fopen(PROC "/version", "r");

	(void)flags;
	if (!file)
		return 100;
	if (!fgets(line, sizeof line, file))
		line[0] = 0;
	fclose(file);
	if (!strstr(line, " " VERSION " "))
		return 803;
	if (!devices())
		return 100;
	return access("/dev/nvidia-uvm", F_OK) ? 999 : 0;
}

int cuDriverGetVersion(int *version)
{
	*version = CUDA;
	return 0;
}

int cuDeviceGetCount(int *count)
{
	*count = devices();
	return 0;
}
