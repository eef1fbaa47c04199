"""Writes a run's results as one file, as tables on the terminal, as a plot, and as a section of docs/plugins.md."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Run = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
KEPT, PAGE = ROOT / "docs/gpu.json", ROOT / "docs/plugins.md"
BEGIN, END = "<!-- written by ./dev gpu --docs: change bench/gpu/report.py, not this -->", "<!-- until here -->"

# From a part of a figure's name to the wanted ratios to the reference, of the figure and of the geometric mean.
TARGETS: list[tuple[str, float, float | None]] = [
    ("x + 1", 1.0, None),
    ("three linear", 0.5, None),
    ("attention", 1.1, None),
    ("first minute", 1.5, None),
    ("decoding", 0.9, None),
    ("prefill", 1.0, None),
    ("Llama 1B, a step", 1.0, None),
    ("GPT-2, a step", 1.0, None),
    ("inference, TF32", 1.0, 0.8),
    ("inference, bf16", 1.0, 0.8),
    ("a step, TF32", 1.1, 0.9),
    ("a step, bf16", 1.1, 0.9),
    ("inference", 1.0, None),
]
PEAKS = {"attention": 1.1, "a step": 1.05}  # ratios of memory
COMPILERS = {"inductor": "Inductor", "max-autotune": "Inductor, max-autotune"}
SHOWN = 30  # failed tests shown per folder; the file has all
SUFFIX = ", max-autotune"  # of items in figures.py that time it against ours


# --- runs -------------------------------------------------------------------------------------------------------------


def outcomes(run: Run, part: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run.get("parts", {}).get(part, {}).get("outcomes", [])
    return found


def done_in(run: Run, part: str) -> set[str]:
    """Returns the items that need not run again: those that passed, failed or were skipped, not those cut short."""
    return {o["name"] for o in outcomes(run, part) if o["status"] in ("passed", "failed", "skipped")} - {"machine"}


def machine(run: Run) -> dict[str, Any]:
    for outcome in outcomes(run, "smoke"):
        if outcome["name"] == "machine" and outcome["values"]:
            return dict(outcome["values"])
    for outcome in outcomes(run, "figures"):
        if "machine" in outcome["values"]:
            return dict(outcome["values"]["machine"])
    return dict(run.get("machine", {}))


def joined(runs: Sequence[Run]) -> Run:
    """Joins runs: the last outcome of an item counts, and it is reached if any run has reached it."""
    whole: Run = {"machine": {}, "parts": {}}
    for run in runs:
        whole = {**whole, **{k: v for k, v in run.items() if k != "parts"}, "parts": whole["parts"]}
        whole["machine"] = machine(run) or whole["machine"]
        for name, part in run.get("parts", {}).items():
            before = whole["parts"].get(name, {})
            by_name = {o["name"]: o for o in (*before.get("outcomes", []), *part["outcomes"])}
            missing = dict.fromkeys((*before.get("not_reached", []), *part["not_reached"]))
            whole["parts"][name] = {**part, "outcomes": list(by_name.values()),
                                    "not_reached": [name for name in missing if name not in by_name]}  # fmt: skip
    return whole


def keep(run: Run, folder: Path) -> None:
    (folder / "gpu.json").write_text(json.dumps(run, indent=1))


def is_well(run: Run) -> bool:
    return all(o["status"] in ("passed", "skipped") for part in run["parts"] for o in outcomes(run, part))


# --- figures ----------------------------------------------------------------------------------------------------------


class Figure:
    """Our time against the faster of Inductor and Inductor with max-autotune, or against eager if neither was timed."""

    def __init__(self, name: str, values: dict[str, Any]) -> None:
        self.name, self.memory, self.first, self.broke = name, values["memory"], values["first"], values["broke"]
        self.seconds: dict[str, float] = values["median"]

    def join(self, other: Figure) -> None:
        """Adds max-autotune's time, scaled by the ratio of our times in both figures."""
        if "pjrt" in self.seconds and "pjrt" in other.seconds and "max-autotune" in other.seconds:
            scale = self.seconds["pjrt"] / other.seconds["pjrt"]
            self.seconds = {**self.seconds, "max-autotune": other.seconds["max-autotune"] * scale}

    @property
    def ours(self) -> tuple[str, float]:
        ways = {way: s for way, s in self.seconds.items() if way.startswith("pjrt")}
        way = "pjrt" if "pjrt" in ways else min(ways, key=ways.__getitem__)
        return way, ways[way]

    @property
    def reference(self) -> tuple[str, float]:
        others = {way: s for way, s in self.seconds.items() if way in COMPILERS} or {"eager": self.seconds["eager"]}
        way = min(others, key=others.__getitem__)
        return COMPILERS.get(way, way), others[way]

    @property
    def peaks(self) -> tuple[float, float] | None:
        """Returns MiB of ours and of the reference, if both were measured; ours includes the plugin's since the start
        of the process."""
        way = {words: way for way, words in COMPILERS.items()}.get(self.reference[0], "eager")
        ours, other = self.memory.get(self.ours[0]), self.memory.get(way)
        if not ours or not other or not other["torch"]:
            return None
        return (ours["torch"] + ours.get("plugin.peak_bytes_in_use", 0)) / 2**20, other["torch"] / 2**20

    @property
    def memory_words(self) -> str:
        return f"{self.peaks[0] / self.peaks[1]:.2f}" if self.peaks else ""

    @property
    def is_whole(self) -> bool:
        return any(way.startswith("pjrt") for way in self.seconds) and len(self.seconds) > 1

    @property
    def ratio(self) -> float:
        return self.ours[1] / self.reference[1]

    @property
    def target(self) -> tuple[float | None, float | None]:
        return next(((one, all_) for words, one, all_ in TARGETS if words in self.name), (None, None))


