"""Many devices in one process: a world, for programs of ``torch.distributed``.

``init_process_group("pjrt", rank=0, world_size=N)`` makes the plugin's first N devices a world. Device ``pjrt:0`` then
stands for all of them: a tensor is the local tensor of every rank, and a program runs on all devices together, with
collectives as its ops. DTensor, and libraries on top of it, define the placement of shards.
"""

from torch_pjrt.distributed.batches import load_by_rank, split
from torch_pjrt.distributed.reading import rank_values
from torch_pjrt.distributed.tables import describe

__all__ = ["describe", "load_by_rank", "rank_values", "split"]
