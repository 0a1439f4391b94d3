"""A tiny Qwen3.5 with an MTP head: its training and the variants made from it."""
