"""LAPACK's family where programs can't call LAPACK, compared with the CPU: the program of test_factors.py.
 Signs of vectors, and vectors of equal values, are not determined, so factors are multiplied with each other and
compared with the matrix.
"""

import sys
import warnings

import torch
from torch import Tensor

import torch_pjrt

DEVICE = "pjrt"
SHAPES = [(1, 1), (5, 5), (7, 3), (3, 7), (2, 3, 4, 4), (0, 0), (0, 3), (3, 0), (0, 2, 2), (140, 66), (131, 140)]
TIMES_EPSILON = 60


def wide(x: Tensor) -> Tensor:
    return x.detach().cpu().to(torch.complex128 if x.is_complex() else torch.float64)


def near(actual: Tensor, expected: Tensor, size: float | None = None, times: float = 1) -> None:
    """Asserts that both differ by a few digits of the dtype, relative to the largest number or to `size`."""
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    assert actual.dtype == expected.dtype
    if not actual.numel():
        return
    a, b = wide(actual), wide(expected)
    most = b.abs().max().item() if size is None else size
    error = (a - b).abs().max().item()
    tolerance = TIMES_EPSILON * times * torch.finfo(actual.dtype).eps * max((1, *expected.shape)) ** 0.5
    assert error <= tolerance * most, (error, most, tolerance)


def orthonormal(q: Tensor) -> None:
    product = q.mH @ q
    near(product, torch.eye(q.shape[-1], dtype=q.dtype).expand(product.shape).to(product.device), 1.0)


def norm(x: Tensor) -> float:
    return torch.linalg.matrix_norm(wide(x), 2).max().item() if x.numel() else 0.0


def check_qr(a: Tensor, x: Tensor) -> None:
    for mode in ("reduced", "complete", "r"):
        expected, actual = torch.linalg.qr(a, mode=mode), torch.linalg.qr(x, mode=mode)
        near(actual.R, expected.R, norm(a))
        assert actual.Q.shape == expected.Q.shape
        if mode != "r":
            orthonormal(actual.Q)
            near(actual.Q @ actual.R, a, norm(a))


def check_reflections(a: Tensor, x: Tensor) -> None:
    packed, tau = torch.geqrf(a)
    near(torch.geqrf(x).tau, tau, 1.0, 50)
    given = packed.to(DEVICE), tau.to(DEVICE)
    if a.shape[-2] >= a.shape[-1]:
        near(torch.linalg.householder_product(*given), torch.linalg.householder_product(packed, tau), 1.0)
    for left in (True, False) if a.numel() else ():
        other = torch.randn(*a.shape[:-2], *((a.shape[-2], 4) if left else (4, a.shape[-2])), dtype=a.dtype)
        for transpose in (True, False):
            near(
                torch.ormqr(*given, other.to(DEVICE), left, transpose), torch.ormqr(packed, tau, other, left, transpose)
            )


def check_lu(a: Tensor, x: Tensor) -> None:
    expected, actual = torch.linalg.lu_factor_ex(a), torch.linalg.lu_factor_ex(x)
    assert torch.equal(actual.pivots.cpu(), expected.pivots)
    assert torch.equal(actual.info.cpu(), expected.info)
    near(actual.LU, expected.LU, max(norm(a), 1), 10)
    p, lower, upper = torch.linalg.lu(x)
    near(p @ lower @ upper, a, norm(a))
    for mine, theirs in zip(
        torch.lu_unpack(expected.LU.to(DEVICE), expected.pivots.to(DEVICE)), torch.lu_unpack(*expected[:2]), strict=True
    ):
        near(mine, theirs)


def check_solving(a: Tensor, x: Tensor) -> None:
    if a.shape[-1] != a.shape[-2]:
        return
    near(torch.linalg.det(x), torch.linalg.det(a), None, 20)
    for mine, theirs in zip(torch.linalg.slogdet(x), torch.linalg.slogdet(a), strict=True):
        near(mine, theirs, 1 + a.shape[-1], 20)
    a = a + 3 * a.shape[-1] ** 0.5 * torch.eye(a.shape[-1], dtype=a.dtype)
    x = a.to(DEVICE)
    near(torch.linalg.inv(x), torch.linalg.inv(a))
    right, factors = torch.randn_like(a), torch.linalg.lu_factor(a)
    for left in (True, False):
        near(torch.linalg.solve(x, right.to(DEVICE), left=left), torch.linalg.solve(a, right, left=left))
        for adjoint in (True, False):
            near(torch.linalg.lu_solve(*(f.to(DEVICE) for f in factors), right.to(DEVICE), left=left, adjoint=adjoint),
                 torch.linalg.lu_solve(*factors, right, left=left, adjoint=adjoint))  # fmt: skip
    vector, many = torch.randn(a.shape[-1], dtype=a.dtype), torch.randn(3, *a.shape, dtype=a.dtype)
    near(torch.linalg.solve(x, vector.to(DEVICE)), torch.linalg.solve(a, vector))
    near(torch.linalg.solve(x, many.to(DEVICE)), torch.linalg.solve(a, many))


