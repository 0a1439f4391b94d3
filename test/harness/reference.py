"""The independent reference: transformers on the same checkpoint, in this process."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from PIL import Image
from torch import Tensor
from transformers import AutoModelForImageTextToText, AutoProcessor, AutoTokenizer

TokenIds = tuple[int, ...]


class Reference:
    """transformers' model of a checkpoint folder, in float32.

    Answers are kept: tests ask for the same prompts with different servers.
    """

    def __init__(self, folder: str):
        self.folder = folder
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForImageTextToText.from_pretrained(
            folder, dtype=torch.float32
        ).eval()
        self._greedy: dict[tuple[TokenIds, int], TokenIds] = {}

    def greedy(self, prompt: Sequence[int], new_tokens: int) -> TokenIds:
        """Return the ``new_tokens`` most likely tokens after ``prompt``."""
        key = (tuple(prompt), new_tokens)
        if key not in self._greedy:
            ids = torch.tensor([prompt])
            self._greedy[key] = self._generate(
                new_tokens, input_ids=ids, attention_mask=torch.ones_like(ids)
            )
        return self._greedy[key]

    def greedy_with_image(
        self, prompt: str, image: Image.Image, new_tokens: int
    ) -> TokenIds:
        """The same for a text that has the vision tokens of one image."""
        processor = AutoProcessor.from_pretrained(self.folder)
        inputs = processor(text=[prompt], images=[image], return_tensors="pt")
        return self._generate(new_tokens, **inputs)

    @torch.inference_mode()
    def next_token_probabilities(self, prompts: Tensor) -> Tensor:
        """Return the distribution of the next token at temperature 1.

        Args:
            prompts: token ids [batch, length].

        Returns:
            probabilities [batch, vocabulary] in float64.
        """
        logits = self.model(input_ids=prompts, logits_to_keep=1).logits[:, -1]
        return logits.double().softmax(-1)

    @torch.inference_mode()
    def logprobs(self, tokens: Sequence[int]) -> list[float]:
        """Return the log-probability of each token after the first."""
        logits = self.model(input_ids=torch.tensor([tokens])).logits[0, :-1]
        following = torch.tensor(tokens[1:])[:, None]
        return logits.double().log_softmax(-1).gather(-1, following)[:, 0].tolist()

    @torch.inference_mode()
    def _generate(self, new_tokens: int, **inputs: Tensor) -> TokenIds:
        output = self.model.generate(
            **inputs,
            do_sample=False,
            max_new_tokens=new_tokens,
            eos_token_id=None,
            pad_token_id=0,
        )
        return tuple(output[0, inputs["input_ids"].shape[1] :].tolist())
