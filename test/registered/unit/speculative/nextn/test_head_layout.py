"""Which tensors a head has, by its configuration."""

import unittest

from head_files import (
    DENSE_CONFIG,
    LARGE_CONFIG,
    MOE_CONFIG,
    dense_head,
    large_head,
    moe_head,
    with_text,
)

from sglang.srt.speculative.nextn.head_config import (
    DenseMLP,
    SparseMLP,
    read_head_config,
)
from sglang.srt.speculative.nextn.layout import head_layout
from sglang.srt.speculative.nextn.safetensors_header import CheckpointError
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.configs.qwen3_5 import Qwen3_5MoeConfig

register_cpu_ci(est_time=5, suite="base-a-test-cpu")

ATTENTION = "mtp.layers.0.self_attn"


def stored(config, num_layers=1, form=0):
    """Names and shapes of the layout; `form` picks among forms where there are two."""
    return {
        module.tensor_name("weight"): module.shape
        for choice in head_layout(read_head_config(config), num_layers)
        for module in choice.forms[min(form, len(choice.forms) - 1)]
    }


def shapes(tensors):
    return {name: shape for name, (_, shape) in tensors.items()}


class TestHeadLayout(CustomTestCase):
    def test_the_layout_is_that_of_published_heads(self):
        self.assertEqual(stored(DENSE_CONFIG), shapes(dense_head()))
        self.assertEqual(stored(DENSE_CONFIG, num_layers=2), shapes(dense_head(2)))
        self.assertEqual(stored(MOE_CONFIG), shapes(moe_head()))
        self.assertEqual(stored(LARGE_CONFIG), shapes(large_head()))
        self.assertEqual(len(large_head()), 1553)

    def test_a_head_with_packed_experts(self):
        found, expected = stored(MOE_CONFIG, form=1), shapes(moe_head(packed=True))
        experts = {n: s for n, s in found.items() if ".experts." in n}
        self.assertEqual(
            experts, {n: s for n, s in expected.items() if ".experts." in n}
        )

    def test_fused_projections(self):
        fused = stored(DENSE_CONFIG, form=1)
        self.assertEqual(fused[f"{ATTENTION}.qkv_proj.weight"], (256 + 64 + 64, 128))
        self.assertEqual(fused["mtp.layers.0.mlp.gate_up_proj.weight"], (512, 128))

    def test_without_output_gate_the_query_is_half_as_wide(self):
        config = with_text(DENSE_CONFIG, attn_output_gate=False)
        self.assertEqual(stored(config)[f"{ATTENTION}.q_proj.weight"], (128, 128))

    def test_without_shared_expert_nothing_of_it_is_expected(self):
        config = with_text(MOE_CONFIG, shared_expert_intermediate_size=0)
        self.assertFalse([name for name in stored(config) if "shared_expert" in name])

    def test_a_dedicated_embedding_is_expected_where_configured(self):
        config = with_text(DENSE_CONFIG, mtp_use_dedicated_embeddings=True)
        self.assertEqual(stored(config)["mtp.embed_tokens.weight"], (512, 128))

    def test_a_dense_config_with_inherited_expert_counts_stays_dense(self):
        config = read_head_config(with_text(DENSE_CONFIG, num_experts=512))
        self.assertEqual(config.mlp, DenseMLP(256))

    def test_a_flat_text_config_is_read_like_a_nested_one(self):
        flat = {
            **MOE_CONFIG["text_config"],
            "architectures": ["Qwen3_5MoeForCausalLM"],
            "tie_word_embeddings": True,
        }
        config = read_head_config(flat)
        self.assertEqual(config.mlp, SparseMLP(4, 2, 64, 96))
        self.assertTrue(config.tie_word_embeddings)

    def test_a_transformers_config_reads_like_its_json(self):
        loaded = Qwen3_5MoeConfig(**MOE_CONFIG)
        self.assertEqual(read_head_config(loaded), read_head_config(MOE_CONFIG))

    def test_a_missing_size_is_an_error_that_names_the_key(self):
        for key in ("hidden_size", "num_attention_heads", "vocab_size"):
            with self.assertRaisesRegex(CheckpointError, key):
                read_head_config(with_text(DENSE_CONFIG, **{key: None}))

    def test_the_number_of_layers_must_be_a_whole_number(self):
        for value in ("1", 1.5, -1, True):
            with self.assertRaisesRegex(CheckpointError, "mtp_num_hidden_layers"):
                config = with_text(DENSE_CONFIG, mtp_num_hidden_layers=value)
                read_head_config(config)

    def test_a_malformed_config_is_an_error_that_names_a_key(self):
        malformed = (None, -2, -1, 0, 1, "", "2", [], [1])
        for key in sorted(MOE_CONFIG["text_config"]):
            for value in malformed:
                with self.subTest(key=key, value=value):
                    try:
                        read_head_config(with_text(MOE_CONFIG, **{key: value}))
                    except CheckpointError as error:
                        named = f'"{key}"' in str(error) or key == "model_type"
                        self.assertTrue(named, error)


if __name__ == "__main__":
    unittest.main()
