"""The device on which compiled functions take tensors without copying them."""

import torch


def home() -> torch.device:
    """Returns CUDA if the plugin is for it, else the CPU."""
    return torch.device("cuda" if torch.pjrt.get_device_properties().platform == "cuda" else "cpu")
