"""Views whose dimensions don't overlap are read by slices and written by updates: no gather, no scatter."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import torch_pjrt

pytestmark = pytest.mark.each_way

View = Callable[[torch.Tensor], torch.Tensor]
VIEWS: dict[str, View] = {
    "every second column of five": lambda x: x[..., ::2],
    "from the second one": lambda x: x[..., 1::2],
    "every third of six rows, every second column": lambda x: x[:, 1::3, ::2],
    "steps of four over ten": lambda x: x.flatten(1)[:, 3::4],
    "the diagonals of a batch": lambda x: x.diagonal(dim1=1, dim2=2),
    "diagonals above, last dimension first": lambda x: x.diagonal(1, 2, 1),
    "transposed": lambda x: x[:, ::5].transpose(0, 2)[1::3],
    "expanded": lambda x: x[:, 1:2, ::2].expand(-1, 3, -1),
    "no element": lambda x: x[:, 4:4, ::2],
}
X = torch.arange(4 * 6 * 5, dtype=torch.float32).view(4, 6, 5)


def written(x: torch.Tensor, view: View) -> torch.Tensor:
    y = x.clone()
    view(y).copy_(-view(x))
    return y


def gradient(x: torch.Tensor, view: View) -> torch.Tensor:
    x = x.clone().requires_grad_()
    (view(x) ** 2).sum().backward()
    assert x.grad is not None
    return x.grad


USES: dict[str, Callable[[torch.Tensor, View], torch.Tensor]] = {
    "read": lambda x, view: view(x) + 1,
    "written": written,
    "gradient": gradient,
}
# A copy to elements that share memory is refused.
CASES = [(view, use) for view in VIEWS for use in USES if (view, use) != ("expanded", "written")]


@pytest.mark.parametrize(("view", "use"), [pytest.param(VIEWS[v], USES[u], id=f"{v}-{u}") for v, u in CASES])
def test_views_on_a_grid(view: View, use: Callable[[torch.Tensor, View], torch.Tensor]) -> None:
    torch.testing.assert_close(use(X.to("pjrt"), view).cpu(), use(X, view))
    text = torch_pjrt.to_stablehlo(lambda x: use(x, view), X)
    assert "stablehlo.gather" not in text
    assert "stablehlo.scatter" not in text


def test_a_view_off_any_grid_is_gathered() -> None:
    """Overlapping windows are the control."""
    assert "stablehlo.gather" in torch_pjrt.to_stablehlo(lambda x: x.unfold(1, 3, 2) + 1, X)


@pytest.mark.parametrize("step", [2, 3, 4])
def test_places_that_vary_are_one_program(step: int) -> None:
    x, host = X.to("pjrt"), X.clone()
    compiles = []
    for i in (0, 2, 1, 0, 2):
        for t in (x, host):
            t[:, :, i : i + 3 : step] *= 2
            t[:, i:].diagonal(dim1=1, dim2=2)[:, :2].add_(1)
        torch.testing.assert_close(x.cpu(), host)
        compiles.append(torch_pjrt.metrics()["graphs_compiled"])
    assert compiles[-1] == compiles[-2] == compiles[-3]
