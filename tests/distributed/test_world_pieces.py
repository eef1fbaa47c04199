"""The parts of a world in one process, without a world: groups, ranks as numbers, and patches of PyTorch."""

from __future__ import annotations

import importlib

import pytest

from torch_pjrt.distributed.groups import Groups, in_a_row, translated
from torch_pjrt.distributed.rank import PerRank, per_rank
from torch_pjrt.distributed.world import is_asked_for


def test_groups_with_equal_layouts() -> None:
    known = {(0, 2), (1, 3), (0, 1), (2, 3), (0, 1, 2, 3)}
    assert translated((0, 2), 4, known) == [(0, 2), (1, 3)]
    assert translated((0, 1), 4, known) == [(0, 1), (2, 3)]
    assert translated((0, 1, 2, 3), 4, known) == [(0, 1, 2, 3)]
    assert translated((0, 1), 4, {(0, 1)}) is None
    assert translated((0, 3), 4, known | {(0, 3)}) is None


def test_groups_of_a_mesh_that_is_no_row() -> None:
    assert in_a_row((0, 3), 4, [(0, 1), (2, 1), (0, 3)]) == [(0, 3), (2, 1)]
    assert in_a_row((0, 3), 4, [(0, 3), (2, 1), (0, 2)]) is None


def test_a_group_is_complete_when_all_ranks_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[tuple[object, list[list[int]]]] = []
    core = importlib.import_module("torch_pjrt._C")
    monkeypatch.setattr(core, "world_backend", lambda ranks: tuple(ranks))
    monkeypatch.setattr(core, "complete_world_backend", lambda backend, groups: reported.append((backend, groups)))
    groups = Groups(4)
    groups.ask((0, 2))
    backend = groups.backend((0, 2))
    assert reported == []
    groups.ask((1, 3))
    assert reported == [(backend, [[0, 2], [1, 3]])]


def test_numbers_of_ranks() -> None:
    rank = PerRank(range(4))
    assert (rank * 2 + 1).values == (1, 3, 5, 7)
    assert (10 - rank).values == (10, 9, 8, 7)
    assert (rank // 2 * 3 % 2 == PerRank([0, 0, 1, 1])) is True
    assert (rank < 2).values == (True, True, False, False)
    assert per_rank([5, 5]) == 5
    with pytest.raises(RuntimeError, match=r"a rank was taken for a condition.*\[0, 1, 2, 3\]"):
        bool(rank)
    with pytest.raises(TypeError, match="unhashable"):
        hash(rank)


def test_who_asks_for_a_world(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MASTER_ADDR", "RANK"):
        monkeypatch.delenv(name, raising=False)
    assert is_asked_for("pjrt", None, 4, 0, None)
    assert not is_asked_for("gloo", None, 4, 0, None)
    assert not is_asked_for("pjrt", "file:///tmp/store", 4, 0, None)
    assert not is_asked_for("pjrt", None, 4, 1, None)
    assert not is_asked_for("pjrt", None, 1, 0, None)
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    assert not is_asked_for("pjrt", None, 4, 0, None)


@pytest.mark.parametrize(
    "name",
    [
        "torch.distributed.distributed_c10d:init_process_group",
        "torch.distributed.distributed_c10d:_new_process_group_helper",
        "torch.distributed.distributed_c10d:Backend._plugins",
        "torch.distributed.device_mesh:DeviceMesh.get_coordinate",
        "torch.distributed.device_mesh:DeviceMesh._sym_get_coordinate",
        "torch.distributed.device_mesh:DeviceMesh.get_local_rank",
        "torch.distributed.tensor.placement_types:Shard._select_split_tensor",
        "torch.distributed.tensor.placement_types:Shard._maybe_unpad_tensor_with_sizes",
        "torch.distributed.tensor.placement_types:Shard.local_shard_size_and_offset",
        "torch.distributed.tensor:DTensor.full_tensor",
        "torch.distributed.tensor:DTensor.to_local",
        "torch.distributed.tensor:DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding_non_cached",
        "torch.distributed.tensor:DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding",
        "torch.distributed.tensor.parallel.loss:customized_loss_ops",
        "torch.distributed.tensor._dispatch:OpDispatcher.redistribute_local_args",
        "torch.distributed.tensor._utils:_get_shard_size_and_offsets",
        "torch.distributed.tensor._utils:_get_first_offset",
        "torch.distributed.fsdp._fully_shard._fsdp_param:FSDPParam.__init__",
        "torch.distributed.fsdp._fully_shard._fsdp_state:_get_module_fsdp_state",
        "torch.distributed.fsdp._fully_shard._fsdp_state:FSDPState._lazy_init",
        "torch.distributed.fsdp._fully_shard._fsdp_param_group:FSDPParamGroup.is_sharded",
        "torch.distributed.fsdp._fully_shard._fsdp_param_group:FSDPParamGroup.reshard",
        "torch.nn.parallel:DistributedDataParallel._pre_forward",
        "torch.nn.parallel:DistributedDataParallel._post_forward",
        "torch.nn.parallel:DistributedDataParallel.will_sync_module_buffers",
        "torch.distributed.tensor._random:OffsetBasedRNGTracker._distribute_region",
        "torch.distributed.tensor._random:_calc_shard_info",
        "torch.distributed.tensor:DTensor._op_dispatcher._custom_op_handlers",
        "torch.distributed.fsdp._fully_shard._fsdp_common:FSDPMeshInfo.__post_init__",
        "torch.distributed.fsdp._fully_shard._fsdp_param:_chunk_with_empty",
        "torch.distributed.tensor:DTensor.__create_write_items__",
        "torch.distributed.tensor:DTensor.__create_chunk_list__",
        "torch.distributed.tensor:DTensor.__get_tensor_shard__",
        "torch.distributed.checkpoint.state_dict_loader:_load_state_dict",
        "torch.distributed.checkpoint.utils:_DistWrapper.__init__",
        "torch.distributed.tensor.experimental._context_parallel._attention:_enable_context_parallel_dispatcher_impl",
        "torch.distributed.tensor.experimental._context_parallel._attention:_disable_context_parallel_dispatcher_impl",
        "torch.distributed.tensor.experimental._context_parallel._attention:_enable_cp_dtensor_dispatcher",
        "torch.distributed.tensor.experimental._context_parallel._attention:_create_default_load_balancer",
        "torch.distributed.tensor.experimental._context_parallel._attention:_create_cp_block_mask",
        "torch.distributed.tensor.experimental._context_parallel._attention:_compiled_create_block_mask",
        "torch.utils.data.distributed:DistributedSampler.__init__",
        "torch.distributed.distributed_c10d:broadcast_object_list",
        "torch.distributed.distributed_c10d:scatter_object_list",
        "torch.distributed.distributed_c10d:gather_object",
    ],
)
def test_what_is_patched_is_there(name: str) -> None:
    module, _, path = name.partition(":")
    found = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
