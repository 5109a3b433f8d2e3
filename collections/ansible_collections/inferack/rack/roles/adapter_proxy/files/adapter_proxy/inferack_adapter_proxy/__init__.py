"""One API in front of GPU, LPU and cloud inference engines."""

__version__ = "0.1.0"
