"""Recurrent networks: cells, a direction of a layer, and PyTorch's modules made of these."""
