"""Random keys of JAX's, as the two words that torch's draws use."""

from __future__ import annotations

from typing import Any

import jax


def words_of(key: Any) -> Any:
    """Returns two words for a key of any kind, typed or raw; raises TypeError for other values."""
    try:
        return jax.random.bits(key, (2,), "uint32")
    except (TypeError, ValueError) as error:
        raise TypeError(f"key= takes a random key of JAX's (jax.random.key(0)): {error}") from error
