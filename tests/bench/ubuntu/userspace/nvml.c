/*
 * Stand-in for libnvidia-ml: enough of NVML to be linked or opened and to tell whether driver and library agree.
 * VERSION is the library's version. Return values are nvmlReturn_t: 0 success, 6 not found, 9 driver not loaded,
 * 18 versions differ.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define PROC "/proc/driver/nvidia"

/* 0 when the loaded module is of this library's version. */
int nvmlInit_v2(void)
{
	char line[256] = "";
	FILE *file = fopen(PROC "/version", "r");

	if (!file)
		return 9;
	if (!fgets(line, sizeof line, file))
		line[0] = 0;
	fclose(file);
	return strstr(line, " " VERSION " ") ? 0 : 18;
}

int nvmlInit(void)
{
	return nvmlInit_v2();
}

int nvmlShutdown(void)
{
	return 0;
}

int nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	snprintf(version, length, "%s", VERSION);
	return nvmlInit_v2();
}

int nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	snprintf(version, length, "%d.%s", CUDA / 1000, VERSION);
	return 0;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	*version = CUDA;
	return 0;
}

int nvmlDeviceGetCount_v2(unsigned int *count)
{
	DIR *folder = opendir(PROC "/gpus");
	struct dirent *entry;

	*count = 0;
	while (folder && (entry = readdir(folder)))
		*count += entry->d_name[0] != '.';
	if (folder)
		closedir(folder);
	return nvmlInit_v2();
}
