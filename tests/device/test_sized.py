"""Results whose size depends on data: PyTorch's kernel runs immediately, or only the size is read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
import torch

import torch_pjrt
from tests.ops.opinfo import assert_same

Function = Callable[[torch.Tensor], object]
FUNCTIONS: dict[str, Function] = {
    "nonzero": torch.nonzero,
    "nonzero as tuple": lambda x: torch.nonzero(x, as_tuple=True),
    "argwhere": torch.argwhere,
    "masked_select": lambda x: torch.masked_select(x, x > 0),
    "masked_select, a row's mask": lambda x: torch.masked_select(x, x[0] > 0),
    "a mask": lambda x: x[x > 0],
    "a mask of rows": lambda x: x[x.reshape(x.shape[0], -1).sum(1) > 0],
    "a mask of columns": lambda x: x[:, x.sum(0) > 0],
    "a mask beside an index": lambda x: x[x.reshape(x.shape[0], -1).sum(1) > 0, 1],
    "a mask of the host's": lambda x: x[torch.arange(x.shape[0]) % 2 == 0],
    "unique": torch.unique,
    "unique, all": lambda x: torch.unique(x, return_inverse=True, return_counts=True),
    "unique rows": lambda x: torch.unique(x, dim=0, return_inverse=True, return_counts=True),
    "unique columns": lambda x: torch.unique(x, dim=1, return_inverse=True, return_counts=True),
    "consecutive": lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
    "consecutive rows": lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=0),
    "bincount": lambda x: torch.bincount(x.abs().flatten().long()),
    "bincount, at least": lambda x: torch.bincount(x.abs().flatten().int(), minlength=20),
    "bincount, weights": lambda x: torch.bincount(x.abs().flatten().long(), weights=x.flatten() * 0.5),
    "repeat_interleave": lambda x: torch.repeat_interleave(x.abs().flatten().long()),
    "repeat_interleave, of rows": lambda x: x.repeat_interleave(x.reshape(x.shape[0], -1)[:, 0].abs().long(), 0),
}


@pytest.fixture
def recorded(tier: str) -> Iterator[None]:
    """Has compiled graphs count sizes on the device, as where PyTorch's kernels can't read its memory."""
    with torch_pjrt.explain() if tier == "first" else contextlib.nullcontext():
        yield


def inputs() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(-3, 4, (6, 5), generator=generator)
    return [x.float(), x, torch.zeros(4, 3), x.float().t(), torch.ones(3, 2, dtype=torch.int32), x.repeat(40, 2)]


@pytest.mark.usefixtures("recorded")
@pytest.mark.each_way
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.sampled(2)
def test_values(name: str) -> None:
    f = FUNCTIONS[name]
    for x in inputs():
        if not (name == "unique columns" and len(x) > 64):  # the host sorts columns of that many rows
            assert_same(f(x.to("pjrt")), f(x))
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.host_memory
@pytest.mark.each_way
@pytest.mark.parametrize("name", ["nonzero", "unique", "unique, all", "consecutive", "bincount", "repeat_interleave"])
def test_pytorchs_kernel_runs_at_once(name: str) -> None:
    """The kernel runs on existing memory: none of it is recorded, and results have their exact size."""
    x = torch.randint(0, 4, (40,), generator=torch.Generator().manual_seed(0)).to("pjrt")
    torch_pjrt.sync()
    before = torch_pjrt.metrics()["ops_recorded"]
    f = {"bincount": torch.bincount, "repeat_interleave": torch.repeat_interleave}.get(name, FUNCTIONS[name])
    result = f(x)
    assert torch_pjrt.metrics()["ops_recorded"] == before
    assert torch_pjrt.metrics()["graphs_compiled"] == 0
    assert_same(result, f(x.cpu()), strides=True)
    for tensor in result if isinstance(result, tuple) else (result,):
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.itemsize


@pytest.mark.usefixtures("recorded")
@pytest.mark.each_way
def test_what_is_pending_and_views_of_it() -> None:
    x = torch.arange(24.0).view(4, 6)
    for f in (
        lambda x: (x * 2)[(x + 1).t().t() > 9],
        lambda x: x[1:, ::2][x[1:, ::2] > 9],
        lambda x: torch.unique((x // 5).view(torch.int32)),
        lambda x: torch.nonzero((x > 3).t()),
        lambda x: x.expand(2, 4, 6)[x.expand(2, 4, 6) > 20],
    ):
        assert_same(f(x.to("pjrt")), f(x))
    on_device = x.to("pjrt")
    chosen = on_device[on_device > 20]
    on_device.zero_()
    assert chosen.tolist() == [21, 22, 23]


@pytest.mark.usefixtures("recorded")
@pytest.mark.each_way
def test_special_values() -> None:
    x = torch.tensor([torch.nan, 0.0, -0.0, 1.0, torch.inf, torch.nan, -torch.inf, 1.0])
    for f in (torch.nonzero, torch.unique, torch.unique_consecutive, lambda x: x[x.isnan()]):
        assert_same(f(x.to("pjrt")), f(x))
    for empty in (torch.zeros(0), torch.zeros(0, 3), torch.zeros(3, 0), torch.tensor(2.0), torch.tensor(0.0)):
        for f in (torch.nonzero, torch.unique, lambda x: x[x > 0], lambda x: torch.masked_select(x, x > 0)):
            assert_same(f(empty.to("pjrt")), f(empty))


def test_the_strides_of_nonzero() -> None:
    x = torch.ones(2, 3)
    assert not torch.nonzero(x.to("pjrt")).is_contiguous()
    assert not torch.nonzero(x).is_contiguous()
    assert torch.nonzero(x[0].to("pjrt")).stride() == torch.nonzero(x[0]).stride()


@pytest.mark.usefixtures("recorded")
@pytest.mark.each_way
def test_gradients_through_a_mask() -> None:
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    gradients = []
    for one in (x, x.to("pjrt")):
        leaf = one.clone().requires_grad_()
        (leaf[leaf > 0] ** 2).sum().backward()
        with torch.no_grad():
            leaf[leaf > 1] = 0
        gradients.append((leaf.grad, leaf.detach()))
    assert_same(gradients[1], gradients[0])


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.bincount(x - 5),
        lambda x: torch.bincount(x.float()),
        lambda x: torch.repeat_interleave(x - 5),
        lambda x: x[torch.ones(7, dtype=torch.bool, device=x.device)],
        lambda x: torch.masked_select(x, x),
    ],
)
def test_mistakes_are_the_cpus(call: Callable[[torch.Tensor], object]) -> None:
    x = torch.arange(4)
    with pytest.raises((RuntimeError, IndexError)) as expected:
        call(x)
    with pytest.raises(type(expected.value)) as caught:
        call(x.to("pjrt"))
    assert str(caught.value) == str(expected.value)


@pytest.mark.usefixtures("recorded")
@pytest.mark.compiled
@pytest.mark.parametrize("f", [torch.nonzero, lambda x: x[x > 0], lambda x: torch.masked_select(x, x > 0)])
def test_another_count_is_mostly_no_other_program(f: Function) -> None:
    """All counts from 33 to 48 share one program."""

    def of(count: int) -> None:
        x = torch.zeros(200).to("pjrt")
        x[:count] = 1
        f(x)

    of(40)
    torch_pjrt.reset_metrics()
    for count in (33, 37, 48):
        of(count)
    metrics = torch_pjrt.metrics()
    # Writes of `count` elements are one program each.
    assert metrics["graphs_compiled"] + metrics["graphs_loaded_from_disk"] <= 3
    assert metrics["host_fallbacks"] == {}


@pytest.mark.usefixtures("recorded")
@pytest.mark.each_way
def test_strides() -> None:
    """Strides are the CPU's, whatever size was recorded: one hit, none, and 5 of a recorded 6."""
    functions = [f for name, f in FUNCTIONS.items() if name.startswith(("nonzero", "argwhere", "uni", "con"))]
    for hits in (0, 1, 2, 5, 12):
        flat = torch.zeros(12)
        flat[:hits] = 1
        for x in (flat, flat.view(3, 4), flat.view(2, 2, 3)):
            for f in functions:
                if x.dim() == 1 and f is FUNCTIONS["unique columns"]:
                    continue
                results = [f(t) for t in (x.to("pjrt"), x)]
                ours, expected = [r if isinstance(r, tuple) else (r,) for r in results]
                for a, b in zip(ours, expected, strict=True):
                    assert (a.tolist(), a.shape, a.stride()) == (b.tolist(), b.shape, b.stride())
    out = torch.nonzero(torch.ones(3, 2, device="pjrt"), out=torch.empty(0, dtype=torch.long, device="pjrt"))
    assert out.stride() == torch.nonzero(torch.ones(3, 2), out=torch.empty(0, dtype=torch.long)).stride()


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("hits", [0, 1, 3])
def test_compressed_matrices_of_few_elements_pass_the_checks_of_invariants(hits: int) -> None:
    x = torch.zeros(4, 4, device="pjrt")
    x.view(-1)[:hits] = 1
    with torch.sparse.check_sparse_tensor_invariants():
        for made in (x.to_sparse_csr(), x.to_sparse_csc(), x.to_sparse_bsr((2, 2)), x.to_sparse_bsc((2, 2))):
            assert torch.equal(made.to_dense(), x)
