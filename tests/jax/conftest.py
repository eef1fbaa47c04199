"""JAX with four devices of the host, for what is sharded."""

import pytest

jax = pytest.importorskip("jax")
jax.config.update("jax_num_cpu_devices", 4)
