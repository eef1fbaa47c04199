"""What of PyTorch is adapted to the device: each file has one concern, and an ``install()``."""
