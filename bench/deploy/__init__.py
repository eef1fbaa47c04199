"""Programs in files, called from C++, against PJRT's C API alone, AOTInductor and, where it is installed, ONNX Runtime
(``pip install onnxruntime onnxscript``).

AOTInductor compiles for minutes; TORCH_PJRT_BENCH_MODELS names some of the models ("resnet18,gpt2"). All processes
have the same number of threads and are timed alternately: each ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

import torch_pjrt
from measure import Result
from models.catalogue import case
from models.language import gpt2
from torch_pjrt.kernels import onednn

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/program"
HAS_ONEDNN = (Path(sys.prefix) / "lib/cmake/dnnl/dnnl-config.cmake").exists()  # pip install onednn-devel-cpu-gomp
ROUNDS = 11
REST_S = 0.1  # ONNX Runtime's threads spin for 10 to 50 ms after their last call, on a core that the next process needs
AOTI = "AOTInductor"


def sh(*command: str | Path) -> str:
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def tool(name: str) -> Path:
    return Path(sys.executable).with_name(name)


def build() -> Path:
    sh(
        tool("cmake"), "-S", ROOT, "-B", BUILD, "-G", "Ninja", "-DTORCH_PJRT_PROGRAM=ON",
        f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}", f"-DPython_EXECUTABLE={sys.executable}",
        f"-DTORCH_PJRT_ONEDNN={'ON' if HAS_ONEDNN else 'OFF'}", f"-DCMAKE_PREFIX_PATH={sys.prefix}",
    )  # fmt: skip
    own = ["torch_pjrt_onednn"] if HAS_ONEDNN else []
    sh(tool("cmake"), "--build", BUILD, "--target", "deploy_bench", "pjrt-run", *own)
    return BUILD / "deploy_bench"


class Timed:
    """A process that times calls on request."""

    def __init__(self, *command: str | Path) -> None:
        self.process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def __call__(self, calls: int) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{calls}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline()) * 1e-6

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def interleaved(name: str, ours: Timed, theirs: Timed, target: float, against: str) -> Result:
    calls = max(1, int(0.3 / ours(1)))

    def rested(timed: Timed) -> float:
        time.sleep(REST_S)
        return timed(calls)

    rounds = [(rested(ours), rested(theirs)) for _ in range(ROUNDS)]
    ours.end()
    theirs.end()
    ratio = statistics.median(a / b for a, b in rounds)
    best = min(a for a, _ in rounds) / min(b for _, b in rounds)
    ours_s, theirs_s = (statistics.median(times) for times in zip(*rounds, strict=True))
    return Result(name, ours_s, theirs_s, ratio, target, against=against, ratio_of_best=best)


def resnet18() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    made = case("resnet18", batch=1)
    return made.model.eval(), tuple(made.inputs)


def gpt2_decode() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Decodes one token after 40 others, with a static cache of 128, whose tensors are buffers."""
    from transformers import StaticCache

    class Decode(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = gpt2().eval()
            cache = StaticCache(config=self.model.config, max_cache_len=128)
            with torch.no_grad():
                self.model(torch.zeros(1, 40, dtype=torch.long), past_key_values=cache)
            self.cache = cache
            for i, layer in enumerate(cache.layers):
                self.register_buffer(f"keys{i}", layer.keys)
                self.register_buffer(f"values{i}", layer.values)

        def forward(self, token: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            for i, layer in enumerate(self.cache.layers):
                layer.keys, layer.values = getattr(self, f"keys{i}"), getattr(self, f"values{i}")
                if hasattr(layer, "cumulative_length"):  # the write position, equal in each call
                    layer.cumulative_length = at.reshape(layer.cumulative_length.shape).clone()
            mask = torch.where(torch.arange(128)[None, None, None] <= at, 0.0, -1e9)
            logits: torch.Tensor = self.model(
                token, past_key_values=self.cache, cache_position=at, position_ids=at[None], attention_mask=mask
            ).logits
            return logits[:, -1]

    return Decode().eval(), (torch.full((1, 1), 7), torch.tensor([40]))


MODELS = {"resnet18": (resnet18, 1.1), "gpt2": (gpt2_decode, 1.0)}
CONVOLUTIONS = ("resnet18",)


def beside_others(name: str, bench: Path, folder: Path, plugin: str) -> Iterator[Result]:
    make, target = MODELS[name]
    torch.manual_seed(0)
    model, inputs = make()
    torch_pjrt.export(model, inputs).save(folder / f"{name}.pjrt")
    ways = {"": f"{name}.pjrt"}
    if name in CONVOLUTIONS and HAS_ONEDNN:
        with onednn.register(BUILD / "libtorch_pjrt_onednn.so"):
            torch_pjrt.export(model, inputs, freeze=True).save(folder / f"{name}.frozen.pjrt")
        ways[", frozen, by oneDNN"] = f"{name}.frozen.pjrt"
    torch.save(inputs, folder / f"{name}.pt")
    with torch.no_grad():
        exported = torch.export.export(model, inputs)
        package = torch._inductor.aoti_compile_and_package(exported, package_path=str(folder / f"{name}.pt2"))
        others = [(AOTI, "aoti.py", str(package))]
        if importlib.util.find_spec("onnxruntime") and importlib.util.find_spec("onnxscript"):
            torch.onnx.export(exported, (), str(folder / f"{name}.onnx"), dynamo=True)
            others.append(("ONNX Runtime", "ort.py", str(folder / f"{name}.onnx")))
    for against, script, path in others:
        for way, file in ways.items():
            ours = Timed(bench, "time", folder / file, plugin)
            theirs = Timed(sys.executable, ROOT / "bench/deploy" / script, path, folder / f"{name}.pt")
            yield interleaved(f"{name}: a call from C++{way}", ours, theirs, target, against)


def call(bench: Path, folder: Path, plugin: str) -> Result:
    """Times a small program, whose calls are mostly overhead."""
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64)).eval()
    torch_pjrt.export(model, torch.ones(1, 64)).save(folder / "small.pjrt")
    rounds = [tuple(map(float, line.split())) for line in sh(bench, "call", folder / "small.pjrt", plugin).splitlines()]
    ratio = statistics.median(ours / bare for bare, ours in rounds)
    bare, ours = (statistics.median(times) * 1e-6 for times in zip(*rounds, strict=True))
    return Result("a call from C++", ours, bare, ratio, 1.05, against="PJRT's C API alone")


