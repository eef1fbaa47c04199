"""Plugin discovery, over made-up installations: folders on sys.path with package metadata and small library files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.module_at import module_at

SOURCE = Path(__file__).parents[2] / "python/torch_pjrt/plugins.py"
PLUGIN = b"\x7fELF\0other\0GetPjrtApi\0"


def load() -> ModuleType:
    """Loads the module by itself, which ensures that it needs neither torch nor the rest of the package."""
    return module_at(SOURCE, "plugins_under_test")


plugins = load()


class Site:
    """A site-packages folder that is the only one on sys.path."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def package(self, module: str, libraries: dict[str, bytes]) -> Path:
        folder = self.root.joinpath(*module.split("."))
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("raise RuntimeError('a plugin package was imported')")
        for name, content in libraries.items():
            (folder / name).write_bytes(content)
        return folder

    def entry_point(self, group: str, name: str, value: str) -> None:
        info = self.root / f"{group}_{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {group}-{name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")

    def cpu(self) -> Path:
        self.entry_point("xla_plugins", "xla_cpu_pjrt", "xla_plugins.xla_cpu_pjrt")
        return self.package("xla_plugins.xla_cpu_pjrt", {"xla_cpu_pjrt.so": PLUGIN})

    def cuda(self) -> Path:
        self.entry_point("jax_plugins", "xla_cuda13", "jax_plugins.xla_cuda13")
        return self.package("jax_plugins.xla_cuda13", {"xla_cuda_plugin.so": PLUGIN})


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delenv("TORCH_PJRT_PLUGIN", raising=False)
    return Site(tmp_path)


def test_entry_points(site: Site) -> None:
    cpu, cuda = site.cpu(), site.cuda()
    assert plugins.find_plugins() == {
        "xla_cpu_pjrt": plugins.Plugin("xla_cpu_pjrt", str(cpu / "xla_cpu_pjrt.so"), "xla_plugins"),
        "xla_cuda13": plugins.Plugin("xla_cuda13", str(cuda / "xla_cuda_plugin.so"), "jax_plugins"),
    }


def test_namespace_packages_without_an_entry_point(site: Site) -> None:
    folder = site.package("jax_plugins.xla_thing", {"pjrt_c_api_thing.so": PLUGIN})
    site.package("jax_plugins.no_plugin", {})
    assert plugins.find_plugins() == {
        "xla_thing": plugins.Plugin("xla_thing", str(folder / "pjrt_c_api_thing.so"), "jax_plugins")
    }


def test_an_entry_point_may_name_a_function(site: Site) -> None:
    site.entry_point("jax_plugins", "npu", "vendor_npu.jax:initialize")
    folder = site.package("vendor_npu.jax", {"vendor.so": PLUGIN})
    assert plugins.resolve("npu").path == str(folder / "vendor.so")


def test_the_library_is_the_one_that_is_a_plugin(site: Site) -> None:
    site.entry_point("xla_plugins", "mixed", "mixed")
    folder = site.package(
        "mixed", {"a.so": b"nothing", "empty_plugin.so": b"", "pjrt_helper.so": b"no", "z.so": PLUGIN}
    )
    assert plugins.find_plugins()["mixed"].path == str(folder / "z.so")


def test_an_entry_point_without_a_library_is_left_out(site: Site) -> None:
    site.entry_point("xla_plugins", "gone", "not_installed.at_all")
    site.entry_point("xla_plugins", "empty", "empty")
    site.package("empty", {})
    assert plugins.find_plugins() == {}


def test_order_of_preference(site: Site) -> None:
    site.cpu()
    site.entry_point("xla_plugins", "a_simulator", "a_simulator")
    site.package("a_simulator", {"a_simulator.so": PLUGIN})
    site.cuda()
    assert [plugin.name for plugin in plugins.default()] == ["xla_cuda13", "xla_cpu_pjrt", "a_simulator"]


def pci_device(root: Path, name: str, vendor: str, kind: str) -> None:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text(f"{kind}\n")


