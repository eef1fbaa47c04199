"""``torch.compile(backend="pjrt")``.

``backend.py`` takes what Dynamo captured through AOTAutograd; ``tracing.py`` runs an ATen graph on placeholders through
the device's own recorder and makes a program of it; ``splitting.py`` cuts out what XLA can't do, and ``pieces.py``
calls what is left; ``symbols.py`` has what the captured sizes are in a call; ``composites.py`` takes some ops apart in
another way than PyTorch; ``partition.py`` says what a forward keeps for its backward; ``around.py`` leads the ragged
sizes of nested tensors, and objects that are no tensors, around a program; ``optimizers.py`` has Dynamo capture the
steps of optimizers as it does those of a GPU.
"""
