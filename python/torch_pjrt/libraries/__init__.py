"""Makes libraries that choose a device by name choose this device, where it is PyTorch's accelerator.

Each file here is for one library and is imported with it. It patches the library's own functions, so that programs need
not mention torch_pjrt.
"""