def test_libtpu(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pci = tmp_path / "pci"
    monkeypatch.setattr(plugins, "PCI_DEVICES", pci)
    site.cpu()
    folder = site.package("libtpu", {"libtpu.so": PLUGIN, "sdk.so": b"no"})
    assert plugins.resolve("tpu") == plugins.Plugin("libtpu", str(folder / "libtpu.so"), "libtpu")
    assert [plugin.name for plugin in plugins.default()] == ["xla_cpu_pjrt", "libtpu"]
    pci_device(pci, "0000:00:04.0", "0x1ae0", "0x020000")  # Google's network card
    pci_device(pci, "0000:00:05.0", "0x8086", "0x060000")
    (pci / "0000:00:06.0").mkdir()
    assert [plugin.name for plugin in plugins.default()] == ["xla_cpu_pjrt", "libtpu"]
    pci_device(pci, "0000:00:07.0", "0x1ae0", "0xff0000")
    assert [plugin.name for plugin in plugins.default()] == ["libtpu", "xla_cpu_pjrt"]


def test_resolve_by_name_and_by_part_of_it(site: Site) -> None:
    site.cpu()
    site.cuda()
    assert plugins.resolve("xla_cuda13").name == "xla_cuda13"
    assert plugins.resolve("cuda").name == "xla_cuda13"
    with pytest.raises(plugins.PluginNotFoundError) as caught:
        plugins.resolve("xla")
    assert str(caught.value).startswith(
        "'xla' could be any of 'xla_cpu_pjrt', 'xla_cuda13'; installed: 'xla_cpu_pjrt', 'xla_cuda13'. "
    )


def test_resolve_by_path(site: Site) -> None:
    library = site.root / "libpjrt.so"
    library.write_bytes(PLUGIN)
    assert plugins.resolve(str(library)) == plugins.Plugin("libpjrt", str(library), "path")
    with pytest.raises(plugins.PluginNotFoundError) as caught:
        plugins.resolve("/nowhere/plugin.so")
    assert str(caught.value) == (
        "there is no PJRT plugin at '/nowhere/plugin.so': no such file. Install one (`pip install xla-cpu-pjrt`), "
        "or set TORCH_PJRT_PLUGIN to the name or the path of one."
    )


def test_unknown_names(site: Site) -> None:
    with pytest.raises(plugins.PluginNotFoundError, match="no PJRT plugin is named 'tpu'; none is installed"):
        plugins.resolve("tpu")
    site.cpu()
    with pytest.raises(plugins.PluginNotFoundError, match="no PJRT plugin is named 'tpu'; installed: 'xla_cpu_pjrt'"):
        plugins.resolve("tpu")


def test_the_environment_variable_leaves_no_choice(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.cpu()
    site.cuda()
    monkeypatch.setenv("TORCH_PJRT_PLUGIN", "xla_cpu_pjrt")
    assert [plugin.name for plugin in plugins.default()] == ["xla_cpu_pjrt"]
    library = site.root / "mine.so"
    library.write_bytes(PLUGIN)
    monkeypatch.setenv("TORCH_PJRT_PLUGIN", str(library))
    assert [plugin.path for plugin in plugins.default()] == [str(library)]
    monkeypatch.setenv("TORCH_PJRT_PLUGIN", "nonsense")
    with pytest.raises(
        plugins.PluginNotFoundError, match=re.escape("TORCH_PJRT_PLUGIN=nonsense: no PJRT plugin is named")
    ):
        plugins.default()


@pytest.mark.usefixtures("site")
def test_nothing_installed() -> None:
    assert plugins.find_plugins() == {}
    with pytest.raises(
        plugins.PluginNotFoundError, match=r"no PJRT plugin was found\. Install one \(`pip install xla-cpu-pjrt`"
    ):
        plugins.default()


def test_importing_the_module_is_cheap() -> None:
    code = (
        "import sys, runpy; sys.modules.pop('importlib.metadata', None); before = set(sys.modules);"
        f"runpy.run_path({str(SOURCE)!r}); new = set(sys.modules) - before;"
        "assert not new & {'torch', 'numpy', 'jax', 'importlib.metadata', 'email'}, new"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_plugin_of_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_PJRT_PLUGIN", raising=False)
    pytest.importorskip("xla_plugins.xla_cpu_pjrt")
    plugin = plugins.find_plugins()["xla_cpu_pjrt"]
    assert Path(plugin.path).name == "xla_cpu_pjrt.so"
    assert plugin in plugins.default()
