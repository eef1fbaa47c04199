"""Registers the device with ``torch.distributed``.

For ranks that are processes, ``"pjrt"`` is gloo through the host's memory
(``src/device/process_group/host_backend.h``) if the plugin is for CPUs, which has no collectives between processes. A
plugin for GPUs has them (``src/device/process_group/backend.h``); its client is made together with the first group,
because all processes have to start theirs together. A group of ``"pjrt"``, or of no named backend, also takes tensors
on the CPU, and a group of ``"gloo"`` or ``"fake"`` also takes the device's."""

from __future__ import annotations

import functools
import inspect
import os
import socket
import warnings
from typing import Any

import torch

from torch_pjrt import _C
from torch_pjrt.adapt import rendezvous
from torch_pjrt.adapt.after_import import after_import


def _place_on_host(hosts: dict[int, str], rank: int, size: int) -> tuple[int, int]:
    """Returns this process's index on its host and the number of processes there, from torchrun or from the hostnames.

    Raises:
        RuntimeError: the ranks of a host's processes are not consecutive.
    """
    if "LOCAL_RANK" in os.environ and "LOCAL_WORLD_SIZE" in os.environ:
        local, here = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
        if 0 <= local < here and 0 <= rank - local <= size - here:
            return local, here
    beside = [other for other in range(size) if hosts[other] == hosts[rank]]
    if beside[-1] - beside[0] >= len(beside):
        raise RuntimeError(
            f"torch.distributed.init_process_group: host {hosts[rank]} has the processes of ranks {beside}, "
            "and a client of several processes wants a host's to be in a row; number them host by host"
        )
    return rank - beside[0], len(beside)


def _begin_processes(store: Any, hosts: dict[int, str], rank: int, size: int) -> None:
    """Makes the clients of all processes one if the plugin is for GPUs. Raises RuntimeError if it can't start."""
    places: list[tuple[int, int]] = []

    def place() -> tuple[int, int]:
        places.append(_place_on_host(hosts, rank, size))
        return places[0]

    if size > 1 and _C.begin_processes(store, rank, size, place):
        _C.set_device(places[0][0])  # the only device that this process may use
    elif size > 1 and _C.is_initialized() and _C.platform_name() in ("cuda", "rocm"):
        warnings.warn(
            "init_process_group('pjrt'): the device was used before, and so its client knows no other processes: "
            "collectives go by way of the host. Call init_process_group first in the program",
            stacklevel=2,
        )


def _of_processes(options: Any, _backend_options: Any) -> Any:
    """Makes the backend ``"pjrt"`` of a group whose ranks are processes."""
    from torch.distributed import ProcessGroupGloo, get_rank, get_world_size, is_gloo_available, is_initialized

    store, rank, size, timeout = options.store, options.group_rank, options.group_size, options.timeout

    if not is_gloo_available():
        raise NotImplementedError(
            "collectives between processes on device 'pjrt' are gloo's, which this build of PyTorch doesn't have"
        )
    place = (rank, size)
    if is_initialized():
        place = (get_rank(), get_world_size())
    else:  # the default group
        _begin_processes(store, _hosts, rank, size)
    ranks = list(options.global_ranks_in_group) or list(range(size))
    host = ProcessGroupGloo(store, rank, size, timeout)
    attendance = _C.Attendance(store, ranks, ranks[rank])
    if _C.process() == place:
        return _C.backend_of_processes(ranks, host, attendance)
    return _C.host_backend(host, attendance)


