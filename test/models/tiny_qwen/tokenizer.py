"""A byte-level BPE tokenizer that loads as Qwen's.

transformers 5 ignores the pre-tokenizer in tokenizer.json for this model type and puts
that of its Qwen class in its place, so training must use the same one.
"""

import json
from collections.abc import Iterable

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
)
from tokenizers.trainers import BpeTrainer

UNUSED, END_OF_TEXT = "<0>", "<1>"
END_OF_TEXT_ID = 1
# The processor of this model type looks these four up by their spelling.
IMAGE_PAD, VIDEO_PAD = "<|image_pad|>", "<|video_pad|>"
VISION_START, VISION_END = "<|vision_start|>", "<|vision_end|>"
VISION_TOKENS = (IMAGE_PAD, VIDEO_PAD, VISION_START, VISION_END)

WORD_PATTERN = "|".join(
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
        r"\p{N}",
        r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Ids: unused, end of text, 256 bytes, merges, filler, the four vision tokens."""
    bytes_ = byte_characters()
    learned = assemble(models.BPE())
    learned.train_from_iterator(
        texts,
        BpeTrainer(
            vocab_size=vocab_size - 2 - len(VISION_TOKENS),
            initial_alphabet=bytes_,
            show_progress=False,
        ),
    )
    merges = [tuple(pair) for pair in json.loads(learned.to_str())["model"]["merges"]]
    words = [UNUSED, END_OF_TEXT, *bytes_, *("".join(pair) for pair in merges)]
    words = list(dict.fromkeys(words))
    filler = range(len(words), vocab_size - len(VISION_TOKENS))
    words += [*(f"<{number}>" for number in filler), *VISION_TOKENS]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = assemble(models.BPE(vocab=vocabulary, merges=merges))
    special = (UNUSED, END_OF_TEXT, *VISION_TOKENS)
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in special])
    return tokenizer


def assemble(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORD_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def byte_characters() -> list[str]:
    """The printable character of each byte, in byte order, as in byte-level BPE."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    rest = iter(range(256, 512))
    return [chr(byte if byte in printable else next(rest)) for byte in range(256)]
