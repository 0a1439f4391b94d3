"""Qwen3.5 with its MTP head; `state_dict()` has the names of published checkpoints."""

from typing import cast

import torch
from torch import Tensor, nn

from tiny_qwen.architecture import Architecture
from tiny_qwen.gated_delta_net import GatedDeltaNet
from tiny_qwen.layers import (
    GatedAttention,
    KeyValue,
    Mlp,
    RMSNorm,
    SparseMlp,
    linear,
)

State = tuple[Tensor, Tensor]
Past = list[State]


class DecoderLayer(nn.Module):
    """A layer without its token mixer, which the two kinds of layer add."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        hidden, eps = architecture.hidden_size, architecture.rms_norm_eps
        self.input_layernorm = RMSNorm(hidden, eps)
        self.post_attention_layernorm = RMSNorm(hidden, eps)
        self.mlp: nn.Module = (
            SparseMlp(architecture)
            if architecture.num_experts
            else Mlp(hidden, architecture.intermediate_size)
        )

    def mix(self, x: Tensor, past: State | None) -> tuple[Tensor, State]:
        raise NotImplementedError

    def forward(self, x: Tensor, past: State | None) -> tuple[Tensor, State]:
        mixed, state = self.mix(self.input_layernorm(x), past)
        return self.feed_forward(x + mixed), state

    def feed_forward(self, x: Tensor) -> Tensor:
        return x + self.mlp(self.post_attention_layernorm(x))


class FullAttentionLayer(DecoderLayer):
    def __init__(self, architecture: Architecture) -> None:
        super().__init__(architecture)
        self.self_attn = GatedAttention(architecture)

    def mix(self, x: Tensor, past: State | None) -> tuple[Tensor, State]:
        return self.self_attn(x, past)


class LinearAttentionLayer(DecoderLayer):
    def __init__(self, architecture: Architecture) -> None:
        super().__init__(architecture)
        self.linear_attn = GatedDeltaNet(architecture)

    def mix(self, x: Tensor, past: State | None) -> tuple[Tensor, State]:
        return self.linear_attn(x, past)


LAYERS = {
    "full_attention": FullAttentionLayer,
    "linear_attention": LinearAttentionLayer,
}


class LanguageModel(nn.Module):
    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(
            architecture.vocab_size, architecture.hidden_size
        )
        self.layers = nn.ModuleList(
            LAYERS[layer_type](architecture) for layer_type in architecture.layer_types
        )
        self.norm = RMSNorm(architecture.hidden_size, architecture.rms_norm_eps)

    def forward(self, ids: Tensor, past: Past | None) -> tuple[Tensor, Past]:
        """ids [batch, rows] -> hidden states after the final norm, and the caches."""
        x = self.embed_tokens(ids)
        states = []
        for number, layer in enumerate(self.layers):
            x, state = layer(x, None if past is None else past[number])
            states.append(state)
        return self.norm(x), states


class MtpHead(nn.Module):
    """Reads a hidden state and the token that followed it; predicts the token after.

    The hidden state is the target's after its final norm at draft step 1, and the
    head's own, after `norm`, at every later step.
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        hidden, eps = architecture.hidden_size, architecture.rms_norm_eps
        self.pre_fc_norm_embedding = RMSNorm(hidden, eps)
        self.pre_fc_norm_hidden = RMSNorm(hidden, eps)
        self.fc = linear(2 * hidden, hidden)
        self.layers = nn.ModuleList([FullAttentionLayer(architecture)])
        self.norm = RMSNorm(hidden, eps)

    def forward(
        self, embedding: Tensor, hidden: Tensor, earlier: list[KeyValue]
    ) -> tuple[Tensor, list[KeyValue]]:
        """One draft step for every row at once, as serving runs it for each.

        Row i of draft step k (counted from 1) sits at position i + k - 1. It sees the
        keys of step 1 up to row i, which serving computes from verified tokens, and
        then its own keys of steps 2 to k.

        Args:
            embedding: of the token that row i reads at this step [batch, rows, hidden].
            hidden: [batch, rows, hidden].
            earlier: keys and values of the steps before this one.

        Returns:
            hidden states after `norm` [batch, rows, hidden]; `earlier` and this step's.
        """
        joined = [
            self.pre_fc_norm_embedding(embedding),
            self.pre_fc_norm_hidden(hidden),
        ]
        x = self.fc(torch.cat(joined, -1)).float()
        layer = cast(FullAttentionLayer, self.layers[0])
        attention = layer.self_attn
        query, key, value, gate = attention.project(
            layer.input_layernorm(x), offset=len(earlier)
        )
        steps = [*earlier, (key, value)]
        first_key, first_value = steps[0]
        rows = query.shape[2]
        unseen = torch.ones(rows, rows, dtype=torch.bool).triu(1)
        scores = query @ first_key.transpose(-1, -2)
        own = [(query * k).sum(-1, keepdim=True) for k, _ in steps[1:]]
        weights = attention.softmax(
            torch.cat([scores.masked_fill(unseen, float("-inf")), *own], -1)
        )
        attended = weights[..., :rows] @ first_value
        for step, (_, v) in enumerate(steps[1:]):
            attended = attended + weights[..., rows + step, None] * v
        x = layer.feed_forward(x + attention.output(attended, gate))
        return self.norm(x), steps


class Backbone(nn.Module):
    """Where the published names put the language model: beside the vision tower."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.language_model = LanguageModel(architecture)


class TinyQwen(nn.Module):
    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = architecture
        self.model = Backbone(architecture)
        self.lm_head = linear(architecture.hidden_size, architecture.vocab_size)
        self.mtp = MtpHead(architecture)

    @property
    def language_model(self) -> LanguageModel:
        return self.model.language_model

    @property
    def embed_tokens(self) -> nn.Embedding:
        return self.language_model.embed_tokens

    def hidden_states(
        self, ids: Tensor, past: Past | None = None
    ) -> tuple[Tensor, Past]:
        return self.language_model(ids, past)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.lm_head(hidden).float()

    def draft_hidden_states(
        self, ids: Tensor, hidden: Tensor, steps: int
    ) -> list[Tensor]:
        """Hidden states of the draft steps 1 to `steps` under teacher forcing.

        Args:
            ids: [batch, rows + steps]; step k of row i reads ids[i + k].
            hidden: the target's, [batch, rows, hidden].

        Returns:
            one [batch, rows, hidden] a step; step k of row i predicts ids[i + k + 1].
        """
        rows = hidden.shape[1]
        outputs: list[Tensor] = []
        earlier: list[KeyValue] = []
        for step in range(1, steps + 1):
            read = ids[:, step : step + rows]
            hidden, earlier = self.mtp(self.embed_tokens(read), hidden, earlier)
            outputs.append(hidden)
        return outputs
