/* The modprobe of a bench node. Questions (what would be loaded, which configuration) go to the real modprobe at once:
 * update-initramfs asks several hundred of them. Loads and removals go to the simulated kernel. Linked statically. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int asks(const char *word)
{
	static const char *const questions[] = {
		"--dry-run", "--show", "--show-depends", "--resolve-alias", "--showconfig", "--show-config", "--version", "--help",
		"--dump-modversions", "--show-modversions", "--show-exports", "--dirname",
	};

	if (word[0] != '-')
		return 0;
	if (word[1] == '-') {
		size_t length = strcspn(word, "=");

		for (size_t i = 0; i < sizeof questions / sizeof *questions; i++)
			if (strlen(questions[i]) == length && !strncmp(word, questions[i], length))
				return 1;
		return 0;
	}
	/* Letters may be joined; S, C and w take the rest of the word as their value. */
	for (word++; *word && !strchr("SCw", *word); word++)
		if (strchr("nDRcVhd", *word))
			return 1;
	return 0;
}

int main(int count, char **words)
{
	char **all = calloc((size_t)count + 2, sizeof *all);

	for (int i = 1; i < count; i++)
		if (asks(words[i])) {
			words[0] = "modprobe";
			execv("/opt/bench/real/modprobe", words);
			return 127;
		}
	if (!all)
		return 127;
	all[0] = "kernel";
	all[1] = "modprobe";
	for (int i = 1; i < count; i++)
		all[i + 1] = words[i];
	execv("/opt/bench/kernel", all);
	return 127;
}
