"""Composites: groups of calls in a program's text, which compilers and kernels know by their names.

From the bottom up: ``names.py`` has the names as data, ``known.py`` the composites that this process knows, and
``asked.py`` those that are enabled. ``group.py`` defines a group, with ``attributes.py``; ``higher_order.py`` and
``grouped.py`` call one, and ``effects.py`` moves side effects out of it. ``composite.py`` makes composites of the
user's functions, ``kept.py`` of ops that PyTorch decomposes, and ``steps.py`` of steps of optimizers. ``switch.py``
installs these.
"""
