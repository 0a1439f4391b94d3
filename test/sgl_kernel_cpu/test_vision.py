from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

ops = torch.ops.sgl_kernel


@pytest.mark.parametrize("num_patches", [0, 1, 4])
@pytest.mark.parametrize("has_bias", [True, False])
def test_patch_embedding_is_the_convolution(num_patches, has_bias):
    patches = torch.randn(num_patches, 3, 2, 4, 4)
    weight = torch.randn(10, 3, 2, 4, 4)
    bias = torch.randn(10) if has_bias else None
    packed = ops.conv3d_embed_weight_pack(weight)
    out = ops.conv3d_embed_cpu(patches, packed, bias, is_vnni=True)
    expected = torch.einsum("nctyx,octyx->no", patches.double(), weight.double())
    expected = expected + (bias if has_bias else 0)
    torch.testing.assert_close(out, expected.float(), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("num_kv_heads", [4, 2])
def test_packed_images_attend_to_themselves_only(causal, num_kv_heads):
    lengths = [5, 0, 1, 7]
    bounds = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    q = torch.randn(13, 4, 8)
    k, v = torch.randn(13, num_kv_heads, 8), torch.randn(13, num_kv_heads, 6)
    out = ops.flash_attn_varlen_func(
        q,
        k,
        v,
        cu_seqlens_q=bounds,
        cu_seqlens_k=bounds,
        max_seqlen_q=7,
        max_seqlen_k=7,
        causal=causal,
    )
    assert out.shape == (13, 4, 6)
    for start, end in pairwise(bounds.tolist()):
        for row in range(start, end):
            stop = row + 1 if causal else end
            for head in range(4):
                kv_head = head // (4 // num_kv_heads)
                logits = k[start:stop, kv_head].double() @ q[row, head].double()
                weights = F.softmax(logits * 8**-0.5, dim=0)
                expected = weights @ v[start:stop, kv_head].double()
                torch.testing.assert_close(out[row, head], expected.float())


def test_softmax_scale_may_be_given():
    q = torch.randn(6, 2, 8)
    bounds = torch.tensor([0, 6], dtype=torch.int32)
    out = ops.flash_attn_varlen_func(q, q, q, bounds, bounds, 6, 6, softmax_scale=0.0)
    torch.testing.assert_close(out, q.mean(0, keepdim=True).expand_as(q))
