"""``torch.compile(backend="pjrt")``.

``backend.py`` passes the graphs that Dynamo captures through AOTAutograd. ``tracing.py`` runs an ATen graph on
placeholders through the device's recorder and compiles it. ``splitting.py`` cuts out calls that XLA can't compile, and
``pieces.py`` runs the remaining pieces. ``symbols.py`` evaluates captured sizes in a call; ``composites.py`` keeps
composites whole; ``partition.py`` decides which values a forward saves for its backward; ``around.py`` routes ragged
sizes of nested tensors, and objects that aren't tensors, around a program; ``optimizers.py`` makes Dynamo capture steps
of optimizers as it does for GPUs.
"""
