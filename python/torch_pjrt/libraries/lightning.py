"""Lightning, as ``lightning`` and as ``pytorch_lightning``: ``Trainer`` and ``Fabric`` with an accelerator ``"pjrt"``,
which ``"auto"`` and ``"gpu"`` choose if there is no other."""

from __future__ import annotations

import functools
import os
import sys
from types import ModuleType
from typing import Any

import torch

from torch_pjrt.libraries.adaptation import Adaptation
from torch_pjrt.libraries.choice import is_available, tell
from torch_pjrt.libraries.words import or_out_of_memory


def _a_process_each() -> bool:
    """Whether each process has its own devices, as on a CPU, where a client makes as many as are asked for."""
    return bool(torch.pjrt.get_device_properties().is_host_memory)


def _accelerator(base: type, parse: Any) -> type:
    """Makes an accelerator class for the device, derived from Lightning's ``base``."""

    class PJRTAccelerator(base):
        """A device of an XLA plugin."""

        def setup_device(self, device: torch.device) -> None:
            if device.type != "pjrt":
                raise ValueError(f"Device should be pjrt, got {device} instead.")
            torch.pjrt.set_device(device)
            tell("lightning")

        def teardown(self) -> None:
            pass

        @staticmethod
        def parse_devices(devices: Any) -> list[int]:
            here = torch.pjrt.device_count()
            given = parse(devices)
            if isinstance(given, int) and given > here and _a_process_each():
                return [index % here for index in range(given)]
            indices = list(range(here if given == -1 else given)) if isinstance(given, int) else list(given)
            if not all(0 <= index < here for index in indices):
                raise ValueError(
                    f"devices={devices!r}: 'pjrt' has {here} device{'s' * (here > 1)} here, as "
                    "torch.pjrt.device_count() says. Pass no more, or the indices of some"
                )
            if len(indices) > 1 and not _a_process_each():
                raise ValueError(
                    f"devices={devices!r}: Lightning runs on one device of this plugin, as the processes that it "
                    "starts would each take all of them. Pass devices=1, or a list of one index"
                )
            return indices

        @staticmethod
        def get_parallel_devices(devices: list[int]) -> list[torch.device]:
            return [torch.device("pjrt", index) for index in devices]

        @staticmethod
        def auto_device_count() -> int:
            return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # the number of torchrun's processes

        @staticmethod
        def is_available() -> bool:
            return bool(torch.pjrt.is_available())

        @staticmethod
        def name() -> str:
            return "pjrt"

        def get_device_stats(self, device: Any) -> dict[str, Any]:
            return dict(torch.pjrt.memory_stats(device))

    return PJRTAccelerator


def _add(library: Adaptation, registry: Any, name: str, made: Any, **described: str) -> None:
    registry.register(name, made, **described)
    library.undo_by(lambda: registry.pop(name))


def _register(library: Adaptation, module: ModuleType, registry: str, fabric: str) -> None:
    parser = sys.modules[f"{fabric}.utilities.device_parser"]
    accelerator = _accelerator(module.Accelerator, parser._normalize_parse_gpu_string_input)
    library.put(module, "PJRTAccelerator", accelerator)
    _add(library, getattr(module, registry), "pjrt", accelerator, description="PJRTAccelerator")


def _strategies(library: Adaptation, module: ModuleType, registry: str, ddp: str) -> None:
    library.of_this_device(getattr(module.DDPStrategy, ddp))
    library.of_this_device(module.FSDPStrategy.setup_environment)
    strategies, one = getattr(module, registry), module.SingleDeviceStrategy
    _add(library, strategies, "single_pjrt", one, description="one device of 'pjrt'", device="pjrt:0")


def _device_parser(library: Adaptation, module: ModuleType) -> None:
    def else_ours(inner: Any) -> Any:
        def select() -> str:
            chosen: str = inner()
            return "pjrt" if chosen == "cpu" and is_available() else chosen

        return select

    library.around(module, "_select_auto_accelerator", else_ours)


def _connector(library: Adaptation, module: ModuleType, name: str, accelerators: str) -> None:
    ours = sys.modules[accelerators].PJRTAccelerator
    connector = getattr(module, name)
    for function in ("_choose_gpu_accelerator_backend", "_choose_strategy", "_check_and_init_precision"):
        library.of_this_device(getattr(connector, function), PJRTAccelerator=ours)
    if name == "_AcceleratorConnector":
        library.around(connector, "_check_strategy_and_fallback", _as_on_a_gpu)
    if "CUDAAccelerator" in connector._choose_auto_accelerator.__code__.co_names:
        library.of_this_device(connector._choose_auto_accelerator, PJRTAccelerator=ours)


def _as_on_a_gpu(inner: Any) -> Any:
    """Lets FSDPStrategy take the device, which its list of accelerators lacks."""

    def check(self: Any) -> None:
        flag = self._accelerator_flag
        is_ours = flag == "pjrt" or type(flag).__name__ == "PJRTAccelerator"
        self._accelerator_flag = "gpu" if is_ours else flag
        try:
            inner(self)
        finally:
            self._accelerator_flag = flag

    return check


def _setup(library: Adaptation, module: ModuleType, accelerators: str) -> None:
    library.of_this_device(module._log_device_info, PJRTAccelerator=sys.modules[accelerators].PJRTAccelerator)


def _seed(library: Adaptation, module: ModuleType) -> None:
    library.of_this_device(module._collect_rng_states)
    library.of_this_device(module._set_rng_states)


def _memory(library: Adaptation, module: ModuleType) -> None:
    library.around(module, "is_oom_error", or_out_of_memory)


def _install_fabric(library: Adaptation, fabric: str) -> None:
    then = functools.partial
    library.after_import(f"{fabric}.accelerators", then(_register, registry="ACCELERATOR_REGISTRY", fabric=fabric))
    library.after_import(f"{fabric}.strategies", then(_strategies, registry="STRATEGY_REGISTRY", ddp="setup_module"))
    library.after_import(f"{fabric}.utilities.device_parser", _device_parser)
    library.after_import(f"{fabric}.utilities.seed", _seed)
    library.after_import(
        f"{fabric}.connector", then(_connector, name="_Connector", accelerators=f"{fabric}.accelerators")
    )


def _install_pytorch(library: Adaptation, pytorch: str, fabric: str) -> None:
    then, accelerators = functools.partial, f"{pytorch}.accelerators"
    library.after_import(accelerators, then(_register, registry="AcceleratorRegistry", fabric=fabric))
    library.after_import(f"{pytorch}.strategies", then(_strategies, registry="StrategyRegistry", ddp="_setup_model"))
    library.after_import(f"{pytorch}.utilities.memory", _memory)
    library.after_import(f"{pytorch}.trainer.setup", then(_setup, accelerators=accelerators))
    library.after_import(
        f"{pytorch}.trainer.connectors.accelerator_connector",
        then(_connector, name="_AcceleratorConnector", accelerators=accelerators),
    )


def install(library: Adaptation, package: str) -> None:
    """Patches ``lightning``, which has both parts, or one part: ``pytorch_lightning``, ``lightning_fabric``."""
    if package == "lightning":
        _install_pytorch(library, "lightning.pytorch", "lightning.fabric")
        _install_fabric(library, "lightning.fabric")
    elif package == "pytorch_lightning":
        _install_pytorch(library, package, "lightning_fabric")
    else:
        _install_fabric(library, package)
