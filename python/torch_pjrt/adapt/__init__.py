"""Patches of PyTorch for the device: each file has one concern, and an ``install()``."""
