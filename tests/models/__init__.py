"""Networks for tests and benchmarks: ordinary PyTorch definitions that know nothing of any backend."""