def check_eigh(a: Tensor, x: Tensor) -> None:
    if a.shape[-1] != a.shape[-2]:
        return
    for side in "LU":
        half = a.tril(-1) if side == "L" else a.triu(1)
        whole = half + half.mH + torch.diag_embed(a.diagonal(dim1=-2, dim2=-1).real).to(a.dtype)
        values, vectors = torch.linalg.eigh(x, UPLO=side)
        near(values, torch.linalg.eigvalsh(a, UPLO=side), norm(whole))
        near(torch.linalg.eigvalsh(x, UPLO=side), torch.linalg.eigvalsh(a, UPLO=side), norm(whole))
        orthonormal(vectors)
        near(whole @ vectors.cpu(), vectors.cpu() * values.cpu().unsqueeze(-2), norm(whole))


def check_svd(a: Tensor, x: Tensor) -> None:
    for full in (True, False):
        expected, (u, s, vh) = torch.linalg.svd(a, full_matrices=full), torch.linalg.svd(x, full_matrices=full)
        assert [y.shape for y in (u, s, vh)] == [y.shape for y in expected]
        near(s, expected.S, norm(a))
        orthonormal(u)
        orthonormal(vh.mH)
        count = s.shape[-1]
        near((u[..., :count] * s.unsqueeze(-2)) @ vh[..., :count, :], a, norm(a))
    near(torch.linalg.svdvals(x), torch.linalg.svdvals(a), norm(a))


def check_exponential(a: Tensor, x: Tensor) -> None:
    if a.shape[-1] != a.shape[-2]:
        return
    for scale in (0.01, 0.3, 2.0):
        near(torch.linalg.matrix_exp(x * scale), torch.linalg.matrix_exp(a * scale), None, 10)


CHECKS = (check_qr, check_reflections, check_lu, check_solving, check_eigh, check_svd, check_exponential)


def usual(dtype: torch.dtype) -> None:
    for shape in SHAPES:
        a = torch.randn(shape, dtype=dtype)
        for check in CHECKS:
            try:
                check(a, a.to(DEVICE))
            except AssertionError as error:
                raise AssertionError(f"{check.__name__} of {shape}, {dtype}") from error


def special(dtype: torch.dtype) -> None:
    """Large, small and equal numbers, zeros, and deficient ranks."""
    torch.manual_seed(1)
    real = dtype.to_real()
    large, small = (1e200, 1e-200) if real == torch.float64 else (1e25, 1e-25)
    a = torch.randn(6, 6, dtype=dtype)
    graded = a * torch.logspace(0, -12, 6, dtype=real)
    cases = {
        "large": a * large, "small": a * small, "zero": torch.zeros(6, 6, dtype=dtype),
        "one": torch.eye(6, dtype=dtype), "ones": torch.ones(6, 6, dtype=dtype), "of rank 2": a[:, :2] @ a[:2],
        "graded": graded, "minus one": -torch.eye(6, dtype=dtype), "close": 1 + a * 1e-5,
        "zeros inside": torch.block_diag(a[:2, :2], torch.zeros(2, 2), a[:2, :2]),
        "a column of zeros": torch.cat([a[:, :2], torch.zeros(6, 2, dtype=dtype), a[:, 2:4]], 1),
    }  # fmt: skip
    for name, matrix in cases.items():
        checks = (check_qr, check_svd, check_eigh)
        if name in ("large", "small", "one", "minus one"):
            checks += (check_lu,)
        for check in checks:
            try:
                check(matrix, matrix.to(DEVICE))
            except AssertionError as error:
                raise AssertionError(f"{check.__name__} of {name}, {dtype}") from error
    for matrix in (
        torch.zeros(3, 3, dtype=dtype),
        cases["a column of zeros"],
        torch.diag(torch.tensor([1, 0, 2], dtype=dtype)),
    ):
        expected, actual = torch.linalg.lu_factor_ex(matrix), torch.linalg.lu_factor_ex(matrix.to(DEVICE))
        assert actual.info.item() == expected.info.item() > 0
        assert torch.linalg.inv_ex(matrix.to(DEVICE)).info.item() == expected.info.item()
        assert torch.linalg.det(matrix.to(DEVICE)).item() == 0
        assert raised(torch.linalg.inv, matrix.to(DEVICE)) == raised(torch.linalg.inv, matrix)
    powers = torch.tensor([[0, 1e30], [0, 0]], dtype=dtype)
    near(torch.linalg.matrix_exp(powers.to(DEVICE)), torch.linalg.matrix_exp(powers))
    turn = torch.tensor([[0, -100.0], [100.0, 0]], dtype=dtype)
    near(torch.linalg.matrix_exp(turn.to(DEVICE)), torch.linalg.matrix_exp(turn), None, 20)


