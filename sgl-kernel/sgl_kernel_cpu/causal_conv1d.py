"""Depthwise causal convolution of the gated delta net, with its window as state.

Everything runs time-major, [..., num_tokens, dim], because SGLang lays out both its
activations and the CPU's convolution state with channels contiguous.
"""

from itertools import pairwise

import torch
import torch.nn.functional as F

from .registry import kernel, like_first
from .state_slots import StateSlots
from .token_tree import parent_tokens

PAD_SLOT_ID = -1


@kernel(
    "causal_conv1d_weight_pack(Tensor(a) weight) -> Tensor(a)",
    fake=lambda weight: weight,
)
def causal_conv1d_weight_pack(weight: torch.Tensor) -> torch.Tensor:
    """The weight itself, [dim, width]."""
    return weight


def _convolve(
    windows: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    silu_activation: bool,
) -> torch.Tensor:
    """float32 [..., dim] for windows [..., dim, width], oldest token first."""
    out = (windows.float() * weight.float()).sum(-1)
    if bias is not None:
        out += bias.float()
    return F.silu(out) if silu_activation else out


def _fake_fwd(x: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
    return like_first(x.transpose(-1, -2)).transpose(-1, -2)


@kernel(
    "causal_conv1d_fwd_cpu(Tensor x, Tensor weight, Tensor? bias, "
    "Tensor(a!)? conv_states, Tensor? query_start_loc, Tensor? cache_indices, "
    "Tensor? has_initial_state, bool silu_activation, int pad_slot_id=-1, "
    "bool is_vnni=True) -> Tensor",
    fake=_fake_fwd,
)
def causal_conv1d_fwd_cpu(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    conv_states: torch.Tensor | None,
    query_start_loc: torch.Tensor | None,
    cache_indices: torch.Tensor | None,
    has_initial_state: torch.Tensor | None,
    silu_activation: bool,
    pad_slot_id: int = PAD_SLOT_ID,
    is_vnni: bool = True,
) -> torch.Tensor:
    """Convolve prompts and leave the last window of each in its slot.

    Args:
        x: [dim, num_tokens] packed sequences, or [batch, dim, num_tokens].
        weight: [dim, width].
        bias: [dim].
        conv_states: [num_slots, dim, width - 1], written.
        query_start_loc: [batch + 1] int, sequence boundaries; None for a batched x.
        cache_indices: [batch] int, slots; the sequence's own number by default.
        has_initial_state: [batch] bool, whether the slot continues an earlier chunk.
        pad_slot_id: slot of a sequence whose state is neither read nor written.
        is_vnni: whether weight is packed; packing changes nothing here.

    Returns:
        Shaped like x, with time-major strides.
    """
    if query_start_loc is None:
        sequences = list(x.transpose(1, 2))
    else:
        bounds = query_start_loc.tolist()
        tokens = x.t()
        sequences = [tokens[a:b] for a, b in pairwise(bounds)]
    slots = list(range(len(sequences)))
    if cache_indices is not None:
        slots = cache_indices.tolist()
    continued = [False] * len(sequences)
    if has_initial_state is not None:
        continued = has_initial_state.tolist()

    dim, width = weight.shape
    outputs = []
    for tokens, slot, continues in zip(sequences, slots, continued, strict=False):
        if tokens.shape[0] == 0:
            outputs.append(tokens)
            continue
        window = None
        if conv_states is not None and slot != pad_slot_id:
            window = conv_states[slot].t()
        if continues and window is not None:
            before = window.to(x.dtype)
        else:
            before = x.new_zeros(width - 1, dim)
        history = torch.cat((before, tokens))
        out = _convolve(history.unfold(0, width, 1), weight, bias, silu_activation)
        outputs.append(out.to(x.dtype))
        if window is not None:
            window.copy_(history[history.shape[0] - width + 1 :])
    if query_start_loc is None:
        return torch.stack(outputs).transpose(1, 2)
    padding = x.shape[1] - bounds[-1]
    if padding:
        outputs.append(x.new_zeros(padding, dim))
    return torch.cat(outputs).t()


def _fake_update(x: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
    return torch.empty_like(x)


@kernel(
    "causal_conv1d_update_cpu(Tensor x, Tensor(a!) conv_states, Tensor weight, "
    "Tensor? bias, bool silu_activation, Tensor? cache_seqlens=None, "
    "Tensor? conv_state_indices=None, int pad_slot_id=-1, bool is_vnni=True, "
    "Tensor(b!)? intermediate_conv_window=None, "
    "Tensor? intermediate_state_indices=None, Tensor? retrieve_next_token=None, "
    "Tensor? retrieve_next_sibling=None, Tensor(c!)? retrieve_parent_token=None) "
    "-> Tensor",
    fake=_fake_update,
)
def causal_conv1d_update_cpu(
    x: torch.Tensor,
    conv_states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    silu_activation: bool,
    cache_seqlens: torch.Tensor | None = None,
    conv_state_indices: torch.Tensor | None = None,
    pad_slot_id: int = PAD_SLOT_ID,
    is_vnni: bool = True,
    intermediate_conv_window: torch.Tensor | None = None,
    intermediate_state_indices: torch.Tensor | None = None,
    retrieve_next_token: torch.Tensor | None = None,
    retrieve_next_sibling: torch.Tensor | None = None,
    retrieve_parent_token: torch.Tensor | None = None,
) -> torch.Tensor:
    """Convolve the new tokens of every request and advance its window.

    A chain advances the slot past all of its tokens. A tree, whose nodes each continue
    their parent, leaves the slot alone. Verification saves the window after each token
    and picks the accepted one from there.

    Args:
        x: [batch, dim], or [batch, dim, num_tokens].
        conv_states: [num_slots, dim, width - 1], written for a chain.
        weight: [dim, width].
        bias: [dim].
        cache_seqlens: must be None: windows are never circular.
        conv_state_indices: [batch] int, slots; the request's own number by default.
        pad_slot_id: slot of a padding request; nothing is written for it.
        is_vnni: whether weight is packed; packing changes nothing here.
        intermediate_conv_window: [num_buffers, num_tokens, dim, width - 1], the window
            after each token, written.
        intermediate_state_indices: [batch] int, rows of that buffer.
        retrieve_next_token: [batch, num_tokens] int, first child or -1; a tree.
        retrieve_next_sibling: [batch, num_tokens] int, next sibling or -1.
        retrieve_parent_token: [batch, num_tokens] int, written with each node's parent.

    Returns:
        Shaped and strided like x.
    """
    assert cache_seqlens is None, "circular convolution windows are not supported"
    tokens = (x.unsqueeze(-1) if x.dim() == 2 else x).transpose(1, 2)
    batch, num_tokens, _ = tokens.shape
    width = weight.shape[1]
    out = torch.empty_like(x)
    if batch == 0:
        return out
    if conv_state_indices is None:
        conv_state_indices = torch.arange(batch)
    slots = StateSlots.of(conv_state_indices, pad_slot_id)
    before = slots.read(conv_states).transpose(1, 2)
    history = torch.cat((before.to(x.dtype), tokens), dim=1)
    parents = None
    if retrieve_next_token is not None and retrieve_next_sibling is not None:
        parents = parent_tokens(retrieve_next_token, retrieve_next_sibling)
        if retrieve_parent_token is not None:
            retrieve_parent_token.copy_(parents)
        windows = _tree_windows(history, parents, width)
    else:
        windows = history.unfold(1, width, 1)
    convolved = _convolve(windows, weight, bias, silu_activation)
    out.copy_(convolved[:, 0] if x.dim() == 2 else convolved.transpose(1, 2))

    if intermediate_conv_window is not None:
        assert intermediate_state_indices is not None
        buffer = intermediate_conv_window[:, :num_tokens]
        rows = intermediate_state_indices[:batch]
        slots.write_rows(buffer, rows, windows[..., 1:])
    if parents is None:
        slots.write(conv_states, history[:, num_tokens:].transpose(1, 2))
    return out


def _tree_windows(
    history: torch.Tensor, parents: torch.Tensor, width: int
) -> torch.Tensor:
    """[batch, num_tokens, dim, width]: each node after its width - 1 predecessors.

    Args:
        history: [batch, width - 1 + num_tokens, dim], the slot's window and the nodes.
        parents: [batch, num_tokens] int64; the root's own entry is ignored.
    """
    batch, length, dim = history.shape
    num_tokens = parents.shape[1]
    root = width - 1
    previous = torch.arange(-1, length - 1).clamp_(min=0).repeat(batch, 1)
    previous[:, root + 1 :] = parents[:, 1:] + root
    position = torch.arange(root, length).repeat(batch, 1)
    path = [position]
    for _ in range(width - 1):
        path.append(previous.gather(1, path[-1]))
    index = torch.stack(path[::-1], dim=2).view(batch, -1, 1).expand(-1, -1, dim)
    nodes = history.gather(1, index).view(batch, num_tokens, width, dim)
    return nodes.transpose(2, 3)
