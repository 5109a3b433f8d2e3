"""Stand-in for NVIDIA's container toolkit and libnvidia-container: real effects on containers, a simulated driver.

Every program of the packages is this folder as one executable file with another entry point. Python 3.11 or later,
standard library only.
"""
