"""Networks for tests and benchmarks: short, ordinary PyTorch definitions with random weights, independent of backends.
``models.catalogue`` lists them with inputs and a loss for each."""
