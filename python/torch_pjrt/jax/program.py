"""Recorded torch functions as programs for JAX, with their derivatives and batches.

A ``Recorded`` is the recorder's form of a torch function: results, and the placeholders that they depend on. They have
an autograd graph, so a derivative is recorded like other calls (``torch.autograd.grad`` with ``create_graph=True``) on
the same placeholders, to any order; custom autograd Functions and hooks take part as in any backward.

A ``Program`` is a Recorded under levels of ``vmap``. The derivative of a batch is the batch of derivatives: torch
differentiates single examples, and JAX batches the result (``batching.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import torch

from torch_pjrt import _C
from torch_pjrt.jax import arrays
from torch_pjrt.jax.batching import Level, batched_text, structs_at

DEVICE = torch.device("pjrt", 0)  # of the trace; the program runs on JAX's devices


def placeholder(dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """Returns a tensor on the device without a value; it requires grad if its dtype allows."""
    sizes = [int(size) for size in shape]
    strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    with torch.no_grad():
        tensor: torch.Tensor = _C.Trace().tensor(DEVICE, dtype, sizes, strides)
    return tensor.requires_grad_() if arrays.is_differentiable(dtype) else tensor


def struct_of(tensor: torch.Tensor) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(tensor.shape), arrays.TO_JAX[tensor.dtype])


Tensors = tuple[list[torch.Tensor], list[torch.Tensor]]  # inputs, outputs


class Recorded:
    """Args:
    structs, results: shapes and dtypes of inputs and outputs.
    record: returns the inputs, which ``placeholder`` made, and the outputs, tensors that depend on them.
    key: the index of the input that is the random key.
    scope: a context in which more is recorded.
    of: the Recorded whose derivative this is, with respect to these inputs.
    """

    def __init__(
        self,
        name: str,
        structs: Sequence[Any],
        results: Sequence[Any],
        record: Callable[[], Tensors],
        key: int | None,
        scope: Callable[[], AbstractContextManager[Any]],
        of: tuple[Recorded, tuple[int, ...]] | None = None,
    ) -> None:
        self.name, self.structs, self.results = name, list(structs), list(results)
        self.key, self.scope, self.of = key, scope, of
        self.moving = [i for i, struct in enumerate(results) if jax.numpy.issubdtype(struct.dtype, jax.numpy.inexact)]
        self.derivatives: dict[Any, Recorded] = {}
        self.texts: dict[tuple[Level, ...], str] = {}
        self.constants: list[Any] = []
        self._record = record
        self._tensors: Tensors | None = None

    @property
    def tensors(self) -> Tensors:
        if self._tensors is None:
            self._tensors = self._record()
        return self._tensors

    @property
    def inputs(self) -> list[torch.Tensor]:
        return self.tensors[0]

    @property
    def outputs(self) -> list[torch.Tensor]:
        return self.tensors[1]

    def text(self, levels: tuple[Level, ...] = ()) -> str:
        """Returns the module of a batch. ``self.constants`` are its last arguments."""
        if () not in self.texts:
            inputs, outputs = self.tensors
            with self.scope():
                text, constants = _C.hand_over(inputs, outputs, self.key)
            self.texts[()] = text
            self.constants = [arrays.to_numpy(constant) for constant in constants]
        if levels not in self.texts:
            own = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in self.constants]
            nones = (None,) * len(own)
            extended = [Level(level.size, level.dims + nones, level.summed) for level in levels]
            self.texts[levels] = batched_text(self.texts[()], [*self.structs, *own], extended)
        return self.texts[levels]

    def vjp(self, wanted: tuple[int, ...]) -> Recorded:
        """Returns (inputs, cotangents of the moving outputs) -> gradients of the wanted inputs, by JAX's convention."""
        given = [self.results[i] for i in self.moving]
        return self._derivative("vjp", wanted, given, [self.structs[i] for i in wanted], self._vjp)

    def jvp(self, wanted: tuple[int, ...]) -> Recorded:
        """Returns (inputs, tangents of the wanted inputs) -> tangents of the moving outputs."""
        results = [self.results[i] for i in self.moving]
        return self._derivative("jvp", wanted, [self.structs[i] for i in wanted], results, self._jvp)

    def _derivative(
        self,
        kind: str,
        wanted: tuple[int, ...],
        given: Sequence[Any],
        results: Sequence[Any],
        make: Callable[..., Tensors],
    ) -> Recorded:
        def record() -> Tensors:
            inputs = self.inputs
            try:
                with self.scope(), torch.enable_grad():
                    more, outputs = make(wanted)
            except RuntimeError as error:
                raise type(error)(f"the {kind} of the torch function {self.name} under JAX: {error}") from error
            return [*inputs, *more], outputs

        if (kind, wanted) not in self.derivatives:
            self.derivatives[kind, wanted] = Recorded(
                f"{self.name}_{kind}",
                [*self.structs, *given],
                results,
                record,
                self.key,
                self.scope,
                (self, wanted),
            )
        return self.derivatives[kind, wanted]

    def _pull(self, wanted: Sequence[int], cotangents: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        if self.of is not None:
            given = self.inputs[len(self.of[0].structs) :]
            _check_not_lost([self.outputs[i] for i in self.moving], [x for x in given if x.requires_grad])
        pairs = [
            (self.outputs[i], cotangent)
            for i, cotangent in zip(self.moving, cotangents, strict=True)
            if self.outputs[i].requires_grad
        ]
        return _gradients(pairs, [self.inputs[i] for i in wanted])

    def _vjp(self, wanted: tuple[int, ...]) -> Tensors:
        given = [placeholder(self.outputs[i].dtype, self.outputs[i].shape) for i in self.moving]
        gradients = self._pull(wanted, [arrays.conjugated(cotangent) for cotangent in given])
        return given, [
            torch.zeros_like(self.inputs[i]) if gradient is None else arrays.conjugated(gradient)
            for i, gradient in zip(wanted, gradients, strict=True)
        ]

    def _jvp(self, wanted: tuple[int, ...]) -> Tensors:
        """Records the jvp: the vjp is linear in the cotangents, and its gradient with respect to them is the jvp."""
        given = [placeholder(self.inputs[i].dtype, self.inputs[i].shape) for i in wanted]
        cotangents = [torch.zeros_like(self.outputs[i], requires_grad=True) for i in self.moving]
        gradients = self._pull(wanted, cotangents)
        _check_not_lost(gradients, cotangents)
        pairs = [(g, t) for g, t in zip(gradients, given, strict=True) if g is not None and g.requires_grad]
        tangents = _gradients(pairs, cotangents)
        return given, [
            torch.zeros_like(cotangent) if tangent is None else tangent
            for cotangent, tangent in zip(cotangents, tangents, strict=True)
        ]


def _check_not_lost(gradients: Sequence[torch.Tensor | None], given: Sequence[torch.Tensor]) -> None:
    """Raises if autograd lost how a gradient depends on ``given``, so that its derivative would appear to be zero."""
    if any(g is not None and not g.requires_grad and _C.rests_on(g, given) for g in gradients):
        raise RuntimeError(
            "a gradient in it was computed where autograd does not look (torch.no_grad, detach, an operator that torch "
            "differentiates once): it has a gradient, and neither a jvp nor a second derivative"
        )


def _gradients(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], wanted: Sequence[torch.Tensor]) -> list[Any]:
    if not pairs or not wanted:
        return [None] * len(wanted)
    outputs, weights = zip(*pairs, strict=True)
    return list(torch.autograd.grad(outputs, wanted, weights, create_graph=True, allow_unused=True))


