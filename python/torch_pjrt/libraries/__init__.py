"""Libraries that choose a device from names that they know: where this device is PyTorch's accelerator, they take it.

A file here belongs to one library and is imported when that library is. It changes what the library's own functions
do, while torch_pjrt stays a device that needs no mention in a program.
"""
