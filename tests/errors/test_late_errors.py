"""An error that only data can show belongs to the values computed from it (Note [Runtime assertions])."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torch_pjrt

DEVICE = "pjrt"
pytestmark = pytest.mark.each_way


def on(*values: float | bool, dtype: torch.dtype | None = None) -> Tensor:
    return torch.tensor(values, dtype=dtype).to(DEVICE)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    torch_pjrt._C.finish()
    for _ in range(8):  # errors that a test has left unraised
        try:
            torch.pjrt.synchronize()
        except (RuntimeError, IndexError):
            continue
        break


def each_raises(read: Callable[[], Any], error: type[Exception] = IndexError, match: str = "out of bounds") -> None:
    texts = []
    for _ in range(3):
        with pytest.raises(error, match=match) as raised:
            read()
        texts.append(str(raised.value))
    assert texts[0] == texts[1] == texts[2]


def badly_written(n: int = 4) -> Tensor:
    return torch.zeros(n, device=DEVICE).index_fill_(0, on(n + 3), 1.0)


@pytest.mark.parametrize(
    "read",
    [
        Tensor.tolist,
        Tensor.cpu,
        lambda x: x.sum().item(),
        lambda x: x[1].item(),
        lambda x: x.numpy(force=True),
        repr,
        lambda x: bool(x.any()),
        lambda x: torch.equal(x, x + 1),
        lambda x: x.nonzero(),
        lambda x: x.clone().t().tolist(),
        lambda x: (x.view(2, 2) @ torch.ones(2, 2, device=DEVICE)).tolist(),
        lambda x: x.to("cpu", torch.float64),
        lambda x: torch.empty(4).copy_(x),
        lambda x: torch.save(x, "/dev/null"),
        torch.utils.dlpack.from_dlpack,
    ],
)
def test_each_read_raises(read: Callable[[Tensor], Any]) -> None:
    x = badly_written()
    each_raises(lambda: read(x))
    each_raises(x.tolist)


def test_half_written_by_a_mask() -> None:
    x, mask = torch.zeros(6, device=DEVICE), on(True, True, True, False, False, False)
    x[mask] = torch.ones(2, device=DEVICE)
    each_raises(x.tolist, RuntimeError, "shape mismatch")
    each_raises((x + 1).tolist, RuntimeError, "shape mismatch")


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.fill_(1),
        lambda x: x.zero_().add_(1),
        lambda x: x.copy_(torch.ones(4)),
        lambda x: x.__setitem__(slice(None), 1),
        lambda x: torch.add(torch.zeros(4, device=DEVICE), 1, out=x),
        lambda x: x.uniform_(1, 1.0000001),
        lambda x: (torch._foreach_zero_([x]), x.add_(1)),
        lambda x: x.set_(torch.ones(4, device=DEVICE)),
    ],
)
@pytest.mark.parametrize("reported", [True, False])
def test_until_written_anew(write: Callable[[Tensor], Any], reported: bool) -> None:
    x = badly_written()
    if reported:
        each_raises(x.tolist)
    else:  # the error has no value any more, so the next read of any tensor raises it
        torch_pjrt.sync()
    write(x)
    if not reported:  # the first read after x has run raises it
        with pytest.raises(IndexError, match="out of bounds"):
            (torch.ones(1, device=DEVICE).add(1).tolist(), x.tolist())
    torch.testing.assert_close(x.cpu(), torch.ones(4))


def test_a_part_that_is_written_cures_nothing() -> None:
    x = badly_written()
    x[:3] = 1
    x.add_(1)
    each_raises(x.tolist)


def test_each_has_its_own() -> None:
    a, b, other = torch.zeros(4, device=DEVICE), torch.zeros(4, device=DEVICE), torch.zeros(4, device=DEVICE)
    a.index_fill_(0, on(7), 1.0)
    b.index_fill_(0, on(8), 1.0)
    of_a, of_both = a * 2, a + b
    other.index_fill_(0, on(2), 1.0)
    together = torch.stack([other, other])
    assert together.tolist() == [[0, 0, 1, 0]] * 2
    each_raises(b.tolist, match="index 8")
    each_raises(of_a.tolist, match="index 7")
    each_raises(of_both.tolist, match="index 7")
    each_raises(a.tolist, match="index 7")
    later = of_a.sum() + other
    each_raises(later.tolist, match="index 7")
    assert other.add(1).tolist() == [1, 1, 2, 1]


def test_through_many_steps() -> None:
    good, bad = torch.zeros(4, device=DEVICE), torch.zeros(4, device=DEVICE)
    for i in range(40):
        bad.scatter_add_(0, on(9 if i == 3 else 1, dtype=torch.int64), on(1.0))
        good.index_add_(0, on(1), on(1.0))
        torch_pjrt.sync()
    assert good.tolist() == [0, 40, 0, 0]
    each_raises(bad.tolist, RuntimeError, "index 9")


def test_numbers_read_in_a_loop() -> None:
    """Calls that run immediately take no value that depends on an error."""
    x, bad = torch.zeros(4, device=DEVICE), badly_written()
    for i in range(12):
        assert x.add(i).sum().item() == 4 * i
    for _ in range(12):
        with pytest.raises(IndexError, match="out of bounds"):
            bad.add(1).sum().item()
        assert x.add(1).sum().item() == 4


@pytest.mark.parametrize(
    ("forward", "error"),
    [
        (lambda x, i: nn.functional.embedding(i, x), IndexError),
        (lambda x, i: nn.functional.embedding(i, x, padding_idx=1), IndexError),
        (lambda x, i: nn.functional.embedding_bag(i, x, on(0)), RuntimeError),
        (lambda x, i: x[i], IndexError),
        (lambda x, i: x.index_select(0, i), (IndexError, RuntimeError)),
        (lambda x, i: x.gather(0, i[:, None].expand(-1, 3)), (IndexError, RuntimeError)),
        (lambda x, i: torch.take(x, i * 3), IndexError),
        (lambda x, i: torch.zeros(4, 3, device=DEVICE).index_add(0, i, x[:2]), (IndexError, RuntimeError)),
        (lambda x, i: torch.zeros(4, 3, device=DEVICE).index_copy(0, i, x[:2]), (IndexError, RuntimeError)),
        (lambda x, i: torch.zeros(4, 3, device=DEVICE).index_put((i,), x[:2]), IndexError),
        (lambda x, i: torch.zeros(4, 3, device=DEVICE).scatter(0, i[:, None].expand(-1, 3), x[:2]), RuntimeError),
        (lambda x, i: nn.functional.cross_entropy(x[:2], i), IndexError),
        (lambda x, i: nn.functional.cross_entropy(x[:2], i, reduction="sum"), IndexError),
        (lambda x, i: nn.functional.cross_entropy(x[:2], i, reduction="none"), IndexError),
        (lambda x, i: nn.functional.nll_loss(x[:2], i), IndexError),
        (lambda x, i: nn.functional.multi_margin_loss(x[:2], i), RuntimeError),
    ],
)
def test_only_the_gradient_is_used(forward: Callable[[Tensor, Tensor], Tensor], error: Any) -> None:
    x = torch.ones(4, 3, device=DEVICE, requires_grad=True)
    forward(x, on(1, 11, dtype=torch.int64)).sum().backward()
    each_raises(x.grad.tolist, error, "")  # type: ignore[union-attr]
    x.grad = None
    forward(x, on(1, 2, dtype=torch.int64)).sum().backward()
    assert x.grad.isfinite().all()  # type: ignore[attr-defined]


@pytest.mark.parametrize("foreach", [True, False])
def test_an_optimizer_spreads_none(foreach: bool) -> None:
    table, weight = nn.Embedding(4, 3, device=DEVICE), torch.ones(3, device=DEVICE, requires_grad=True)
    optimizer = torch.optim.Adam([table.weight, weight], foreach=foreach)
    for _ in range(2):
        table(on(1, 9, dtype=torch.int64)).sum().backward()
        weight.sum().backward()
        optimizer.step()
    assert weight.isfinite().all()
    each_raises(table.weight.tolist, match="out of range")


def test_what_no_value_has_is_reported_once() -> None:
    x = badly_written()
    torch_pjrt.sync()
    del x
    y = torch.zeros(2, device=DEVICE).add(1)
    with pytest.raises(IndexError, match="out of bounds"):
        y.tolist()
    assert y.tolist() == [1, 1]


def test_synchronize_raises_errors_without_a_reader() -> None:
    x, y = badly_written(), badly_written()
    each_raises(y.tolist)
    torch_pjrt.sync()
    with pytest.raises(IndexError, match="out of bounds"):
        torch.pjrt.synchronize()
    torch.pjrt.synchronize()
    each_raises(x.tolist)


def test_eager_mode_keeps_the_type() -> None:
    with torch_pjrt.eager_mode():
        x = torch.zeros(4, device=DEVICE)
        with pytest.raises(IndexError, match="out of bounds"):
            x.index_fill_(0, on(7), 1.0)
        each_raises(x.tolist)
        with pytest.raises(torch.linalg.LinAlgError):
            torch.linalg.cholesky(-torch.eye(2, device=DEVICE))
        assert x.fill_(1).tolist() == [1] * 4


def picked(x: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
    return x[i] * 2, x + 1


@pytest.mark.parametrize(
    "enter",
    [
        lambda fn: torch.compile(fn, backend="pjrt"),
        lambda fn: torch_pjrt.jit(fn, (torch.ones(4, device=DEVICE), on(1, 2, dtype=torch.int64))),
        torch_pjrt.compile_step,
    ],
    ids=["compile", "jit", "step"],
)
def test_compiled_calls(enter: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    compiled = enter(picked)
    x = torch.ones(4, device=DEVICE)
    for _ in range(3):
        bad, other = compiled(x, on(1, 9, dtype=torch.int64))
        assert other.tolist() == [2] * 4
        each_raises(bad.tolist, match="index 9")
        of_bad = compiled(torch.cat([x[:2], bad]), on(1, 0, dtype=torch.int64))
        each_raises(of_bad[0].tolist, match="index 9")
        assert compiled(x, on(1, 2, dtype=torch.int64))[0].tolist() == [2, 2]


def test_compiled_calls_on_the_cpu() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(picked, backend="pjrt")
    for _ in range(3):
        with pytest.raises(IndexError, match="index 9"):
            compiled(torch.ones(4), torch.tensor([1, 9]))
        assert compiled(torch.ones(4), torch.tensor([1, 2]))[0].tolist() == [2, 2]
    assert torch.ones(2, device=DEVICE).add(1).tolist() == [2, 2]


@pytest.mark.parametrize("enter", ["compile", "jit", "step"])
def test_a_compiled_call_on_the_cpu_has_one_error(enter: str) -> None:
    """Two of its ops fail, and it gives no results: no later call raises the other error."""

    def divided(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x // y, x % y

    torch._dynamo.reset()
    good, bad = (torch.tensor([3, 4]), torch.tensor([2, 3])), (torch.tensor([3, 4]), torch.tensor([2, 0]))
    compiled = {
        "compile": lambda: torch.compile(divided, backend="pjrt"),
        "jit": lambda: torch_pjrt.jit(divided, good),
        "step": lambda: torch_pjrt.compile_step(divided),
    }[enter]()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            compiled(*bad)
        assert [each.tolist() for each in compiled(*good)] == [[1, 1], [1, 1]]
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(*bad)
    assert torch.ones(2, device=DEVICE).add(1).tolist() == [2, 2]


def test_a_compiled_call_writes_what_it_is_given() -> None:
    torch._dynamo.reset()

    @torch.compile(backend="pjrt")
    def write(x: Tensor, y: Tensor, i: Tensor) -> None:
        x.index_fill_(0, i, 1.0)
        y.add_(1)

    x, y = torch.zeros(4, device=DEVICE), torch.zeros(4, device=DEVICE)
    write(x, y, on(9, dtype=torch.int64))
    write(x, y, on(1, dtype=torch.int64))
    assert y.tolist() == [2] * 4
    each_raises(x.tolist, match="index 9")


def test_an_assertion_is_the_whole_functions() -> None:
    torch._dynamo.reset()

    @torch.compile(backend="pjrt")
    def checked(x: Tensor) -> Tensor:
        torch._assert_async(x.min() > 0, "not positive")
        return x + 1

    for _ in range(2):
        y = checked(on(-1.0, 1.0))
        each_raises(y.tolist, RuntimeError, "not positive")
        assert checked(on(2.0, 1.0)).tolist() == [3, 2]


def test_programs_in_files(tmp_path: Path) -> None:
    path = str(tmp_path / "picked.pjrt")
    torch_pjrt.export(picked, (torch.ones(4), torch.tensor([1, 2]))).save(path)
    loaded = torch_pjrt.load(path)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="index 9"):
            loaded(torch.ones(4), torch.tensor([1, 9]))
        each_raises(lambda: loaded(badly_written(), on(1, 2, dtype=torch.int64)))
        assert loaded(torch.ones(4), torch.tensor([1, 2]))[0].tolist() == [2, 2]


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("counts", torch.zeros(4))
        self.counts: Tensor

    def forward(self, index: Tensor) -> Tensor:
        self.counts.index_add_(0, index, torch.ones_like(index, dtype=torch.float32))
        return self.counts + 0


def test_the_state_of_a_program_in_a_file(tmp_path: Path) -> None:
    """A call that fails leaves the state unchanged, or without a value: never half-written."""
    path = str(tmp_path / "counter.pjrt")
    torch_pjrt.export(Counter(), (torch.tensor([1, 2]),)).save(path)
    loaded = torch_pjrt.load(path)
    loaded(torch.tensor([1, 2]))
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"index|lost its value"):
            loaded(torch.tensor([1, 9]))
    try:
        counts = loaded.state()["counts"].tolist()
    except RuntimeError as error:
        counts = str(error)
    assert counts == [0, 1, 1, 0] or "lost its value in a run that failed: load_state" in counts


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.sampled(2)
def test_the_end_of_the_process_warns(reads: bool) -> None:
    program = f"""
    import torch, torch_pjrt
    x = torch.zeros(4, device="pjrt").index_fill_(0, torch.tensor([7]).to("pjrt"), 1.0)
    try:
        x.tolist() if {reads} else torch_pjrt.sync()
    except IndexError:
        pass
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert ("an error of values that nobody has read: index 7 is out of bounds" in done.stderr) != reads, done.stderr
