"""Arguments that XLA can't use in place: weights in a mapped file are moved once, other memory is copied."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

import torch_pjrt

pytestmark = pytest.mark.host_memory

ALIGNED = 64  # bytes


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(48, 65), torch.nn.BatchNorm1d(65), torch.nn.Linear(65, 7))


def mapped(net: torch.nn.Module, file: Path) -> torch.nn.Module:
    """Returns the network with its state in a mapped file."""
    safetensors.torch.save_file(net.state_dict(), file)
    other = copy.deepcopy(net)
    other.load_state_dict(safetensors.torch.load_file(file), assign=True)
    assert any(p.data_ptr() % ALIGNED for p in other.parameters())
    return other


def copied_bytes() -> int:
    return torch_pjrt.metrics()["host_transfer_bytes"]


def test_inference_copies_no_weights(tmp_path: Path) -> None:
    expected = network().eval()
    net = mapped(expected, tmp_path / "weights.safetensors")
    x = torch.randn(16, 48)
    fast = torch.compile(net, backend="pjrt")
    torch_pjrt.reset_metrics()
    with torch.no_grad(), torch_pjrt.strict_mode():
        torch.testing.assert_close(fast(x), expected(x))
        torch.testing.assert_close(fast(x), expected(x))
    assert copied_bytes() == 0
    assert not any(value.data_ptr() % ALIGNED for value in net.parameters())


def test_training_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    expected, file = network(), tmp_path / "weights.safetensors"
    net = mapped(expected, file)
    before = file.read_bytes()
    x, y = torch.randn(16, 48), torch.randn(16, 7)
    steps = []
    for module in (expected, net):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)

        def step(x: Any, y: Any, module: Any = module, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = (module(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        steps.append(step)
    fast = torch_pjrt.compile_step(steps[1])
    for _ in range(3):
        torch.testing.assert_close(fast(x, y), steps[0](x, y))
    torch_pjrt.reset_metrics()
    torch.testing.assert_close(fast(x, y), steps[0](x, y))
    assert copied_bytes() == 0
    torch.testing.assert_close(net.state_dict(), expected.state_dict())
    assert file.read_bytes() == before


def test_tensors_over_the_same_storage_follow(tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    safetensors.torch.save_file({"first": torch.zeros(3), "second": torch.arange(2000.0)}, file)
    weights = safetensors.torch.load_file(file)["second"]
    rows, some = weights.view(20, 100), weights[100:200]
    assert weights.data_ptr() % ALIGNED

    @torch.compile(backend="pjrt")
    def double(x: torch.Tensor) -> None:
        x.mul_(2)

    double(weights)
    expected = torch.arange(2000.0) * 2
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(rows, expected.view(20, 100))
    torch.testing.assert_close(some, expected[100:200])
    some.zero_()
    assert rows[1].eq(0).all()


def test_shared_mapping_stays(tmp_path: Path) -> None:
    """Writes to a file that is mapped as shared must stay visible in it."""
    file = tmp_path / "numbers"
    file.write_bytes(np.zeros(2001, np.float64).tobytes())
    whole = torch.UntypedStorage.from_file(str(file), shared=True, nbytes=2001 * 8)
    numbers = torch.asarray(whole[8:], dtype=torch.uint8).view(torch.float64)
    assert numbers.data_ptr() % ALIGNED

    @torch.compile(backend="pjrt")
    def add(x: torch.Tensor) -> None:
        x.add_(1)

    add(numbers)
    assert np.frombuffer(file.read_bytes()).tolist() == [0.0] + [1.0] * 2000


def test_from_pretrained(tmp_path: Path) -> None:
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=64, num_hidden_layers=1, num_attention_heads=2, intermediate_size=96
    )
    transformers.BertModel(config).save_pretrained(tmp_path)
    model = transformers.BertModel.from_pretrained(tmp_path).eval()
    tokens = torch.arange(20).reshape(2, 10)
    with torch.no_grad(), torch_pjrt.strict_mode():
        expected = model(tokens).last_hidden_state
        fast = torch.compile(model, backend="pjrt")
        torch_pjrt.reset_metrics()
        torch.testing.assert_close(fast(tokens).last_hidden_state, expected, rtol=1e-4, atol=1e-5)
    assert copied_bytes() < 4096  # only small arguments


def shifted(size: int) -> np.ndarray[Any, Any]:
    """Returns zeros that begin 4 bytes after a multiple of 64."""
    array = np.zeros(size + 32, np.float32)
    start = (-array.ctypes.data // 4) % 16 + 1
    return array[start : start + size]


def test_parameters_in_memory_of_others_are_reported() -> None:
    net = torch.nn.Linear(50, 40, bias=False)
    net.weight.data = torch.from_numpy(shifted(2000)).view(40, 50)
    fast = torch.compile(net, backend="pjrt")
    x = torch.randn(3, 50)
    with (
        torch.no_grad(),
        pytest.warns(UserWarning, match="8,000 bytes of parameters on the CPU that are copied in each"),
    ):
        assert fast(x).eq(0).all()
    torch._dynamo.reset()
    with torch.no_grad(), torch_pjrt.strict_mode(), pytest.raises(RuntimeError, match="8,000 bytes of parameters"):
        fast(x)
    torch._dynamo.reset()
    net.weight.data = net.weight.data.clone()  # the documented cure
    with torch.no_grad(), torch_pjrt.strict_mode():
        assert fast(x).eq(0).all()


def test_memory_of_others_is_copied_and_an_error_in_strict_mode() -> None:
    array = shifted(2000)
    values = torch.from_numpy(array)

    @torch.compile(backend="pjrt")
    def add(x: torch.Tensor) -> torch.Tensor:
        return x.add_(1) * 2

    torch_pjrt.reset_metrics()
    assert add(values).eq(2).all()
    assert copied_bytes() == 2 * values.nbytes  # there and back
    assert array.tolist() == [1.0] * 2000
    with (
        torch_pjrt.strict_mode(),
        pytest.raises(RuntimeError, match=r"argument 0 of a compiled graph, f32\[2000\], would be copied in each call"),
    ):
        add(values)
    assert values.eq(1).all()  # unchanged
    with torch_pjrt.strict_mode():
        assert add(values[:500]).eq(4).all()  # too small to be reported
