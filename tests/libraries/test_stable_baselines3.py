"""stable-baselines3's device="auto"."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

baselines = pytest.importorskip("stable_baselines3", reason="stable-baselines3, of requirements.lock")


def test_auto(tmp_path: Path) -> None:
    """`device="auto"`, `save` and `load`."""
    options = {"n_steps": 8, "batch_size": 8, "n_epochs": 1, "policy_kwargs": {"net_arch": [4]}, "seed": 0}
    model = baselines.PPO("MlpPolicy", "CartPole-v1", **options)
    model.learn(8)
    assert model.device.type == "pjrt"
    model.save(tmp_path / "model")
    loaded = baselines.PPO.load(tmp_path / "model")
    assert loaded.device.type == "pjrt"
    torch.testing.assert_close(loaded.policy.state_dict(), model.policy.state_dict())


def test_named() -> None:
    assert baselines.common.utils.get_device("cpu").type == "cpu"
    assert baselines.common.utils.get_device(device="cuda").type == "cpu"  # as ever where there is no CUDA
