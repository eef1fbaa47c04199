"""Ops for which PyTorch has kernels but no decomposition, and in some cases no Meta kernel either."""
