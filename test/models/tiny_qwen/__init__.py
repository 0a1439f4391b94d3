"""A tiny Qwen3.5 with an MTP head: trained on any machine, and derived into variants."""