def raised(function: object, x: Tensor) -> str:
    try:
        function(x).cpu()  # type: ignore[operator]
    except torch.linalg.LinAlgError as error:
        return str(error)
    return ""


def not_finite() -> None:
    for bad in (torch.nan, torch.inf, -torch.inf):
        x = torch.eye(3).to(DEVICE)
        x[1, 1] = bad
        for name, function in (("svd", torch.linalg.svdvals), ("eigh", torch.linalg.eigvalsh)):
            assert f"linalg.{name}: The algorithm failed to converge because the input matrix" in raised(function, x)
        for result in (torch.linalg.qr(x).R, torch.linalg.lu(x).U):
            assert not result.isfinite().all()
    assert torch.linalg.matrix_exp(torch.full((2, 2), torch.nan).to(DEVICE)).isnan().all()
    assert torch.linalg.det(torch.full((2, 2), torch.nan).to(DEVICE)).isnan()
    upper = torch.eye(3)
    upper[0, 2] = torch.nan  # never read
    assert torch.linalg.eigvalsh(upper.to(DEVICE), UPLO="L").tolist() == [1, 1, 1]


def gradients() -> None:
    torch.manual_seed(2)
    a = torch.randn(2, 4, 4, dtype=torch.float64) + 3 * torch.eye(4, dtype=torch.float64)
    b = torch.randn(4, 2, dtype=torch.float64)
    for name, f in {
        "solve": lambda x: torch.linalg.solve(x, b.to(x.device)), "inv": torch.linalg.inv, "det": torch.linalg.det,
        "transposed det": lambda x: torch.linalg.det(x.mT), "slogdet": lambda x: torch.linalg.slogdet(x)[1],
        "transposed slogdet": lambda x: torch.linalg.slogdet(x.mT)[1], "qr": lambda x: torch.linalg.qr(x).R,
        "lu": lambda x: torch.linalg.lu(x).U, "eigvalsh": lambda x: torch.linalg.eigvalsh(x @ x.mT),
        "svdvals": torch.linalg.svdvals, "pinv": torch.linalg.pinv, "exp": torch.linalg.matrix_exp,
        "eigh": lambda x: (lambda w, v: (v * w.exp().unsqueeze(-2)) @ v.mT)(*torch.linalg.eigh(x + x.mT)),
        "svd": lambda x: (lambda u, s, v: (u * s.sqrt().unsqueeze(-2)) @ v)(*torch.linalg.svd(x)),
        "product": lambda x: torch.linalg.householder_product(x, torch.ones(2, 4, dtype=x.dtype, device=x.device)),
        "ormqr": lambda x: torch.ormqr(x, torch.ones(2, 4, dtype=x.dtype, device=x.device), x.mT),
        "norm": lambda x: torch.linalg.matrix_norm(x, "nuc"), "cond": torch.linalg.cond,
    }.items():  # fmt: skip
        found = []
        for device in ("cpu", DEVICE):
            x = a.to(device).requires_grad_()
            result = f(x)
            weights = torch.linspace(1, 2, result.numel(), dtype=result.dtype).reshape(result.shape).to(device)
            found.append((result.detach().cpu(), torch.autograd.grad((result * weights).sum(), x)[0].cpu()))
        torch.testing.assert_close(found[1], found[0], msg=lambda text, name=name: f"{name}: {text}")
    # Checks one direction instead of each number: the whole Jacobian is a program of 242 calls.
    x = a[0].to(DEVICE).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: torch.linalg.eigvalsh(x + x.mT), x, fast_mode=True)


def main(part: str) -> None:
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    {"gradients": gradients, "not finite": not_finite}.get(part, lambda: None)()
    for prefix, run in (("usual ", usual), ("special ", special)):
        if part.startswith(prefix):
            run(getattr(torch, part.removeprefix(prefix)))
    assert torch_pjrt.metrics()["host_fallbacks"] == {}, torch_pjrt.metrics()["host_fallbacks"]
    print("right")


main(sys.argv[1])
