"""torch.compile(backend="pjrt"): results, mutation, aliasing, shapes, cuts, options."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torch_pjrt
from tests.threads import in_two_threads
from torch_pjrt.dynamo import backend

DEVICES = ("cpu", "pjrt")


def compiled(fn: Callable[..., Any], **kwargs: Any) -> Callable[..., Any]:
    return torch.compile(fn, backend="pjrt", **kwargs)


def same(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, check_stride=True, check_device=False)


def test_the_device_that_dynamo_knows() -> None:
    torch._dynamo.lookup_backend("pjrt")
    interface = torch._dynamo.device_interface.get_interface_for_device("pjrt")
    assert interface.device_count() == torch.pjrt.device_count()
    assert interface.exchange_device(0) == interface.maybe_exchange_device(-1) + 1 == interface.current_device() == 0
    assert interface.is_dtype_supported(torch.bfloat16)
    assert not interface.is_dtype_supported(torch.complex32)
    assert interface.get_device_properties().name == torch.pjrt.get_device_name()


def test_is_listed() -> None:
    assert "pjrt" in torch._dynamo.list_backends()


@pytest.mark.parametrize("device", DEVICES)
def test_inference(device: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3)).to(device).eval()
    x = torch.randn(5, 8).to(device)
    with torch.no_grad():
        expected = model(x)
        fast = compiled(model, fullgraph=True)
        result = fast(x)
        assert result.device.type == device
        same(result.cpu(), expected.cpu())
        compiles = torch_pjrt.metrics()["graphs_compiled"]
        for _ in range(3):
            same(fast(x).cpu(), expected.cpu())
    assert torch_pjrt.metrics()["graphs_compiled"] == compiles
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.host_memory
def test_cpu_tensors_are_used_in_their_memory() -> None:
    model = nn.Linear(64, 64)
    x = torch.randn(64, 64)
    with torch.no_grad():
        fast = compiled(model)
        fast(x)
        torch_pjrt.reset_metrics()
        fast(x)
    assert torch_pjrt.metrics()["host_transfer_bytes"] == 0


def test_a_parameter_changed_in_place_is_seen() -> None:
    model = nn.Linear(3, 2)
    x = torch.randn(4, 3)
    with torch.no_grad():
        fast = compiled(model)
        fast(x)
        model.weight.mul_(2)
        same(fast(x), model(x))
        model.weight.data = torch.randn(2, 3)  # moved
        same(fast(x), model(x))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_training(device: str, optimizer: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)
    )
    other = copy.deepcopy(model).to(device)
    fast = compiled(other, fullgraph=True)
    first, second = optimizer(model.parameters(), lr=0.01), optimizer(other.parameters(), lr=0.01)
    for _ in range(3):
        x, y = torch.randn(4, 1, 8, 8), torch.randint(0, 3, (4,))
        for net, opt, d in ((model, first, "cpu"), (fast, second, device)):
            opt.zero_grad()
            nn.functional.cross_entropy(net(x.to(d)), y.to(d)).backward()
            opt.step()
        for (name, p), q in zip(model.named_parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(q.grad.cpu(), p.grad, msg=lambda m, name=name: f"{name}: {m}")
            torch.testing.assert_close(q.cpu(), p)
        for p, q in zip(model.buffers(), other.buffers(), strict=True):
            torch.testing.assert_close(q.cpu(), p)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


def test_compiled_optimizer() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    other = copy.deepcopy(model)
    first, second = torch.optim.Adam(model.parameters()), torch.optim.Adam(other.parameters())
    step = compiled(second.step)
    for _ in range(3):
        x = torch.randn(2, 4)
        for net in (model, other):
            net.zero_grad()
            net(x).square().mean().backward()
        first.step()
        step()
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(q, p)


def test_results_keep_their_strides() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        return y.t(), y[:, :2], y.expand(3, *y.shape), (x + 1).to(memory_format=torch.contiguous_format)

    x = torch.randn(4, 5)
    for result, expected in zip(compiled(f)(x), f(x), strict=True):
        same(result, expected)


def test_a_cpu_scalar_beside_device_tensors() -> None:
    def f(x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return x * s

    s = torch.tensor(2.0)
    x = torch.ones(3).to("pjrt")
    fast = compiled(f)
    same(fast(x, s).cpu(), torch.full((3,), 2.0))
    s.fill_(5.0)
    same(fast(x, s).cpu(), torch.full((3,), 5.0))


def test_factories_for_the_cpu() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + torch.eye(3) + torch.arange(3, device="cpu") + torch.tensor([1.0, 2.0, 3.0])

    x = torch.randn(3, 3)
    same(compiled(f, fullgraph=True)(x), f(x))


def test_autocast() -> None:
    model = nn.Linear(8, 8)
    x = torch.randn(4, 8)

    def f(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x)

    result = compiled(f, fullgraph=True)(x)
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result, f(x), rtol=2e-2, atol=2e-2)


def test_custom_autograd_function() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return g * 5

    x = torch.ones(3, requires_grad=True)
    compiled(lambda t: Double.apply(t).sum())(x).backward()
    same(x.grad, torch.full((3,), 5.0))


class TestShapes:
    def test_a_new_batch_size_is_one_recompile(self) -> None:
        fast = compiled(lambda x: (x * 2).sum(0))
        for n in (4, 7, 7, 4, 7):
            x = torch.randn(n, 3)
            torch.testing.assert_close(fast(x), (x * 2).sum(0))
        assert torch_pjrt.metrics()["graphs_compiled"] <= 2

    def test_dynamic(self) -> None:
        fast = compiled(lambda x: x.reshape(-1).cumsum(0) + x.shape[0], dynamic=True)
        for n in (4, 7, 5, 4):
            x = torch.randn(n, 3)
            torch.testing.assert_close(fast(x), x.reshape(-1).cumsum(0) + n)
        assert torch_pjrt.metrics()["graphs_compiled"] == 3

    def test_dynamic_training(self) -> None:
        model = nn.Linear(3, 2)
        fast = compiled(model, dynamic=True)
        for n in (4, 7, 5, 4):
            x = torch.randn(n, 3)
            model.zero_grad()
            model(x).square().sum().backward()
            expected = model.weight.grad
            model.zero_grad()
            fast(x).square().sum().backward()
            torch.testing.assert_close(model.weight.grad, expected)

    def test_scalars_that_vary_are_inputs(self) -> None:
        fast = compiled(lambda x, s: x * s)
        x = torch.ones(3)
        for s in (0.5, 1.5, 2.5, 3.5, 4.5):
            torch.testing.assert_close(fast(x, s), x * s)
        assert torch_pjrt.metrics()["graphs_compiled"] <= 2

    def test_empty(self) -> None:
        fast = compiled(lambda x: (x + 1, x.sum(0)))
        first, second = fast(torch.zeros(0, 3))
        assert first.shape == (0, 3)
        same(second, torch.zeros(3))


@torch.library.custom_op("tests_dynamo::opaque", mutates_args=())
def opaque(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.eigvalsh(x)


@opaque.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[:-1])


class TestCuts:
    def test_an_op_that_cannot_be_lowered(self) -> None:
        @torch.library.custom_op("tests_dynamo::reports_of", mutates_args=())  # a process is warned of an op once
        def reports_of(x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.eigvalsh(x)

        reports_of.register_fake(lambda x: x.new_empty(x.shape[:-1]))

        def f(x: torch.Tensor) -> torch.Tensor:
            y = reports_of(x @ x.t())
            return (y * 2).cumsum(0)

        x = torch.randn(4, 4)
        with pytest.warns(UserWarning, match=r"reports_of.* is not compiled at .*test_backend.py:\d+"):
            result = compiled(f)(x)
        torch.testing.assert_close(result, f(x), rtol=1e-4, atol=1e-4)
        assert torch_pjrt.metrics()["graphs_compiled"] <= 2
        assert torch_pjrt.metrics()["host_fallbacks"] == {"tests_dynamo.reports_of.default": 1}

    def test_strict(self) -> None:
        with torch_pjrt.strict_mode(), pytest.raises(Exception, match=r"opaque.*can't be compiled"):
            compiled(opaque)(torch.eye(3))

    def test_a_custom_op(self) -> None:
        @torch.library.custom_op("tests_dynamo::triple", mutates_args=())
        def triple(x: torch.Tensor) -> torch.Tensor:
            return x * 3

        @triple.register_fake
        def _(x: torch.Tensor) -> torch.Tensor:
            return torch.empty_like(x)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = compiled(lambda x: triple(x + 1) * 2, fullgraph=True)(torch.ones(3))
        same(result, torch.full((3,), 12.0))

    def test_mutation_after_a_cut(self) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            y = opaque(x @ x.t())
            x.add_(1)
            return y + x.sum()

        x = torch.randn(3, 3)
        other = x.clone()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = compiled(f)(x)
        torch.testing.assert_close(result, f(other), rtol=1e-4, atol=1e-4)
        same(x, other)

    def test_a_shape_that_depends_on_data(self) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            return (x[x > 0] * 2).sum() + 1

        fast = compiled(f)
        for _ in range(3):
            x = torch.randn(10)
            torch.testing.assert_close(fast(x), f(x))

    def test_a_shape_that_depends_on_data_inside_one_graph(self) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            return torch.nonzero(x > 0).sum() * 2 + x.sum()

        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fast = compiled(f, fullgraph=True)
            for _ in range(3):
                x = torch.randn(10)
                torch.testing.assert_close(fast(x), f(x))


class TestLayouts:
    def test_views_rest_on_the_layout_that_was_captured(self) -> None:
        """The CPU's convolution returns its result in channels last here, and later views are captured so."""
        convolution = nn.Conv2d(8, 8, 3, padding=1, groups=8)

        def f(tokens: torch.Tensor) -> torch.Tensor:
            y = convolution(tokens.transpose(1, 2).view(2, 8, 4, 4))
            return nn.functional.gelu(y.flatten(2).transpose(1, 2)).clone().view(32, 8)

        x = torch.randn(2, 16, 8)
        torch.testing.assert_close(compiled(f, fullgraph=True)(x), f(x))
        assert torch_pjrt.metrics()["host_fallbacks"] == {}

    @pytest.mark.parametrize("device", ["cpu", "pjrt"])
    def test_a_batch_norm_of_what_was_transposed(self, device: str) -> None:
        """PyTorch captures its result with the input's strides; its kernels, and ours, return row-major ones."""
        model = nn.Sequential(nn.Conv1d(4, 6, 3), nn.BatchNorm1d(6), nn.Conv1d(6, 4, 1)).to(device)
        other = copy.deepcopy(model)
        x = torch.randn(2, 9, 4, device=device)
        fast = compiled(lambda x: other(x.transpose(1, 2)).transpose(1, 2).tanh(), fullgraph=True)
        for _ in range(2):
            expected = model(x.transpose(1, 2)).transpose(1, 2).tanh()
            found = fast(x)
            torch.testing.assert_close(found, expected)
            expected.square().sum().backward()
            found.square().sum().backward()
            for ours, theirs in zip(other.parameters(), model.parameters(), strict=True):
                torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)


