"""Kernel sums over many points without their matrix: composites that a generated C++ kernel does, forward and gradient.

    python examples/keops.py [points] [--plot keops.png]

For 10,000 points beside the plain torch program, and pykeops where it is installed; then for `points` (100,000), alone.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table

import torch_pjrt

SCALE = 0.5


def scores(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Returns -|x_i - y_j|² / s, the whole matrix."""
    squares = x.square().sum(-1)[:, None] + y.square().sum(-1)[None]
    return (2 * x @ y.T - squares) / SCALE


@torch_pjrt.composite("keops.gaussian", scale=SCALE)
def gaussian(x: torch.Tensor, y: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return scores(x, y).exp() @ v


@torch_pjrt.composite("keops.softmax", scale=SCALE)
def softmax(x: torch.Tensor, y: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return scores(x, y).softmax(-1) @ v


SUMS: dict[str, Callable[..., torch.Tensor]] = {"gaussian": gaussian, "softmax": softmax}

# --- the kernel, for the widths at hand -----------------------------------------------------------------------------

COMMON = """
#include <xla/ffi/api/ffi.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>
namespace ffi = xla::ffi;
using Tensor = ffi::Buffer<ffi::F32>;
using Result = ffi::ResultBuffer<ffi::F32>;
constexpr int D = @D@, V = @V@, TILE = 512;
constexpr bool kSoftmax = @SOFTMAX@;

// Of what is not above 0.
static inline float exp_of(float x) {
  x = std::max(x, -87.0f) * 1.44269504f;
  const float whole = std::nearbyint(x), f = x - whole;
  float p = 1.5352962e-4f;
  p = p * f + 1.3398874e-3f; p = p * f + 9.6184373e-3f; p = p * f + 5.5503324e-2f;
  p = p * f + 2.4022648e-1f; p = p * f + 6.9314720e-1f; p = p * f + 1.0f;
  int bits;
  std::memcpy(&bits, &p, 4);
  bits += static_cast<int>(whole) << 23;
  std::memcpy(&p, &bits, 4);
  return p;
}

// TILE points from `first` on, each coordinate by itself; past the end ones so far away that they weigh nothing.
struct Tile {
  alignas(64) float y[D][TILE], v[V][TILE], weight[TILE];
  void load(const float* all_y, const float* all_v, long first, long count) {
    for (int j = 0; j < TILE; ++j) {
      const bool there = first + j < count;
      for (int d = 0; d < D; ++d) y[d][j] = there ? all_y[(first + j) * D + d] : 1e15f;
      for (int k = 0; k < V; ++k) v[k][j] = there ? all_v[(first + j) * V + k] : 0;
    }
  }
  float score(const float* x, float factor) {  // into weight; gives the greatest
    float greatest = -3e38f;
    for (int j = 0; j < TILE; ++j) {
      float s = 0;
      for (int d = 0; d < D; ++d) { const float t = x[d] - y[d][j]; s += t * t; }
      weight[j] = s * factor;
      greatest = std::max(greatest, weight[j]);
    }
    return greatest;
  }
};

template <class F>
static void in_threads(long count, F&& work) {
  const long threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> all;
  for (long t = 1; t < threads; ++t)
    all.emplace_back([&, t] { work(t, count * t / threads, count * (t + 1) / threads); });
  work(0, 0, count / threads);
  for (auto& one : all) one.join();
}

// The sums of rows [begin, end), and of softmax the greatest score and what the weights sum to.
static void rows(const float* x, const float* y, const float* v, float factor, long begin, long end, long m, float* out,
                 float* greatest, float* total) {
  auto tile = std::make_unique<Tile>();
  std::fill(out + begin * V, out + end * V, 0.0f);
  for (long i = begin; i < end; ++i) { greatest[i] = kSoftmax ? -3e38f : 0; total[i] = 0; }
  for (long first = 0; first < m; first += TILE) {
    tile->load(y, v, first, m);
    for (long i = begin; i < end; ++i) {
      const float here = tile->score(x + i * D, factor);
      if (kSoftmax && here > greatest[i]) {
        const float shrink = exp_of(greatest[i] - here);
        for (int k = 0; k < V; ++k) out[i * V + k] *= shrink;
        total[i] *= shrink;
        greatest[i] = here;
      }
      const float base = greatest[i];
      float sum = 0, sums[V] = {};
      for (int j = 0; j < TILE; ++j) {
        const float w = exp_of(tile->weight[j] - base);
        sum += w;
        for (int k = 0; k < V; ++k) sums[k] += w * tile->v[k][j];
      }
      total[i] += sum;
      for (int k = 0; k < V; ++k) out[i * V + k] += sums[k];
    }
  }
  if (kSoftmax) for (long i = begin; i < end; ++i) for (int k = 0; k < V; ++k) out[i * V + k] /= total[i];
}
"""

FORWARD = """
static ffi::Error forward(Tensor x, Tensor y, Tensor v, double scale, Result out) {
  const long n = x.dimensions()[0], m = y.dimensions()[0];
  std::vector<float> greatest(n), total(n);
  in_threads(n, [&](long, long begin, long end) {
    rows(x.typed_data(), y.typed_data(), v.typed_data(), static_cast<float>(-1 / scale), begin, end, m,
         out->typed_data(), greatest.data(), total.data());
  });
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(sums, forward, ffi::Ffi::Bind()
    .Arg<Tensor>().Arg<Tensor>().Arg<Tensor>().Attr<double>("scale").Ret<Tensor>());
"""

BACKWARD = """
static ffi::Error backward(Tensor x, Tensor y, Tensor v, Tensor g, double scale, ffi::Span<const int64_t>, Result dx,
                           Result dy, Result dv) {
  const long n = x.dimensions()[0], m = y.dimensions()[0];
  const float factor = static_cast<float>(-1 / scale);
  std::vector<float> greatest(n), total(n), out(n * V);
  std::vector<std::vector<float>> dys(std::max(1u, std::thread::hardware_concurrency())), dvs(dys.size());
  std::fill(dx->typed_data(), dx->typed_data() + n * D, 0.0f);
  in_threads(n, [&](long t, long begin, long end) {
    const float *px = x.typed_data(), *pg = g.typed_data();
    if (kSoftmax) {
      rows(px, y.typed_data(), v.typed_data(), factor, begin, end, m, out.data(), greatest.data(), total.data());
    }
    auto tile = std::make_unique<Tile>();
    dys[t].assign(m * D, 0);
    dvs[t].assign(m * V, 0);
    for (long first = 0; first < m; first += TILE) {
      tile->load(y.typed_data(), v.typed_data(), first, m);
      alignas(64) float sum_y[D][TILE] = {}, sum_v[V][TILE] = {}, along[TILE];
      for (long i = begin; i < end; ++i) {
        const float* xi = px + i * D;
        tile->score(xi, factor);
        float base = 0, part = 1, mean = 0, gi[V], sums[D] = {}, xs[D];
        for (int k = 0; k < V; ++k) gi[k] = pg[i * V + k];
        for (int d = 0; d < D; ++d) xs[d] = xi[d];
        if (kSoftmax) {
          base = greatest[i];
          part = 1 / total[i];
          for (int k = 0; k < V; ++k) mean += gi[k] * out[i * V + k];
        }
        float* p = tile->weight;
        for (int j = 0; j < TILE; ++j) p[j] = exp_of(p[j] - base) * part;
        for (int j = 0; j < TILE; ++j) along[j] = -mean;
        for (int k = 0; k < V; ++k) {
          for (int j = 0; j < TILE; ++j) along[j] += gi[k] * tile->v[k][j];
          for (int j = 0; j < TILE; ++j) sum_v[k][j] += p[j] * gi[k];
        }
        for (int j = 0; j < TILE; ++j) along[j] *= p[j] * 2 * factor;
        for (int d = 0; d < D; ++d) {
          float sum = 0;
          for (int j = 0; j < TILE; ++j) {
            const float t = along[j] * (xs[d] - tile->y[d][j]);
            sum += t;
            sum_y[d][j] -= t;
          }
          sums[d] = sum;
        }
        for (int d = 0; d < D; ++d) dx->typed_data()[i * D + d] += sums[d];
      }
      for (long j = 0; j < std::min<long>(TILE, m - first); ++j) {
        for (int d = 0; d < D; ++d) dys[t][(first + j) * D + d] += sum_y[d][j];
        for (int k = 0; k < V; ++k) dvs[t][(first + j) * V + k] += sum_v[k][j];
      }
    }
  });
  for (long j = 0; j < m * D; ++j) { float s = 0; for (auto& one : dys) s += one[j]; dy->typed_data()[j] = s; }
  for (long j = 0; j < m * V; ++j) { float s = 0; for (auto& one : dvs) s += one[j]; dv->typed_data()[j] = s; }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(sums, backward, ffi::Ffi::Bind()
    .Arg<Tensor>().Arg<Tensor>().Arg<Tensor>().Arg<Tensor>().Attr<double>("scale")
    .Attr<ffi::Span<const int64_t>>("gradients_of").Ret<Tensor>().Ret<Tensor>().Ret<Tensor>());
"""

# Sums may be reordered; -ffast-math is not used because it changes the arithmetic of the whole process.
FLAGS = ["-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno"]


def generated(call) -> str:
    text = COMMON + (BACKWARD if call.name.endswith(".backward") else FORWARD)
    widths = {"@D@": call.operands[0].shape[1], "@V@": call.operands[2].shape[1]}
    for name, value in {**widths, "@SOFTMAX@": str("softmax" in call.name).lower()}.items():
        text = text.replace(name, str(value))
    return text


def fits(call) -> bool:
    """Accepts float32, and backwards that need all three gradients."""
    wanted = call.attributes.get("gradients_of", [0, 1, 2])
    return all(x.dtype == torch.float32 for x in call.operands) and wanted == [0, 1, 2]


def register() -> None:
    for name in SUMS:
        for suffix in ("", ".backward"):
            torch_pjrt.register_kernel(f"keops.{name}{suffix}", source=generated, symbol="sums", when=fits, flags=FLAGS)


# --- the comparison -------------------------------------------------------------------------------------------------


def by_pykeops() -> dict[str, Callable[..., torch.Tensor]]:
    """Returns both sums by pykeops, or nothing if it isn't installed."""
    try:
        from pykeops.torch import LazyTensor
    except ImportError:
        return {}

    def matrix(x, y):
        return -((LazyTensor(x[:, None]) - LazyTensor(y[None])) ** 2).sum(-1) / SCALE

    return {
        "gaussian": lambda x, y, v: matrix(x, y).exp() @ v,
        "softmax": lambda x, y, v: matrix(x, y).sumsoftmaxweight(LazyTensor(v[None]), axis=1),
    }


def with_gradients(function: Callable[..., torch.Tensor], points: list[torch.Tensor]) -> list[torch.Tensor]:
    given = [x.detach().requires_grad_() for x in points]
    result = function(*given)
    gradients = torch.autograd.grad(result.sin().sum(), given)
    return [x.detach().cpu() for x in (result, *gradients)]


def seconds(work: Callable[[], object], times: int = 3) -> float:
    work()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken)


def points(count: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(count, 3), torch.randn(count, 3), torch.randn(count, 2)]


def error(name: str, given: list[torch.Tensor]) -> float:
    """Returns the error of results and gradients against float64, relative to the maximum of each."""
    ours = with_gradients(SUMS[name], [x.to("pjrt") for x in given])
    exact = with_gradients(SUMS[name], [x.double() for x in given])
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, exact, strict=True))