def large(bench: Path, folder: Path, plugin: str) -> list[Result]:
    """Times the start of a process with 1 GB of weights up to the end of its first call, with a warm cache; memory."""
    size = 16384
    path = folder / "large.pjrt"
    torch_pjrt.export(nn.Linear(size, size, bias=False), torch.ones(1, size)).save(path)
    command = [str(BUILD / "pjrt-run"), str(path), "--plugin", plugin]
    env = {**os.environ, "TORCH_PJRT_CACHE": "1", "TORCH_PJRT_CACHE_DIR": str(folder / "cache")}
    (folder / "cache").mkdir(mode=0o700)
    times = []
    for _ in range(4):
        start = time.perf_counter()
        subprocess.run(command, check=True, env=env, capture_output=True)
        times.append(time.perf_counter() - start)
    running = Timed(bench, "time", path, plugin)
    running(1)
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
    running.end()
    weights = 4 * size * size
    return [
        Result("1 GB: first call from a warm cache", min(times[1:]), 0.3, min(times[1:]) / 0.3, 1.0, against="0.3 s"),
        Result("1 GB: memory", peak, weights, peak / weights, 1.1, unit="B", against="the weights"),
    ]


def measure() -> list[Result]:
    from torch_pjrt import _C

    bench, plugin = build(), _C.plugin()[1]
    chosen = os.environ.get("TORCH_PJRT_BENCH_MODELS", ",".join(MODELS)).split(",")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        results = large(bench, folder, plugin)
        results.append(call(bench, folder, plugin))
        for name in chosen:
            results += beside_others(name, bench, folder, plugin) if name in MODELS else []
    return results