def _serve(group: Any, store: Any, ranks: list[int], timeout: Any) -> None:
    """Registers a group's backend for this device also for the CPU, and a backend of gloo alone for this device."""
    from torch.distributed import PrefixStore, ProcessGroup

    if not isinstance(group, ProcessGroup):
        return
    cpu, ours = torch.device("cpu"), torch.device("pjrt")
    there, kinds = group._device_types, ProcessGroup.BackendType
    name, description = group.group_name, group.group_desc  # PyTorch asks any backend for these

    def of_both(host: Any) -> Any:
        return _C.host_backend(host, _C.Attendance(store, ranks, ranks[group.rank()]))

    if ours in there:
        backend = group._get_backend(ours)
        if backend.name() == "gloo" and _C.host_of(_inner(backend)) is None:  # "cpu:gloo,pjrt:gloo"
            backend = of_both(backend)
            group._register_backend(ours, kinds.CUSTOM, backend)
        of_host = _C.host_of(_inner(backend))
        if of_host is not None and cpu not in there:
            group._register_backend(cpu, kinds.GLOO, backend if of_host is _inner(backend) else of_host)
        elif of_host is not None and of_host is _inner(backend):
            # One backend for both devices, because ranks may pass tensors of different ones
            group._register_backend(cpu, kinds.CUSTOM, backend)
    elif cpu in there:
        backend = group._get_backend(cpu)
        served = backend
        if backend.name() == "gloo":
            from torch.distributed import ProcessGroupGloo

            # Its own connections: a message of a rank with a tensor of the CPU would end a process that expects another
            served = of_both(ProcessGroupGloo(PrefixStore("pjrt", store), group.rank(), group.size(), timeout))
        if backend.name() in ("fake", "gloo"):
            group._register_backend(ours, kinds.CUSTOM, served)
    group._set_group_name(name)
    group._set_group_desc(description)


def _inner(backend: Any) -> Any:
    """Returns the backend that PyTorch has wrapped if TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    return getattr(backend, "wrapped_pg", backend)


_hosts: dict[int, str] = {}  # hostname by rank of the default group, of the ranks that have met


def _meet(backend: Any, store: Any, name: str, ranks: list[int], group_rank: Any, timeout: Any, call: str) -> Any:
    """Waits for the group's ranks here, before PyTorch waits for them, and notes their hosts.

    Returns a part of the store where ranks that have died since, and an earlier group of the same name, wrote nothing:
    gloo would take their addresses, and wait there.
    """
    from torch.distributed import PrefixStore
    from torch.distributed.constants import default_pg_timeout

    if _C.world_size() > 1 or not rendezvous.takes_part(backend) or group_rank not in range(len(ranks)):
        return store
    limit = (timeout or default_pg_timeout).total_seconds()
    hosts, meeting = rendezvous.join(store, name, ranks, ranks[group_rank], limit, call)
    _hosts.update(hosts)
    return PrefixStore(meeting, store)


def _serve_new_groups() -> None:
    """Patches the creation of groups, because PyTorch's table of devices makes gloo refuse tensors of other devices."""
    from torch.distributed import GroupMember, distributed_c10d
    from torch.distributed.constants import default_pg_timeout

    inner = distributed_c10d._new_process_group_helper
    arguments = inspect.signature(inner)

    @functools.wraps(inner)
    def _new_process_group_helper(*args: Any, **kwargs: Any) -> Any:
        if getattr(kwargs.get("device_id"), "type", None) == "pjrt":
            del kwargs["device_id"]  # PyTorch would look for its backend before that is made; no early binding exists
        bound = arguments.bind(*args, **kwargs)
        given = bound.arguments
        listed = list(given["global_ranks_in_group"])
        ranks = listed or list(range(given["group_size"]))
        call = "new_group" if listed else "init_process_group"
        place = given["group_rank"]
        if listed:
            me = distributed_c10d.get_rank()
            place = ranks.index(me) if me in ranks else -1
        backend, store, name, timeout = given["backend"], given["store"], given["group_name"], given.get("timeout")
        given["store"] = _meet(backend, store, name, ranks, place, timeout, call)
        made = inner(*bound.args, **bound.kwargs)
        if made[0] is not GroupMember.NON_GROUP_MEMBER:
            _serve(made[0], made[1], ranks, timeout or default_pg_timeout)
        return made

    distributed_c10d._new_process_group_helper = _new_process_group_helper


def _refuse_captured_ddp() -> None:
    from torch.nn.parallel import DistributedDataParallel

    inner = DistributedDataParallel._pre_forward

    @functools.wraps(inner)
    def _pre_forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
        if _C.tracing() and torch.is_grad_enabled() and self.require_backward_grad_sync:
            raise NotImplementedError(
                "compile_step, jit and export of a DistributedDataParallel module that trains: its reducer adds up "
                "gradients by hooks, which a captured backward has not. Capture the module within, and add up the "
                "gradients by torch.distributed.all_reduce; or leave the capture out: what is recorded between two "
                "reads is one program already"
            )
        return inner(self, *inputs, **kwargs)

    DistributedDataParallel._pre_forward = _pre_forward