def resident_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("points", nargs="?", type=int, default=100_000)
    parser.add_argument("--few", type=int, default=10_000, help="points beside the others")
    parser.add_argument("--sums", nargs="*", choices=list(SUMS), default=list(SUMS))
    parser.add_argument("--alone", action="store_true", help="measure nothing else")
    parser.add_argument("--plot", help="where to draw the times")
    options = parser.parse_args()
    register()
    keops = {} if options.alone else by_pykeops()
    table = Table("sum", "points", "who", "forward", "with gradients", "error", "MiB more")
    times: dict[str, float] = {}

    def row(name: str, count: int, who: str, function: Callable[..., torch.Tensor], device: str, wrong: str) -> None:
        given = [x.to(device) for x in points(count)]
        before, repeats = resident_mib(), 3 if count <= 10_000 else 1
        forward = seconds(lambda: function(*given).cpu(), repeats)
        both = seconds(lambda: with_gradients(function, given), repeats)
        more = resident_mib() - before
        times[f"{name}, {count} points, {who}"] = both
        table.add_row(name, f"{count:,}", who, f"{forward:.3f} s", f"{both:.3f} s", wrong, f"{more:.0f}")

    for name in options.sums:
        function = SUMS[name]
        row(name, options.few, "a generated kernel", function, "pjrt", f"{error(name, points(2000)):.1e}")
        row(name, options.points, "a generated kernel", function, "pjrt", "")
        if keops:
            row(name, options.few, "pykeops", keops[name], "cpu", "")
        if not options.alone:
            row(name, options.few, "torch", function, "cpu", "")
    Console(width=120).print(table)
    if not keops and not options.alone:
        print("pykeops is not installed: pip install pykeops")
    if options.plot:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        pyplot.figure(figsize=(9, 4))
        pyplot.barh(list(times), list(times.values()))
        pyplot.xscale("log")
        pyplot.xlabel("seconds, forward and gradients")
        pyplot.savefig(options.plot, bbox_inches="tight")


if __name__ == "__main__":
    main()
