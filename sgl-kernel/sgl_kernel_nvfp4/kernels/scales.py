"""Where a block scale lies in memory: the 128x4 layout.

Scales come in tiles of 512 bytes, 128 rows by 4 blocks of 16 elements. In a tile, row r
takes the four bytes at 16 * (r % 32) + 4 * (r // 32). cuBLAS, FlashInfer and SGLang use
the same layout; they call it swizzled or interleaved.
"""

import triton


@triton.jit
def scale_offsets(rows, blocks, k_tiles):
    """Byte offsets [R, B] of the scales of ``rows`` [R] and ``blocks`` [B] along K.

    k_tiles: tiles in one row of tiles, ceil(K / 64).
    """
    row = rows[:, None]
    block = blocks[None, :]
    tile = (row // 128) * k_tiles + block // 4
    return tile * 512 + (row % 32) * 16 + ((row % 128) // 32) * 4 + block % 4


@triton.jit
def scale_step(k):
    """Bytes from the scales at K = 0 to those at K = k, a multiple of 64."""
    return (k // 64) * 512