def _count_processes_of_hosts(fsdp: Any) -> None:
    """Shards HYBRID_SHARD among the processes of a host. PyTorch asks ``device_count()``, which is 1 in processes that
    torchrun didn't start, and would add up no gradients."""
    inner = fsdp._init_intra_and_inter_node_groups

    @functools.wraps(inner)
    def groups(global_process_group: Any, num_devices_per_node: int) -> Any:
        accelerator = torch.accelerator.current_accelerator()
        if accelerator is not None and accelerator.type == "pjrt" and torch.pjrt.get_device_properties().is_host_memory:
            ranks, here = torch.distributed.get_process_group_ranks(global_process_group), socket.gethostname()
            hosts = [_hosts.get(rank) for rank in ranks]
            if None in hosts:  # ranks of other backends than gloo do not meet here
                torch.distributed.all_gather_object(hosts, here, global_process_group)
            num_devices_per_node = hosts.count(here)
        return inner(global_process_group, num_devices_per_node)

    fsdp._init_intra_and_inter_node_groups = groups


def _check_ranks_of_meshes(device_mesh: Any) -> None:
    """Raises for a mesh with ranks that don't exist, which PyTorch gives the default group if its size fits."""
    inner = device_mesh.DeviceMesh._setup_world_group_and_device

    @functools.wraps(inner)
    def _setup_world_group_and_device(self: Any) -> Any:
        made = inner(self)
        size = torch.distributed.get_world_size()
        ranks = sorted({int(rank) for rank in self._rank_map})
        if self.device_type == "pjrt" and (ranks[0] < 0 or ranks[-1] >= size):
            beyond = [rank for rank in ranks if not 0 <= rank < size]
            raise ValueError(f"a mesh with ranks {beyond}: the world has ranks 0 to {size - 1}; list each of them once")
        return made

    device_mesh.DeviceMesh._setup_world_group_and_device = _setup_world_group_and_device


def _scatter_gradients(functional: Any) -> None:
    """Adds up the gradients of ``_all_gather_base``, which PyTorch does for backends that it knows by name."""
    base = functional._AllGatherBase
    inner = base.backward

    @functools.wraps(inner)
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        if gradient.device.type != "pjrt":
            return inner(ctx, gradient)
        part = gradient.new_empty(gradient.size(0) // torch.distributed.get_world_size(ctx.group), *gradient.shape[1:])
        sum_of_ranks = torch.distributed.ReduceOp.SUM
        torch.distributed._reduce_scatter_base(part, gradient.contiguous(), sum_of_ranks, ctx.group)
        return None, part, None

    base.backward = staticmethod(backward)


def _name_one_backend() -> None:
    """Patches the question for a group's backend, which PyTorch answers if all devices have the same: the CPU's is it
    for a group of gloo, in which this device has connections of its own."""
    from torch.distributed import distributed_c10d

    inner = getattr(distributed_c10d, "get_backend_impl", None)
    if inner is None:  # before torch 2.15
        return

    @functools.wraps(inner)
    def get_backend_impl(group: Any = None, device: torch.device | None = None) -> Any:
        if device is None:
            named = distributed_c10d._resolve_process_group(group) if isinstance(group, str) else group
            there = getattr(named or distributed_c10d._get_default_group(), "_device_types", [])
            if {"cpu", "pjrt"} <= {each.type for each in there} and distributed_c10d.get_backend(named) == "gloo":
                device = torch.device("cpu")
        return inner(group, device)

    distributed_c10d.get_backend_impl = torch.distributed.get_backend_impl = get_backend_impl


def install() -> None:
    if torch.distributed.is_available():
        torch.distributed.Backend.register_backend("pjrt", _of_processes, extended_api=True, devices=["pjrt"])
        rendezvous.install()
        _serve_new_groups()
        _name_one_backend()
        _refuse_captured_ddp()
        after_import("torch.distributed.fsdp._init_utils", _count_processes_of_hosts)
        after_import("torch.distributed.nn.functional", _scatter_gradients)
        after_import("torch.distributed.device_mesh", _check_ranks_of_meshes)
