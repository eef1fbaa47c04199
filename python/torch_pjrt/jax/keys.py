"""Random keys of JAX's, as the words that torch's draws are made of."""

from __future__ import annotations

from typing import Any

import jax


def words_of(key: Any) -> Any:
    """Of a key of any kind, typed or raw."""
    try:
        return jax.random.bits(key, (2,), "uint32")
    except (TypeError, ValueError) as error:
        raise TypeError(f"key= takes a random key of JAX's (jax.random.key(0)): {error}") from error
