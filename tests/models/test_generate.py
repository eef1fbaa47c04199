"""``generate()`` of ``transformers``: the same tokens as on the CPU, and the network not compiled for each."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

import torch_pjrt

TOKENS, LARGE = 12, 60


def gpt2(eos: int | None) -> PreTrainedModel:
    config = GPT2Config(n_layer=3, n_head=2, n_embd=32, vocab_size=97, n_positions=64, bos_token_id=0, eos_token_id=eos)
    return GPT2LMHeadModel(config)


def llama(eos: int | None) -> PreTrainedModel:
    config = LlamaConfig(
        num_hidden_layers=3, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=97, max_position_embeddings=64, bos_token_id=0, eos_token_id=eos,
    )  # fmt: skip
    return LlamaForCausalLM(config)


@torch.no_grad()
def generate(model: PreTrainedModel, prompt: torch.Tensor, tokens: int = TOKENS, cache: str = "static") -> list[int]:
    prompt = prompt.to(model.device)
    result = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=tokens, do_sample=False, pad_token_id=0,
        cache_implementation=cache, disable_compile=True,
    )  # fmt: skip
    return result[0].tolist()


@pytest.mark.parametrize("eos", [None, 96])
@pytest.mark.parametrize("make", [gpt2, llama])
def test_a_static_cache(make: object, eos: int | None) -> None:
    torch.manual_seed(0)
    model = make(eos).eval()  # type: ignore[operator]
    moved = copy.deepcopy(model).to("pjrt")
    prompt = torch.randint(1, 96, (1, 9))
    torch_pjrt.reset_metrics()
    with torch_pjrt.explain() as report:
        assert generate(moved, prompt) == generate(model, prompt)
    large = [graph for graph in report.graphs if graph.source == "compiled" and graph.nodes >= LARGE]
    # The prompt; tokens of two kinds (transformers prepares masks ahead), each compiled as a whole and as the common
    # part of all its tokens; the last token's flag is another number, and an input from then on.
    assert len(large) <= 6, report
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
    torch_pjrt.reset_metrics()
    generate(moved, prompt)
    assert torch_pjrt.metrics()["graphs_compiled"] == 0


@pytest.mark.parametrize("make", [gpt2, llama])
def test_the_default_cache_which_grows(make: object) -> None:
    """Each token's graph is new, and none is worth a compile."""
    torch.manual_seed(0)
    model = make(None).eval()  # type: ignore[operator]
    moved = copy.deepcopy(model).to("pjrt")
    prompt = torch.randint(1, 96, (1, 9))
    torch_pjrt.reset_metrics()
    assert generate(moved, prompt, cache="dynamic") == generate(model, prompt, cache="dynamic")
    metrics = torch_pjrt.metrics()
    assert metrics["graphs_interpreted"] >= TOKENS
    assert metrics["compile_seconds"] == 0
    assert metrics["host_fallbacks"] == {}


@pytest.mark.thorough
def test_a_compiled_forward_on_the_cpu() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = gpt2(None).eval()
    prompt = torch.randint(1, 96, (1, 9))
    expected = generate(model, prompt)
    model.forward = torch.compile(model.forward, backend="pjrt")
    torch_pjrt.reset_metrics()
    assert generate(model, prompt) == expected
    metrics = torch_pjrt.metrics()
    assert metrics["graphs_compiled"] <= 3  # the prompt, and one token
    assert metrics["host_transfer_bytes"] == 0
