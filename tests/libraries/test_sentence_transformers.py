"""sentence-transformers: the device of a model that is given none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

sentences = pytest.importorskip("sentence_transformers", reason="sentence-transformers, of requirements.lock")


def test_embeddings(tmp_path: Path) -> None:
    """`encode` of a model that was given no device."""
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "good": 1, "film": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    weights = torch.randn(3, 4).numpy()

    def embedded(**options: str) -> tuple[str, torch.Tensor]:
        model = sentences.SentenceTransformer(modules=[StaticEmbedding(tokenizer, weights)], **options)
        return model.device.type, torch.tensor(model.encode(["good film", "a film"]))

    (device, found), (_, wanted) = embedded(), embedded(device="cpu")
    assert device == "pjrt"
    torch.testing.assert_close(found, wanted)