class Program:
    """A Recorded under levels of vmap, the innermost first. Programs with equal parts are equal."""

    def __init__(self, recorded: Recorded, levels: tuple[Level, ...] = ()) -> None:
        self.recorded, self.levels = recorded, levels

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and self.recorded is other.recorded and self.levels == other.levels

    def __hash__(self) -> int:
        return hash((id(self.recorded), self.levels))

    def __repr__(self) -> str:
        return self.recorded.name

    def text(self) -> str:
        return self.recorded.text(self.levels)

    def results(self) -> list[tuple[tuple[int, ...], Any]]:
        """Returns shape and dtype of each result."""
        forms = []
        for i, struct in enumerate(self.recorded.results):
            shape = struct.shape
            for level in self.levels:
                shape = shape if i in level.summed else (level.size, *shape)
            forms.append((shape, struct.dtype))
        return forms

    def arguments(self) -> list[Any]:
        return structs_at(self.levels, self.recorded.structs)

    def batched(self, size: int, dims: tuple[int | None, ...]) -> Program:
        return Program(self.recorded, (*self.levels, Level(size, dims)))

    def jvp(self, wanted: tuple[int, ...]) -> Program:
        at = {output: i for i, output in enumerate(self.recorded.moving)}
        return Program(
            self.recorded.jvp(wanted),
            tuple(
                Level(
                    level.size,
                    level.dims + tuple(level.dims[i] for i in wanted),
                    frozenset(at[i] for i in level.summed if i in at),
                )
                for level in self.levels
            ),
        )

    def transposed(self, wanted: tuple[int, ...]) -> Program:
        """Transposes a jvp: (inputs without tangents, cotangents) -> cotangents of the wanted tangents. For inputs that
        all examples share they are summed over the examples; others have the examples in dimension 0."""
        assert self.recorded.of is not None
        source, tangents = self.recorded.of
        primals = len(source.structs)
        vjp = source.vjp(tuple(tangents[i] for i in wanted))

        def level(each: Level) -> Level:
            cotangents = tuple(None if i in each.summed else 0 for i in range(len(source.moving)))
            shared = frozenset(i for i, at in enumerate(wanted) if each.dims[primals + at] is None)
            return Level(each.size, each.dims[:primals] + cotangents, shared)

        return Program(vjp, tuple(level(each) for each in self.levels))
