"""Builds, indexes and signs the bench's packages. Runs in the builder image; standard library only."""
