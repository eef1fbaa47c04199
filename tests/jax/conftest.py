"""JAX with four devices of the host, for tests of sharding."""

import pytest

jax = pytest.importorskip("jax")
jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_disable_most_optimizations", True)  # they take most of the time