def test_a_call_does_not_look_the_current_stream_up(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = compiled(lambda x: x + 1)
    same(fast(torch.ones(3)), torch.full((3,), 2.0))
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda *_: pytest.fail("the stream is looked up"))
    same(fast(torch.ones(3)), torch.full((3,), 2.0))


def _mutates(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


WITHOUT_WRAPPER: dict[str, tuple[Callable[[torch.Tensor], Any], bool]] = {
    "a value": (lambda x: x + 1, True),
    "several, nested": (lambda x: {"a": x + 1, "b": [x * 2, 3]}, True),
    "an argument that is mutated": (_mutates, False),
    "a view of the argument": (lambda x: x.t(), False),
    "two views of one result": (lambda x: (x + 1).unbind(), True),
}


@pytest.mark.parametrize("name", WITHOUT_WRAPPER)
def test_plain_inference_has_no_wrapper(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is called directly where AOTAutograd's wrapper would do nothing; results with it are equal."""
    f, expected = WITHOUT_WRAPPER[name]
    ask, answers = backend.needs_no_wrapper, []

    def asked(*inputs: Any) -> bool:
        answers.append(ask(*inputs))
        return answers[-1]

    monkeypatch.setattr(backend, "needs_no_wrapper", asked)
    fast, weight = compiled(f, fullgraph=True), torch.randn(3, 3, requires_grad=True)
    for _ in range(2):
        x, y = torch.ones(3, 3), torch.ones(3, 3)
        result, reference = fast(x), f(y)
        torch.testing.assert_close(result, reference, check_stride=True)
        same(x, y)
    assert answers == [expected]
    with torch.no_grad():
        no_grad = compiled(lambda x: x @ weight)(x)
    assert not no_grad.requires_grad
    assert answers == [expected, True]


class TestNumbers:
    def test_a_number_that_counts_up(self) -> None:
        """There are two programs, with the number as an input of the second; the values that are stored are bounded."""
        fast = compiled(lambda x, k: x * k + k, fullgraph=True)
        x = torch.ones(3)
        for k in range(2, 600):
            same(fast(x, k), x * k + k)
        assert torch_pjrt.metrics()["graphs_compiled"] <= 2


class TestOptions:
    def test_unknown_option(self) -> None:
        with pytest.raises(Exception, match=r"no option 'nonsense'; it has 'retrace'.*'verify'"):
            compiled(lambda x: x + 1, options={"nonsense": 1})(torch.ones(2))

    def test_unknown_mode(self) -> None:
        with pytest.raises(Exception, match=r"no mode 'max-autotune'; it has 'default' and 'reduce-overhead'"):
            compiled(lambda x: x + 1, mode="max-autotune")(torch.ones(2))

    def test_retrace(self) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            x.add_(1)
            return x * 2

        x = torch.ones(3)
        fast = compiled(f, options={"retrace": True})
        for i in range(3):
            before = torch_pjrt.metrics()["ops_recorded"]
            same(fast(x), torch.full((3,), 2.0 * (i + 2)))
            assert torch_pjrt.metrics()["ops_recorded"] > before
        same(x, torch.full((3,), 4.0))

    def test_verify_passes(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        fast = compiled(model, options={"verify": True})
        fast(torch.randn(6, 4)).sum().backward()

    def test_verify_names_what_differs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from torch_pjrt.dynamo import backend

        monkeypatch.setattr(backend, "compile_graph", lambda *_: lambda args: [torch.zeros(3)])
        with pytest.raises(RuntimeError, match="option 'verify': result 'add' differs from eager"):
            compiled(lambda x: x + 1, options={"verify": True})(torch.ones(3))


def test_two_threads_call_the_same_function() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
    with torch.no_grad():
        fast = compiled(model)
        inputs = [torch.randn(4, 16) for _ in range(8)]
        fast(inputs[0])
        expected = [model(x) for x in inputs]

    def work() -> None:
        with torch.no_grad():
            for _ in range(50):
                for x, y in zip(inputs, expected, strict=True):
                    torch.testing.assert_close(fast(x), y)

    in_two_threads(work)


def test_grad_modes() -> None:
    weight = torch.ones(3, requires_grad=True)
    fast = compiled(lambda x: x * weight)
    assert fast(torch.ones(3)).requires_grad
    with torch.no_grad():
        assert not fast(torch.ones(3)).requires_grad
    with torch.inference_mode():
        assert fast(torch.ones(3)).is_inference()


def test_a_backward_that_is_run_twice() -> None:
    """A backward may run twice, whichever kind was asked for when it was compiled."""
    weight = torch.ones(3, requires_grad=True)
    fast, x = compiled(lambda x: (x * weight).sin().exp().sum()), torch.rand(3)
    fast(x).backward()
    expected, weight.grad = weight.grad, None
    loss = fast(x)
    for _ in range(2):
        loss.backward(retain_graph=True)
        torch.testing.assert_close(weight.grad, expected)
        weight.grad = None
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):  # what was saved has been let go of
        loss.backward()


def test_results_can_be_resized_and_written() -> None:
    result = compiled(lambda x: x + 1)(torch.zeros(4))
    result.resize_(100).fill_(2.0)
    assert result.sum() == 200
