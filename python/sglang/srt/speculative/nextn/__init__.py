"""Native MTP speculative decoding: the checkpoint's own head, in the target's process.

Importing this package imports none of its modules, so that the ones which only read
checkpoints stay cheap to use.
"""
