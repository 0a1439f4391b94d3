"""The committed checkpoint: its size, its tokenizer, its logits, its drafts."""

import json
import statistics
import sysconfig
from pathlib import Path

import pytest
import torch
from tiny_qwen.checkpoint import Checkpoint
from tiny_qwen.data import read_sources
from tiny_qwen.decoding import continue_greedily
from tiny_qwen.evaluation import encode, load_tokenizer, simulate_prompts
from tiny_qwen.loading import load_model
from transformers import AutoModelForImageTextToText, AutoProcessor, AutoTokenizer

PROMPTS = json.loads(
    (Path(__file__).parent / "held_out_prompts.json").read_text("utf-8")
)


@pytest.fixture(scope="module")
def model(trained):
    return load_model(trained)


@pytest.fixture(scope="module")
def tokenizer(trained):
    return load_tokenizer(trained)


@pytest.fixture(scope="module")
def reference(trained):
    return AutoModelForImageTextToText.from_pretrained(trained, dtype=torch.float32)


def test_checkpoint_is_at_most_8_mb(trained):
    assert sum(file.stat().st_size for file in trained.iterdir()) <= 8_000_000


def test_weights_are_bfloat16(trained):
    dtypes = {tensor.dtype for tensor in Checkpoint.read(trained).tensors.values()}
    assert dtypes == {torch.bfloat16}


def test_logits_equal_those_of_transformers(model, tokenizer, reference):
    ids = encode(tokenizer, "\n".join(PROMPTS[:8]))[None]
    with torch.no_grad():
        expected = reference(input_ids=ids).logits
        logits = model.logits(model.hidden_states(ids)[0])
    torch.testing.assert_close(logits, expected, atol=2e-4, rtol=0)


def test_greedy_tokens_equal_those_of_transformers(model, tokenizer, reference):
    prompts = [encode(tokenizer, prompt) for prompt in PROMPTS[:3]]
    for prompt, text in zip(
        prompts, continue_greedily(model, prompts, 16), strict=True
    ):
        expected = reference.generate(prompt[None], do_sample=False, max_new_tokens=16)
        assert text.equal(expected[0])


def test_caches_give_the_logits_of_the_whole_text(model, tokenizer):
    ids = encode(tokenizer, "\n".join(PROMPTS[:4]))[None]
    first, second = ids.split([70, ids.shape[1] - 70], 1)
    whole, _ = model.hidden_states(ids)
    start, past = model.hidden_states(first)
    rest, _ = model.hidden_states(second, past)
    torch.testing.assert_close(torch.cat([start, rest], 1), whole, atol=1e-4, rtol=0)


@pytest.mark.parametrize("prompt", PROMPTS[::12])
def test_tokenizer_of_transformers_gives_our_tokens_and_back(
    trained, tokenizer, prompt
):
    theirs = AutoTokenizer.from_pretrained(trained)
    tokens = theirs(prompt)["input_ids"]
    assert tokens == encode(tokenizer, prompt).tolist()
    assert theirs.decode(tokens) == prompt


def test_tokenizer_covers_every_byte(tokenizer):
    text = "naïve 日本語 \t\x00 🐍"
    assert tokenizer.decode(encode(tokenizer, text).tolist()) == text


def test_chat_template_puts_an_image_where_it_was(trained):
    processor = AutoProcessor.from_pretrained(trained)
    content = [{"type": "image"}, {"type": "text", "text": "What is it?"}]
    messages = [
        {"role": "user", "content": content},
        {"role": "assistant", "content": "A snake."},
    ]
    assert processor.apply_chat_template(messages, tokenize=False) == (
        "user:<|vision_start|><|image_pad|><|vision_end|>What is it?\n"
        "assistant:A snake.\n"
    )


def test_held_out_prompts_are_many_short_and_not_in_the_training_text(tokenizer):
    lengths = [len(encode(tokenizer, prompt)) for prompt in PROMPTS]
    assert len(set(PROMPTS)) >= 60
    assert min(lengths) >= 5
    assert max(lengths) <= 60
    sources = read_sources(Path(sysconfig.get_paths()["stdlib"])).train
    assert [p for p in PROMPTS if any(p in text for text in sources)] == []


def test_accept_length_on_held_out_prompts_is_above_2_7(model, tokenizer):
    prompts = [encode(tokenizer, prompt) for prompt in PROMPTS]
    results = simulate_prompts(model, prompts, new_tokens=24, steps=3)
    assert statistics.mean(result.accept_length for result in results) > 2.7
