"""Initial values: residual branches at zero, the delta rule with spread memories."""

import torch
from torch import nn

from tiny_qwen.architecture import Architecture
from tiny_qwen.gated_delta_net import GatedDeltaNet
from tiny_qwen.model import TinyQwen

EMBEDDING_STD = 0.3
LM_HEAD_STD = 0.02
GATE_STD = 0.02
# softplus(dt_bias) of the heads: they remember about 10 to 300 tokens.
SHORTEST_STEP, LONGEST_STEP = 10**-2.5, 10**-1.0
RESIDUAL_OUTPUTS = ("o_proj", "out_proj", "down_proj")


@torch.no_grad()
def initial_model(architecture: Architecture) -> TinyQwen:
    """A model ready to train, from torch's global random state."""
    model = TinyQwen(architecture)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            if name.endswith(RESIDUAL_OUTPUTS):
                nn.init.zeros_(module.weight)
            else:
                nn.init.normal_(module.weight, std=module.in_features**-0.5)
        if isinstance(module, GatedDeltaNet):
            initialize_delta_net(module)
    nn.init.normal_(model.embed_tokens.weight, std=EMBEDDING_STD)
    nn.init.normal_(model.lm_head.weight, std=LM_HEAD_STD)
    return model


def initialize_delta_net(module: GatedDeltaNet) -> None:
    for projection in (module.in_proj_a, module.in_proj_b):
        nn.init.normal_(projection.weight, std=GATE_STD)
    nn.init.normal_(module.conv1d.weight, std=GATE_STD * 15)
    module.conv1d.weight[..., -1] += 0.5
    heads = len(module.dt_bias)
    step = torch.logspace(
        torch.log10(torch.tensor(SHORTEST_STEP)).item(),
        torch.log10(torch.tensor(LONGEST_STEP)).item(),
        heads,
    )
    module.dt_bias.copy_(step + torch.log(-torch.expm1(-step)))
