"""What groups of calls mean: composites in a program's text, which compilers and kernels know by their names.

From the bottom up: ``names.py`` has names as data, ``known.py`` what this process knows, and ``asked.py`` what is asked
for. ``group.py`` says what a group is, of ``attributes.py``; ``higher_order.py`` and ``grouped.py`` call one, and
``effects.py`` does what a group must not do, outside of it. ``composite.py`` makes the user's functions groups,
``kept.py`` ops that PyTorch takes apart, and ``steps.py`` steps of optimizers. ``switch.py`` installs these.
"""
