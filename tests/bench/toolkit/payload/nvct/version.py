"""The version of the packages; the build writes it anew for each."""

VERSION = "0.0.0"
