"""Networks that people deploy: a ResNet, and a Llama of transformers with a static cache, as two entries."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import torch_pjrt
from models.catalogue import case


def test_resnet(tmp_path: Path) -> None:
    made = case("resnet18", batch=1)
    made.model.eval()
    torch_pjrt.export(made.model, made.inputs).save(tmp_path / "resnet.pjrt")
    program = torch_pjrt.load(tmp_path / "resnet.pjrt")
    with torch.no_grad():
        expected = made.model(*made.inputs)
    torch.testing.assert_close(program(*made.inputs), expected, rtol=1e-3, atol=1e-4)
    assert not any(form["updated"] for form in program.signature["state"])


def test_llama_with_a_static_cache(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=97, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    prompt = torch.randint(97, (1, 7))

    def fresh() -> object:
        cache = transformers.StaticCache(config=config, max_cache_len=32)
        with torch.no_grad():
            model(torch.zeros(1, 1, dtype=torch.long), past_key_values=cache, cache_position=torch.tensor([0]))
        cache.reset()
        return cache

    cache = fresh()

    def step(tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return model(tokens, past_key_values=cache, cache_position=positions, position_ids=positions[None]).logits[
            :, -1
        ]

    exported = torch_pjrt.export(
        {"prefill": (step, (prompt, torch.arange(7))), "decode": (step, (prompt[:, :1], torch.tensor([7])))}
    )
    exported.save(tmp_path / "llama.pjrt")
    program = torch_pjrt.load(tmp_path / "llama.pjrt")
    updated = {form["name"] for form in program.signature["state"] if form["updated"]}
    assert len([name for name in updated if "cache" in name]) >= 4, updated

    cache = fresh()
    with torch.no_grad():
        logits = [step(prompt, torch.arange(7))]
        for position in range(7, 12):
            logits.append(step(logits[-1].argmax(-1)[None], torch.tensor([position])))
    got = [program.prefill(prompt, torch.arange(7))]
    for position in range(7, 12):
        got.append(program.decode(got[-1].argmax(-1)[None], torch.tensor([position])))
    torch.testing.assert_close(torch.cat(got), torch.cat(logits), rtol=1e-3, atol=1e-4)
