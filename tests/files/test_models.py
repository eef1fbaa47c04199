"""Networks that people deploy: a ResNet, and a Llama of transformers with a static cache, as two entries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


SIZES = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
SHORT = {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4}
FAMILIES: dict[str, dict[str, Any]] = {
    "Bert": SIZES,
    "Bloom": {**SHORT, "hidden_size": 32},
    "GPT2": SHORT,
    "Mamba": {**SIZES, "state_size": 4},
    "Mixtral": {**SIZES, "num_key_value_heads": 2, "num_local_experts": 4},
    "T5": {"vocab_size": 97, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_families_of_transformers(tmp_path: Path, family: str) -> None:
    transformers = pytest.importorskip("transformers")
    model = getattr(transformers, f"{family}Model")(getattr(transformers, f"{family}Config")(**FAMILIES[family])).eval()
    ids = torch.randint(3, 97, (2, 7))
    given = {"input_ids": ids, "attention_mask": torch.ones(2, 7, dtype=torch.long)}
    if family == "T5":
        given["decoder_input_ids"] = ids
    torch_pjrt.export(model, given).save(tmp_path / "it.pjrt")
    with torch.no_grad():
        expected = model(**given)
    got = torch_pjrt.load(tmp_path / "it.pjrt")(**given)
    assert type(got) is type(expected)
    assert list(got) == list(expected)
    torch.testing.assert_close(got.last_hidden_state, expected.last_hidden_state, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["DynamicCache", "StaticCache"])
def test_a_cache_as_argument_and_result(tmp_path: Path, kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(**SIZES, max_position_embeddings=64)
    model = transformers.LlamaForCausalLM(config).eval()
    prompt = torch.randint(97, (1, 4))

    def filled() -> Any:
        cache = getattr(transformers, kind)(config=config, **({"max_cache_len": 16} if kind == "StaticCache" else {}))
        model(prompt, past_key_values=cache)
        return cache

    with torch.no_grad():
        given = {"input_ids": prompt[:, :1], "position_ids": torch.tensor([[4]])}
        torch_pjrt.export(model, {**given, "past_key_values": filled()}).save(tmp_path / "it.pjrt")
        program = torch_pjrt.load(tmp_path / "it.pjrt")
        got, expected = (f(**given, past_key_values=filled()) for f in (program, model))
        torch.testing.assert_close(got.logits, expected.logits, rtol=1e-4, atol=1e-5)
        assert type(got.past_key_values) is type(expected.past_key_values)
        later = {"input_ids": prompt[:, :1], "position_ids": torch.tensor([[5]])}
        again, expected = (model(**later, past_key_values=each.past_key_values) for each in (got, expected))
    torch.testing.assert_close(again.logits, expected.logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", ["cpu", "pjrt"])
def test_a_cache_is_where_its_keys_are(tmp_path: Path, device: str) -> None:
    """A layer moves its keys to the device that it names when it is next used."""
    transformers = pytest.importorskip("transformers")

    def filled(keys: torch.Tensor, values: torch.Tensor) -> Any:
        cache = transformers.DynamicCache()
        cache.update(keys, values, 0)
        return cache

    given = [torch.randn(1, 2, 3, 4, device=device) for _ in range(2)]
    torch_pjrt.export(filled, [each.cpu() for each in given]).save(tmp_path / "it.pjrt")
    for call in (
        torch_pjrt.jit(filled, given),
        torch_pjrt.compile_step(filled),
        torch_pjrt.load(tmp_path / "it.pjrt"),
    ):
        (layer,) = call(*given).layers
        assert layer.device == layer.keys.device == given[0].device
