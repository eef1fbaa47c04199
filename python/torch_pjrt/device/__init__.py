"""``torch.pjrt``, the device module, and moves of tensors to and from the device."""
