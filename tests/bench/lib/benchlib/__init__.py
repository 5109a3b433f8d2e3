"""What the test bench's commands share. Standard library and the docker command line only."""
