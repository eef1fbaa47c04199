"""Networks for tests and benchmarks: short, ordinary PyTorch definitions with random weights that know nothing of any
backend. ``models.catalogue`` lists them with inputs and a loss for each."""