def figures(run: Run) -> list[Figure]:
    found: dict[str, Figure] = {}
    for outcome in outcomes(run, "figures"):
        if not outcome["values"].get("median"):
            continue
        name = outcome["name"].removesuffix(SUFFIX)
        figure = Figure(name, outcome["values"])
        if outcome["name"] != name and name in found:
            found[name].join(figure)
        else:
            found[name] = figure
    return [figure for figure in found.values() if figure.is_whole]


def means(found: Sequence[Figure]) -> Iterator[tuple[str, float, int, float]]:
    """Yields (what, geometric mean of the ratios, their number, target) of figures with a common target."""
    for words, _, target in TARGETS:
        ratios = [figure.ratio for figure in found if target and words in figure.name]
        if target and ratios:
            yield (
                f"models, {words}: geometric mean of {len(ratios)}",
                statistics.geometric_mean(ratios),
                len(ratios),
                target,
            )


def as_results(run: Run) -> list[Any]:
    from measure import Result

    found = figures(run)
    if run.get("rehearsal"):  # it has no targets, and the reference is not Inductor
        return [Result(f.name, f.ours[1], f.reference[1], f.ratio, None, against="a stand-in") for f in found]
    results = [Result(f.name, f.ours[1], f.reference[1], f.ratio, f.target[0], against=f.reference[0]) for f in found]
    for f in found:
        if f.peaks and (wanted := next((most for words, most in PEAKS.items() if words in f.name), None)):
            ours, other = f.peaks
            results.append(
                Result(f"{f.name}: peak memory", round(ours), round(other), ours / other, wanted, "MiB", f.reference[0])
            )
    return results + [
        Result(what, mean, 1.0, mean, target, unit="×", against="the same") for what, mean, _, target in means(found)
    ]


# --- shown ------------------------------------------------------------------------------------------------------------


