"""Finds the PJRT plugins on this machine, and chooses among them.

A plugin is a shared library that exports GetPjrtApi. Wheels announce theirs by an entry point in the group
`xla_plugins` or `jax_plugins`, whose value is a package with the library beside its `__init__.py`; JAX also takes any
package within the namespace package `jax_plugins`, so we do too. The wheel `libtpu` announces nothing and is
known by its name. No plugin package is imported: their code may want jax, or act at import.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

GROUPS = ("xla_plugins", "jax_plugins")
VARIABLE = "TORCH_PJRT_PLUGIN"
CURE = f"Install one (`pip install xla-cpu-pjrt`), or set {VARIABLE} to the name or the path of one."
ACCELERATORS = ("cuda", "rocm", "gpu", "tpu")
LIBTPU = "libtpu"
PCI_DEVICES = Path("/sys/bus/pci/devices")


class PluginNotFoundError(RuntimeError):
    """Raised if there is no such plugin, or none at all. The message lists the installed plugins, and the cure."""


@dataclass(frozen=True)
class Plugin:
    name: str  # the entry point's, such as "xla_cpu_pjrt" and "xla_cuda13"
    path: str  # the shared library
    source: str  # how it was found: "xla_plugins", "jax_plugins", "libtpu" or "path"


def find_plugins() -> dict[str, Plugin]:
    """Returns every installed plugin, by name. The first of several plugins with one name is used."""
    found: dict[str, Plugin] = {}
    for name, directory, source in _announced():
        library = None if name in found else _library(directory, name)
        if library is not None:
            found[name] = Plugin(name, str(library), source)
    return found


def resolve(name_or_path: str) -> Plugin:
    """Returns the plugin with this name, the only one whose name contains it ("cuda"), or the library at this path.

    Raises:
        PluginNotFoundError: there is no such plugin.
    """
    if os.sep in name_or_path or name_or_path.endswith(".so"):
        path = Path(name_or_path).expanduser()
        if not path.is_file():
            raise PluginNotFoundError(f"there is no PJRT plugin at '{name_or_path}': no such file. {CURE}")
        return Plugin(path.stem, str(path.absolute()), "path")
    found = find_plugins()
    if name_or_path in found:
        return found[name_or_path]
    close = [plugin for name, plugin in found.items() if name_or_path and name_or_path in name]
    if len(close) == 1:
        return close[0]
    what = f"'{name_or_path}' could be any of {_names(close)}" if close else f"no PJRT plugin is named '{name_or_path}'"
    raise PluginNotFoundError(f"{what}; {_installed(found)}. {CURE}")


def default() -> list[Plugin]:
    """Returns the plugins to try, the best first: those for accelerators, then xla_cpu_pjrt, then the rest.

    An accelerator's plugin may be installed on a machine without such a device. Its client then fails to start, and the
    next plugin is tried. Without a TPU, libtpu searches the network for minutes, so it comes last. TORCH_PJRT_PLUGIN
    leaves only its plugin.
    """
    if chosen := os.environ.get(VARIABLE):
        try:
            return [resolve(chosen)]
        except PluginNotFoundError as error:
            raise PluginNotFoundError(f"{VARIABLE}={chosen}: {error}") from None
    plugins = sorted(find_plugins().values(), key=_preference)
    if not plugins:
        raise PluginNotFoundError(f"no PJRT plugin was found. {CURE}")
    return plugins


def _preference(plugin: Plugin) -> tuple[int, str]:
    if plugin.name == LIBTPU and not _has_tpu():
        return 3, plugin.name
    if any(word in plugin.name.lower() for word in ACCELERATORS):
        return 0, plugin.name
    return (1 if plugin.name == "xla_cpu_pjrt" else 2), plugin.name


def _has_tpu() -> bool:
    """Whether there is a PCI device of Google's that is neither storage (class 0x01…) nor network (0x02…)."""
    for device in PCI_DEVICES.glob("*"):
        try:
            vendor, kind = ((device / name).read_text().strip() for name in ("vendor", "class"))
        except OSError:  # the device was removed, or can't be read
            continue
        if vendor == "0x1ae0" and not kind.startswith(("0x01", "0x02")):
            return True
    return False


def _announced() -> Iterator[tuple[str, Path, str]]:
    """Yields (name, folder of its package, how it was found) for every package that may be a plugin."""
    import importlib.metadata  # costs more than the rest of this module together

    for group in GROUPS:
        for entry_point in importlib.metadata.entry_points(group=group):
            for directory in _package_directories(entry_point.module):
                yield entry_point.name, directory, group
    for parent in _package_directories("jax_plugins"):
        for directory in sorted(parent.iterdir()) if parent.is_dir() else []:
            if directory.is_dir() and directory.name.isidentifier():
                yield directory.name, directory, "jax_plugins"
    for directory in _package_directories(LIBTPU):
        yield LIBTPU, directory, LIBTPU


def _package_directories(module: str) -> list[Path]:
    """Returns the folders of a package; a namespace package has several. Imports nothing, not even its parents."""
    import importlib.machinery

    top, *inner = module.split(".")
    spec = importlib.machinery.PathFinder.find_spec(top)
    locations = [Path(location) for location in spec.submodule_search_locations or []] if spec else []
    return [directory for location in locations if (directory := location.joinpath(*inner)).is_dir()]


def _library(directory: Path, name: str) -> Path | None:
    """Returns the shared library in the folder that is a plugin; likely names are checked first."""

    def unlikely(library: Path) -> tuple[bool, bool, str]:
        stem = library.stem.lower()
        return stem != name, not ("pjrt" in stem or "plugin" in stem), stem

    return next((library for library in sorted(directory.glob("*.so"), key=unlikely) if _is_plugin(library)), None)


def _is_plugin(library: Path) -> bool:
    """Whether the library exports GetPjrtApi, by the bytes of the name: loading the library would start it."""
    try:
        with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(b"\0GetPjrtApi\0") >= 0
    except (OSError, ValueError):  # unreadable, or empty
        return False


def _names(plugins: list[Plugin]) -> str:
    return ", ".join(f"'{plugin.name}'" for plugin in plugins)


def _installed(found: dict[str, Plugin]) -> str:
    return f"installed: {_names(list(found.values()))}" if found else "none is installed"
