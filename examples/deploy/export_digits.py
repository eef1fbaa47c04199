"""Puts the network of examples/digits.py into a file, with its training step, for train.cpp; and takes it back.

python examples/deploy/export_digits.py FOLDER              # writes digits.pjrt, and the data as .npy
FOLDER/train FOLDER                                          # examples/deploy/train.cpp: trains, without Python
python examples/deploy/export_digits.py FOLDER --restore     # reads trained.safetensors into the module
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

import torch_pjrt

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from digits import DigitNet, accuracy, digits, train_step

BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--restore", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    train, test = digits()
    model = DigitNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)

    def step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return train_step(model, optimizer, images, labels)

    compiled = torch_pjrt.compile_step(step)
    example = tuple(tensor[:BATCH] for tensor in train.tensors)
    compiled(*example)  # makes the optimizer's state
    program = torch_pjrt.export(compiled, example, name="train_step")
    program.add("predict", model.eval(), test.tensors[0])
    if args.restore:
        program.restore(args.folder / "trained.safetensors")
        reached = accuracy(model, test, torch.device("cpu"))
        print(f"accuracy in Python: {reached:.1%}")
        sys.exit(0 if reached >= 0.97 else "less than 97 %")
    program.save(args.folder / "digits.pjrt")
    for name, data in (("train", train), ("test", test)):
        for part, tensor in zip(("images", "labels"), data.tensors, strict=True):
            np.save(args.folder / f"{name}_{part}.npy", tensor.numpy())


if __name__ == "__main__":
    main()
