# The C++ core, bound in src/python/module.cpp. Untyped, so that no signature is kept in two places.
from typing import Any

def __getattr__(name: str) -> Any: ...
