"""Builds the fork wheel: upstream's pinned wheel, our patches, overlay and kernels."""
