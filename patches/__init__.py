"""Every change that the fork makes to upstream files, as named edits."""
