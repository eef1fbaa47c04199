"""Beside the sparse layouts: 2:4 semi-structured tensors are refused, jagged ones work; SciPy's come and go."""

from __future__ import annotations

import pytest
import torch

from tests.sparse.layouts import DEVICE, assert_same


def test_semi_structured_tensors_are_cudas() -> None:
    dense = torch.tensor([[0, 0, 1, 1]] * 64, dtype=torch.float16).repeat(1, 32).to(DEVICE)
    with pytest.raises(RuntimeError, match=r"original_tensor.device= pjrt:0 is not supported! Only CUDA"):
        torch.sparse.to_sparse_semi_structured(dense)


def test_quantized_tensors_are_refused() -> None:
    with pytest.raises(NotImplementedError, match=r"the pjrt device holds no quantized tensors"):
        torch.quantize_per_tensor(torch.eye(3), 0.1, 0, torch.qint8).to(DEVICE)


def test_jagged_tensors_are_subclasses() -> None:
    def program(device: str) -> torch.Tensor:
        rows = [torch.ones(2, 3, device=device), 2 * torch.ones(1, 3, device=device)]
        jagged = torch.nested.nested_tensor(rows, layout=torch.jagged)
        return torch.relu(jagged * 2 - 3).values()

    assert_same(program(DEVICE), program("cpu"))


def test_matrices_of_scipy() -> None:
    scipy = pytest.importorskip("scipy.sparse")
    there = scipy.random(30, 20, 0.2, format="csr", dtype="float32", random_state=0)
    matrix = torch.sparse_csr_tensor(
        torch.from_numpy(there.indptr), torch.from_numpy(there.indices), torch.from_numpy(there.data), there.shape
    ).to(DEVICE)
    x = torch.randn(20, 4)
    torch.testing.assert_close((matrix @ x.to(DEVICE)).cpu(), torch.from_numpy(there @ x.numpy()))
    parts = (matrix.values().cpu().numpy(), matrix.col_indices().cpu().numpy(), matrix.crow_indices().cpu().numpy())
    assert (scipy.csr_matrix(parts, matrix.shape) != there).nnz == 0
