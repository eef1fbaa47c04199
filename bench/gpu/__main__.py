"""./dev gpu: tests the project on a GPU in minutes: values of small programs, figures beside other compilers, tests.

  ./dev gpu [--wheel FILE] [--minutes 8]     on a machine with a driver, torch for CUDA and a plugin for CUDA
  ./dev gpu --rehearse                       the same on the CPU, at tiny sizes, from this checkout's build
  ./dev gpu --only WORD --only WORD          items or parts whose name has one of the words
  ./dev gpu --after FILE                     leaves out what an earlier gpu.json has, and joins them
  ./dev gpu --alone                          compiles one figure at a time: autotuning meets a quiet card
  ./dev gpu --limit figures=200              seconds of a part: smoke, figures, tests
  ./dev gpu --docs FILE...                   keeps results as docs/gpu.json, writes the section of docs/plugins.md

Results are in $OUT or, where it isn't set, in build/gpu: a file for each part, valid at any time; gpu.json, which has
everything; gpu.png; log.txt with the output. Items that were not reached are listed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import needs  # noqa: E402
import report  # noqa: E402
from conduct import Conductor, Outcome, Part  # noqa: E402

# The share of the remaining time that a part may take.
PARTS = (Part("smoke", str(HERE / "smoke.py"), 0.3), Part("figures", str(HERE / "figures.py"), 0.75),
         Part("tests", str(HERE / "suites.py"), 1.0))  # fmt: skip
REPORT = 10.0  # seconds for the table and the plot


def say(message: str) -> None:
    print(f"==> {message}", flush=True)


def fail(message: str) -> NoReturn:
    sys.exit(f"\n./dev gpu: {message}")


def options_of(arguments: Sequence[str], parts: Sequence[Part]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("./dev gpu", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--after", type=Path)
    parser.add_argument("--limit", action="append", default=[], type=lambda text: text.split("="))
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or ROOT / "build/gpu"))
    parser.add_argument("--docs", nargs="+", type=Path)
    options = parser.parse_args(arguments)
    names = [part.name for part in parts]
    if wrong := [part for part, *_ in options.limit if part not in names]:
        parser.error(f"no part is named {', '.join(wrong)}; there are {', '.join(names)}")
    options.limit = {part: float(seconds) for part, seconds in options.limit}
    return options


def environment_of(options: argparse.Namespace, scratch: Path) -> dict[str, str]:
    """Returns the environment of every process of the run."""
    places = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    variables = {
        "TORCH_PJRT_COMPILE": "first",
        "TORCH_PJRT_CACHE_DIR": str(scratch / "cache/pjrt"),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "cache/inductor"),
        "TRITON_CACHE_DIR": str(scratch / "cache/triton"),
        "TORCHINDUCTOR_COMPILE_THREADS": "4",  # for each of several processes
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if not options.rehearse:
        variables["TORCH_PJRT_PLUGIN"] = os.environ.get("TORCH_PJRT_PLUGIN", "cuda")
        places.insert(0, str(scratch / "site"))
    return {**variables, "PYTHONPATH": os.pathsep.join(filter(None, places))}


def prepare(options: argparse.Namespace, scratch: Path) -> None:
    """Prepares the package for this torch, or ends the run with a list of everything that is missing."""
    if missing := needs.lacks(options.wheel):
        fail("this machine lacks\n" + "".join(f"  - {what}\n" for what in missing) + "Nothing is downloaded here.")
    for what in needs.lesser():
        say(what)
    if options.wheel:
        needs.unpack(options.wheel, scratch / "site")
    else:
        needs.build(scratch / "site", say)


def is_wanted(words: Sequence[str], part: str, done: set[str], name: str) -> bool:
    return name not in done and (not words or any(word in name or word == part for word in words))


def reported(part: str, outcome: Outcome) -> None:
    words = "" if outcome.status == "passed" else f": {outcome.status}, {outcome.error[:150]}"
    print(f"    {part}: {outcome.name}, {outcome.seconds:.1f} s{words}", flush=True)


def main(arguments: Sequence[str], parts: Sequence[Part] = PARTS) -> int:
    started = time.monotonic()
    options = options_of(arguments, parts)
    if options.docs:
        report.write_docs(report.joined([json.loads(path.read_text()) for path in options.docs]))
        return 0
    scratch = ROOT / "build/gpu"
    for folder in (scratch, options.out):
        folder.mkdir(parents=True, exist_ok=True)
    earlier: dict[str, Any] = json.loads(options.after.read_text()) if options.after else {}
    if not options.rehearse:
        prepare(options, scratch)
    os.environ.update(environment_of(options, scratch))
    end = started + options.minutes * 60 - REPORT
    run: dict[str, Any] = {"rehearsal": options.rehearse, "parts": {}}
    running: list[Conductor] = []
    stopped: list[int] = []

    def stop(number: int, _: object) -> None:
        stopped.append(number)
        for conductor in running:
            conductor.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    names = {part.name for part in parts}
    for part in parts:
        if options.only and part.name not in options.only and names.issuperset(options.only):
            continue
        left = end - time.monotonic()
        if stopped or left < 1:
            run["parts"][part.name] = {"part": part.name, "outcomes": [], "not_reached": ["all of it"]}
            continue
        limit = min(left, options.limit.get(part.name, left * part.share))
        say(f"{part.name}, at most {limit:.0f} s")
        conductor = Conductor(
            part,
            ["--device", "cpu", "--tiny"] if options.rehearse else ["--device", "cuda"],
            deadline=time.monotonic() + limit,
            folder=options.out,
            wanted=partial(is_wanted, options.only, part.name, report.done_in(earlier, part.name)),
            cores=1 if options.alone else os.cpu_count() or 1,
            one_process=options.rehearse,  # a rehearsal measures nothing
        )
        conductor.say = partial(reported, part.name)
        running.append(conductor)
        conductor.run()
        running.clear()
        run["parts"][part.name] = conductor.result()
        report.keep(report.joined([earlier, run]), options.out)
    run["seconds"] = round(time.monotonic() - started, 1)
    whole = report.joined([earlier, run])
    report.keep(whole, options.out)
    report.show(whole, options.out)
    return 0 if report.is_well(whole) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
