# SPDX-License-Identifier: Apache-2.0
"""Models of text and speech, as transformers has them, and an LSTM, with random weights and inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch
import transformers
from job import Job
from torch import nn
from torch.nn import functional


def words(
    model: nn.Module, blocks: nn.ModuleList, batch: int, length: int, momentum: float | None = None
) -> Job:
    """A model of transformers that computes the loss of predicting `batch` x `length` words."""
    most = model.config.vocab_size

    def loss(model: nn.Module) -> torch.Tensor:
        text = torch.randint(most, (batch, length), device="cuda")
        return model(input_ids=text, labels=text).loss

    return Job(model, list(blocks), loss, momentum)


def gpt2_xl() -> Job:
    config = transformers.GPT2Config(n_layer=48, n_embd=1600, n_head=25, use_cache=False)
    model = transformers.GPT2LMHeadModel(config)
    return words(model, model.transformer.h, batch=8, length=1024)


def bert_large() -> Job:
    config = transformers.BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    )
    model = transformers.BertForMaskedLM(config)
    return words(model, model.bert.encoder.layer, batch=32, length=512)


def _llama(layers: int, batch: int, length: int, vocabulary: int) -> Job:
    """By plain SGD, without momentum: in single precision, Adam's states would leave no room."""
    config = transformers.LlamaConfig(
        vocab_size=vocabulary, hidden_size=4096, intermediate_size=14336, num_hidden_layers=layers,
        num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=32768, use_cache=False,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    return words(model, model.model.layers, batch, length, momentum=0)


def llama_8_layers() -> Job:
    return _llama(8, batch=4, length=4096, vocabulary=32000)


def llama_32k() -> Job:
    return _llama(8, batch=1, length=32768, vocabulary=32000)


def llama_8b() -> Job:
    return _llama(32, batch=1, length=4096, vocabulary=128256)


def mixtral() -> Job:
    """Two layers of Mixtral 8x7B."""
    config = transformers.MixtralConfig(num_hidden_layers=2, use_cache=False)
    # PyTorch's grouped product takes no single precision, which the weights have under autocast.
    model = transformers.AutoModelForCausalLM.from_config(config, experts_implementation="eager")
    return words(model, model.model.layers, batch=4, length=4096)


def whisper_large() -> Job:
    config = transformers.WhisperConfig(
        d_model=1280, encoder_layers=32, decoder_layers=32, encoder_attention_heads=20,
        decoder_attention_heads=20, encoder_ffn_dim=5120, decoder_ffn_dim=5120, num_mel_bins=80,
        use_cache=False,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config)
    batch, frames, length = 8, 3000, 128

    def loss(model: nn.Module) -> torch.Tensor:
        dtype = next(model.parameters()).dtype
        sound = torch.randn(batch, config.num_mel_bins, frames, device="cuda", dtype=dtype)
        text = torch.randint(config.vocab_size, (batch, length), device="cuda")
        return model(input_features=sound, labels=text).loss

    return Job(model, [*model.model.encoder.layers, *model.model.decoder.layers], loss)


class Recurrent(nn.Module):
    """Layers of an LSTM with dropout in between, and the loss of predicting its input."""

    WORDS, WIDTH, LAYERS = 32000, 1024, 16

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(self.WORDS, self.WIDTH)
        self.layers = nn.ModuleList(
            nn.LSTM(self.WIDTH, self.WIDTH, batch_first=True) for _ in range(self.LAYERS)
        )
        self.output = nn.Linear(self.WIDTH, self.WORDS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.words(text)
        for layer in self.layers:
            x = functional.dropout(layer(x)[0], 0.1, self.training)
        return functional.cross_entropy(self.output(x).flatten(0, 1), text.flatten())


def lstm() -> Job:
    model = Recurrent()
    batch, length = 64, 256

    def loss(model: nn.Module) -> torch.Tensor:
        return model(torch.randint(Recurrent.WORDS, (batch, length), device="cuda"))

    return Job(model, list(model.layers), loss)


MODELS: dict[str, Callable[[], Job]] = {
    each.__name__: each
    for each in (
        gpt2_xl, bert_large, llama_8_layers, llama_32k, llama_8b, mixtral, whisper_large, lstm
    )
}  # fmt: skip
