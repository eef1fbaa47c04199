"""Lightning, as ``lightning`` and as ``pytorch_lightning``: ``Trainer`` and ``Fabric`` with an accelerator ``"pjrt"``,
which ``"auto"`` and ``"gpu"`` choose if there is no other."""

from __future__ import annotations

import functools
import os
import sys
from types import ModuleType
from typing import Any

import torch

from torch_pjrt.libraries.adaptation import Adaptation, or_out_of_memory
from torch_pjrt.libraries.choice import announce, is_available


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
            announce("lightning")

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


def _strategies(library: Adaptation, module: ModuleType, registry: str, ids: str, options: str) -> None:
    def else_none(inner: Any) -> Any:
        """Keeps DDP from streams of CUDA; inputs are on the device already."""

        def device_ids(self: Any) -> list[int] | None:
            return None if self.root_device.type == "pjrt" else inner(self)

        return device_ids

    def with_our_mesh(inner: Any) -> Any:
        def setup_environment(self: Any) -> None:
            given = getattr(self, options)
            sizes = given.get("device_mesh")
            if self.root_device.type != "pjrt" or not isinstance(sizes, tuple):
                return inner(self)
            del given["device_mesh"]
            inner(self)
            given["device_mesh"] = torch.distributed.device_mesh.init_device_mesh("pjrt", sizes)

        return setup_environment

    library.around(module.DDPStrategy, ids, else_none)
    library.around(module.FSDPStrategy, "setup_environment", with_our_mesh)
    strategies, one = getattr(module, registry), module.SingleDeviceStrategy
    _add(library, strategies, "single_pjrt", one, description="one device of 'pjrt'", device="pjrt:0")


def _else_ours(inner: Any) -> Any:
    def select() -> str:
        chosen: str = inner()
        return "pjrt" if chosen == "cpu" and is_available() else chosen

    return select


def _device_parser(library: Adaptation, module: ModuleType) -> None:
    library.around(module, "_select_auto_accelerator", _else_ours)


def _connector(library: Adaptation, module: ModuleType, name: str) -> None:
    def ours_first(inner: Any) -> Any:
        return lambda: "pjrt" if is_available() else inner()

    def on_its_device(inner: Any) -> Any:
        def choose(self: Any) -> Any:
            chosen, devices = inner(self), self._parallel_devices
            ours = len(devices) == 1 and devices[0].type == "pjrt" and isinstance(chosen, module.SingleDeviceStrategy)
            return type(chosen)(device=devices[0]) if ours else chosen

        return choose

    def of_this_device(inner: Any) -> Any:
        def init(self: Any, precision: Any, device: str, *scaler: Any, **options: Any) -> None:
            inner(self, precision, "pjrt" if device == "cuda" and is_available() else device, *scaler, **options)

        return init

    connector = getattr(module, name)
    library.around(connector, "_choose_auto_accelerator", _else_ours)
    library.around(connector, "_choose_gpu_accelerator_backend", ours_first)
    library.around(connector, "_choose_strategy", on_its_device)
    library.around(module.MixedPrecision, "__init__", of_this_device)
    library.around(connector, "_check_strategy_and_fallback", _as_on_a_gpu)


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


def _setup(library: Adaptation, module: ModuleType) -> None:
    def if_not_ours(inner: Any) -> Any:
        def log(trainer: Any) -> None:
            if trainer.strategy.root_device.type == "pjrt":
                module.rank_zero_info("GPU available: True (pjrt), used: True")
            else:
                inner(trainer)

        return log

    library.around(module, "_log_device_info", if_not_ours)


def _seed(library: Adaptation, module: ModuleType) -> None:
    def with_ours(inner: Any) -> Any:
        def collect(include_cuda: bool = True) -> dict[str, Any]:
            ours = {"torch.pjrt": torch.pjrt.get_rng_state_all()} if include_cuda and is_available() else {}
            return inner(include_cuda) | ours

        return collect

    def and_ours(inner: Any) -> Any:
        def put_back(rng_state_dict: dict[str, Any]) -> None:
            inner(rng_state_dict)
            if "torch.pjrt" in rng_state_dict:
                torch.pjrt.set_rng_state_all(rng_state_dict["torch.pjrt"])

        return put_back

    library.around(module, "_collect_rng_states", with_ours)
    library.around(module, "_set_rng_states", and_ours)


def _memory(library: Adaptation, module: ModuleType) -> None:
    library.around(module, "is_oom_error", or_out_of_memory)


def _install_fabric(library: Adaptation, fabric: str) -> None:
    then = functools.partial
    library.after_import(f"{fabric}.accelerators", then(_register, registry="ACCELERATOR_REGISTRY", fabric=fabric))
    library.after_import(
        f"{fabric}.strategies",
        then(_strategies, registry="STRATEGY_REGISTRY", ids="_determine_ddp_device_ids", options="_fsdp_kwargs"),
    )
    library.after_import(f"{fabric}.utilities.device_parser", _device_parser)
    library.after_import(f"{fabric}.utilities.seed", _seed)
    library.after_import(f"{fabric}.connector", then(_connector, name="_Connector"))


def _install_pytorch(library: Adaptation, pytorch: str, fabric: str) -> None:
    then = functools.partial
    library.after_import(f"{pytorch}.accelerators", then(_register, registry="AcceleratorRegistry", fabric=fabric))
    library.after_import(
        f"{pytorch}.strategies",
        then(_strategies, registry="StrategyRegistry", ids="determine_ddp_device_ids", options="kwargs"),
    )
    library.after_import(f"{pytorch}.utilities.memory", _memory)
    library.after_import(f"{pytorch}.trainer.setup", _setup)
    library.after_import(
        f"{pytorch}.trainer.connectors.accelerator_connector", then(_connector, name="_AcceleratorConnector")
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
