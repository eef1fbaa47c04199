"""Trains torchtitan's Llama 3 debug model on characters of this file's neighbours, by torchtitan's own trainer.

    python examples/trainers/torchtitan_llama.py                                         # one device
    torchrun --nproc-per-node 2 examples/trainers/torchtitan_llama.py                    # FSDP2
    torchrun --nproc-per-node 4 examples/trainers/torchtitan_llama.py --tensor 2         # FSDP2 and tensor parallel
    torchrun --nproc-per-node 2 examples/trainers/torchtitan_llama.py --pipeline 2       # stages of a pipeline, 1F1B
    WORLD_SIZE=2 python examples/trainers/torchtitan_llama.py --tensor 2                 # tensor parallel, one process
    python … --begin, then the others with --save                                        # the same weights in each
    … --steps 4 --save, then --steps 8 --save                                            # goes on from the checkpoint

Nothing here names a device. Needs torchtitan, and what it imports: datasets, einops, spmd_types, tensorboard,
torchdata, tyro, …
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
from pathlib import Path
from typing import Any

import torch.distributed as dist
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.distributed.pipelining import schedules
from torchtitan.models.llama3.config_registry import llama3_debugmodel
from torchtitan.tools.logging import init_logger

if not hasattr(dist, "set_timeout"):  # torchtitan 0.3.0 asks for a newer PyTorch's
    dist.set_timeout = dist.distributed_c10d._set_pg_timeout  # type: ignore[attr-defined]


def step(self: Any, arg_mbs: Any, kwarg_mbs: Any, target_mbs: Any, losses: Any, **options: Any) -> None:
    """Takes microbatches, as torchtitan 0.3.0 passes them to a newer PyTorch's schedules."""
    for stage in getattr(self, "_stages", None) or [self._stage]:
        stage.has_backward = True
        stage.clear_runtime_states()
    count = self._n_microbatches
    self._step_microbatches(arg_mbs or [()] * count, kwarg_mbs or [{}] * count, target_mbs, losses, **options)


for schedule in (schedules.PipelineScheduleSingle, schedules.PipelineScheduleMulti):
    if "arg_mbs" not in inspect.signature(schedule.step).parameters:
        schedule.step = step

TEXTS = sorted(Path(__file__).parents[2].glob("docs/*.md"))


def write_assets(folder: Path) -> None:
    """Writes a tokenizer of single bytes, and the texts as a data set of Hugging Face."""
    (folder / "texts").mkdir(parents=True, exist_ok=True)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = {token: index for index, token in enumerate(["<|begin_of_text|>", "<|end_of_text|>", *letters])}
    tokenizer = Tokenizer(models.BPE(vocab=tokens, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    rows = [json.dumps({"text": text.read_text()}) for text in TEXTS]
    (folder / "texts" / "texts.jsonl").write_text("\n".join(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--tensor", type=int, default=1, help="the degree of tensor parallel")
    parser.add_argument("--pipeline", type=int, default=1, help="the degree of pipeline parallel")
    parser.add_argument(
        "--save", action="store_true", help="write a checkpoint at the end, and begin with the last one"
    )
    parser.add_argument(
        "--begin", action="store_true", help="only write a checkpoint of one device for others to begin with"
    )
    parser.add_argument("--folder", type=Path, default=Path("outputs"))
    asked = parser.parse_args()

    os.environ.setdefault("LOCAL_RANK", "0")
    if "WORLD_SIZE" not in os.environ:  # torchrun's variables, for one device
        os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    assets = asked.folder / f"assets{os.environ.get('RANK', '0')}"
    write_assets(assets)
    init_logger()

    config = llama3_debugmodel()
    config.dump_folder = str(asked.folder)
    config.hf_assets_path = str(assets)
    config.dataloader.dataset_path = str(assets / "texts")
    config.training.steps = asked.steps
    config.training.local_batch_size, config.training.seq_len = 2, 128
    config.lr_scheduler.total_steps = 100
    config.model_spec.model.layers = config.model_spec.model.layers[: asked.layers]
    config.parallelism.tensor_parallel_degree = asked.tensor
    config.parallelism.pipeline_parallel_degree = asked.pipeline
    config.training.disable_cuda_graphs = asked.pipeline > 1  # as torchtitan wants it with pipelines
    config.parallelism.spmd_backend = (
        "partial_dtensor"  # the default of torchtitan 0.3.0 asks for a newer PyTorch's FSDP2
    )
    config.checkpoint.enable, config.checkpoint.interval = asked.save or asked.begin, asked.steps
    config.checkpoint.create_seed_checkpoint = asked.begin
    config.validator.enable = False
    config.debug.seed = 0
    trainer = config.build()
    if asked.begin:
        trainer.checkpointer.save(curr_step=0, last_step=True)
    else:
        trainer.train()
    trainer.close()


if __name__ == "__main__":
    main()
