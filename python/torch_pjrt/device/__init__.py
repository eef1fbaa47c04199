"""``torch.pjrt``, the device's own module, and how tensors come to the device and leave it."""