def show(run: Run, folder: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.width = max(console.width, 110)
    facts = {**dict.fromkeys(("cpu", "cores", "torch", "plugin", "commit"), "unknown"), **machine(run)}
    facts["cpu"] = facts.get("gpu", facts["cpu"])
    for name in run["parts"]:
        if name == "figures":
            continue
        shown = Table(title=name)
        for column in ("", "", "seconds", ""):
            shown.add_column(column)
        for o in outcomes(run, name):
            colour = {"passed": "green", "skipped": "dim"}.get(o["status"], "red")
            words = o["error"].split("\n")[0][:90] or in_short(o["values"])
            shown.add_row(o["name"], f"[{colour}]{o['status']}", f"{o['seconds']:.1f}", words)
        console.print(shown, markup=True)
    found = as_results(run)
    if found:
        try:
            from show import picture, table
        except ImportError as error:
            console.print(f"no picture: {error}")
        else:
            console.print(table(found, facts))
            picture(found, facts, folder / "gpu.png")
    for o in outcomes(run, "figures"):
        broke = o["values"].get("broke", {})
        if o["status"] != "passed" or broke:
            words = [f"{way}: {why}" for way, why in broke.items()] or [o["error"]]
            console.print(f"{o['name']}: {o['status']}. {'; '.join(words)[:300]}", markup=False)
    for o in outcomes(run, "tests"):
        for test, words in list(o["values"].get("failed", {}).items())[:SHOWN]:
            console.print(f"failed: {test}: {words[:150]}", markup=False)
    for name, part in run["parts"].items():
        if part["not_reached"]:
            console.print(f"not reached, {name}: {'; '.join(part['not_reached'])}", markup=False)
    console.print(f"wrote {folder}/gpu.json")


def in_short(values: dict[str, Any]) -> str:
    if "passed" in values:
        return f"{values['passed']} passed, {len(values['failed'])} failed, {values['skipped']} skipped"
    if "plugin" in values:
        return str(values.get("gpu", values["plugin"]))
    numbers = [v for v in values.values() if isinstance(v, float)]
    return f"differs by at most {max(numbers):.1e}" if numbers else ""


# --- the section ------------------------------------------------------------------------------------------------------


def milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3g}"


def section(run: Run | None) -> str:
    """Returns the section in Markdown, from docs/gpu.json."""
    if run is None:
        return "`./dev gpu` has not run on a card since it was written: the numbers below are older, and taken by hand."
    facts = machine(run)
    card = f"{facts.get('gpu', facts.get('cpu', 'an unknown machine'))}, driver {facts.get('driver', 'unknown')}"
    lines = [
        f"By `./dev gpu` on {facts.get('time', '')[:10]}: {card}, torch {facts.get('torch')}, {facts.get('plugin')}.",
        "Interleaved medians; ratios are to the faster of Inductor and Inductor with max-autotune, or to eager,",
        "also those of memory, at its peak in a call.",
        "",
        "| milliseconds | eager | Inductor | max-autotune | pjrt | ratio | wanted | memory |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    found = figures(run)
    for f in found:
        s = [milliseconds(f.seconds.get(way)) for way in ("eager", "inductor", "max-autotune")]
        cells = [f.name, *s, milliseconds(f.ours[1]), f"{f.ratio:.2f}", str(f.target[0] or ""), f.memory_words]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [f"| {what} | | | | | {mean:.2f} | {target} | |" for what, mean, _, target in means(found)]
    lines += ["", "What was seen besides:", ""]
    for name, part in run["parts"].items():
        bad = [o for o in part["outcomes"] if o["status"] not in ("passed", "skipped")]
        lines.append(
            f"- {name}: {len(part['outcomes']) - len(bad)} of {len(part['outcomes'])} as they should be"
            + ("" if not bad else ":")
        )
        for o in bad:
            words = in_short(o["values"]) if "passed" in o["values"] else o["error"].split("\n")[0][:150]
            lines.append(f"  - {o['name']}: {o['status']}. {words}".rstrip(" ."))
        if part["not_reached"]:
            lines.append(f"  - not reached: {', '.join(part['not_reached'])}")
    return "\n".join(lines)


def kept() -> Run | None:
    return json.loads(KEPT.read_text()) if KEPT.exists() else None


def page(text: str, run: Run | None) -> str:
    """Returns the page with a new section."""
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n\n{section(run)}\n\n{END}{rest.split(END, 1)[1]}"


def write_docs(run: Run) -> None:
    if run.get("rehearsal"):
        raise SystemExit("./dev gpu: a rehearsal's numbers are nobody's")
    KEPT.write_text(json.dumps(run, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text(), run))
    print(f"wrote {KEPT.relative_to(ROOT)} and the section of {PAGE.relative_to(ROOT)}")
