"""Ops that PyTorch has kernels of, and no decomposition; of some no Meta kernel either."""
