"""Global and shared memory that know which of their bytes may be read.

Addresses are arrays [C, T]: one for each thread of each block of a batch. An access of
16 bytes or fewer must be aligned to its width, as on the device.
"""

from __future__ import annotations

import numpy as np
import torch

Array = np.ndarray

GUARD_BYTES = 256
GLOBAL_BASE = 1 << 32
UNMAPPED, MAPPED, READABLE = 0, 1, 3


class MemoryFault(RuntimeError):
    """An access that the device would not survive, or whose result is undefined."""


def as_words(memory: Array, width: int) -> Array:
    """Bytes as [words, width] uint8, for gathers of ``width`` bytes."""
    return memory.reshape(-1, width)


def carry(flags: Array, index: Array, width: int, flag: int) -> Array:
    """bool, like ``index``: whether all ``width`` bytes of a word carry ``flag``."""
    kind = np.dtype(f"u{min(width, 8)}")
    pattern = np.full(8, flag, np.uint8).view(kind)[0]
    words = flags.view(kind)
    if width <= 8:
        return words[index] == pattern
    return (words.reshape(-1, width // 8)[index] == pattern).all(-1)


class GlobalMemory:
    """The tensors of a launch, apart from each other by bytes that nobody may touch."""

    def __init__(self) -> None:
        self.tensors: list[tuple[int, int, torch.Tensor]] = []
        self._size = GUARD_BYTES
        self.data = np.zeros(0, np.uint8)
        self.flags = np.zeros(0, np.uint8)
        self._readable: list[bool] = []
        self._addresses: dict[tuple[int, int], int] = {}

    def add(self, tensor: torch.Tensor, readable: bool = True) -> int:
        """Map ``tensor`` and return its address; not ``readable`` until written."""
        storage = tensor.untyped_storage()
        begin = int(tensor.storage_offset()) * tensor.element_size()
        key = (storage.data_ptr(), begin)
        if key in self._addresses:
            return self._addresses[key]
        offset = self._size
        extent = int(storage.nbytes()) - key[1]
        whole_storage = torch.empty(0, dtype=torch.uint8).set_(storage)[key[1] :]
        self.tensors.append((offset, extent, whole_storage))
        self._readable.append(readable)
        self._size += -(-(extent + GUARD_BYTES) // 256) * 256
        self._addresses[key] = GLOBAL_BASE + offset
        return self._addresses[key]

    def load_tensors(self) -> None:
        """Take the bytes of all tensors; call once, after the last ``add``."""
        self.data = np.zeros(self._size, np.uint8)
        self.flags = np.zeros(self._size, np.uint8)
        for (offset, extent, tensor), readable in zip(
            self.tensors, self._readable, strict=True
        ):
            self.data[offset : offset + extent] = tensor.numpy()
            self.flags[offset : offset + extent] = READABLE if readable else MAPPED

    def store_tensors(self) -> None:
        for offset, extent, tensor in self.tensors:
            tensor.numpy()[:] = self.data[offset : offset + extent]

    def unwritten(self, tensor: torch.Tensor) -> int:
        """How many bytes of a tensor nobody has written or could read."""
        address = self.add(tensor) - GLOBAL_BASE
        extent = tensor.numel() * tensor.element_size()
        return int((self.flags[address : address + extent] != READABLE).sum())

    def _index(self, addresses: Array, width: int, what: str) -> Array:
        offsets = addresses.view(np.int64) - GLOBAL_BASE
        if ((offsets < 0) | (offsets + width > self.data.size)).any():
            raise MemoryFault(f"{what}: global address far outside of every tensor")
        if (offsets % width).any():
            raise MemoryFault(f"{what}: global address not aligned to {width}")
        return offsets // width

    def load(
        self, addresses: Array, width: int, active: Array | None, what: str
    ) -> Array:
        """uint8 [C, T, width]; threads that are not active get zeros."""
        shape = addresses.shape
        if active is not None:
            addresses = addresses[active]
        index = self._index(addresses, width, what)
        readable = carry(self.flags, index, width, READABLE)
        if not readable.all():
            raise MemoryFault(self._explain(what, "read", index, readable, width))
        values = as_words(self.data, width)[index]
        if active is None:
            return values
        result = np.zeros((*shape, width), np.uint8)
        result[active] = values
        return result

    def store(
        self, addresses: Array, values: Array, active: Array | None, what: str
    ) -> None:
        width = values.shape[-1]
        if active is not None:
            addresses, values = addresses[active], values[active]
        index = self._index(addresses, width, what)
        flags = as_words(self.flags, width)[index]
        if (flags == UNMAPPED).any():
            mapped = (flags != UNMAPPED).all(-1)
            raise MemoryFault(self._explain(what, "write", index, mapped, width))
        as_words(self.data, width)[index] = values
        as_words(self.flags, width)[index] = READABLE

    def _explain(
        self, what: str, action: str, index: Array, good: Array, width: int
    ) -> str:
        bad = int(index.reshape(-1)[~good.reshape(-1)][0]) * width
        for number, (offset, extent, _) in enumerate(self.tensors):
            if offset - GUARD_BYTES <= bad < offset + extent + GUARD_BYTES:
                where = f"byte {bad - offset} of tensor {number} with {extent} bytes"
                break
        else:
            where = "no tensor"
        kind = "never written" if self.flags[bad] == MAPPED else "out of bounds"
        return f"{what}: global {action} {kind}: {where}"


class SharedMemory:
    """Shared memory of C blocks: bytes, which are written, and who touched them.

    A granule is the width of the narrowest store. Between two barriers (an epoch) a
    granule that one warp writes may not be read or written by another: that is a race.
    Tags are epoch * 64 + warp; MANY stands for more than one reader.
    """

    MANY = 63

    def __init__(self, blocks: int, size: int, granule: int, check_races: bool) -> None:
        self.blocks = blocks
        self.size = -(-max(size, 16) // 16) * 16
        self.granule = granule
        self.check_races = check_races
        self.data = np.zeros(blocks * self.size, np.uint8)
        self.written = np.zeros(blocks * self.size, np.uint8)
        granules = blocks * self.size // granule
        self.write_tags = np.zeros(granules, np.int32)
        self.read_tags = np.zeros(granules, np.int32)
        self.epoch = 1

    def select(self, chosen: Array) -> SharedMemory:
        """The memory of some of the blocks."""
        part = SharedMemory(len(chosen), self.size, self.granule, self.check_races)
        for name in ("data", "written", "write_tags", "read_tags"):
            table = getattr(self, name).reshape(self.blocks, -1)[chosen]
            setattr(part, name, np.ascontiguousarray(table).reshape(-1))
        part.epoch = self.epoch
        return part

    def barrier(self) -> None:
        self.epoch += 1

    def _index(
        self, addresses: Array, width: int, active: Array | None, what: str
    ) -> tuple[Array, Array]:
        """(word index, tag of the warp) of the active accesses, both 1-D."""
        threads = addresses.shape[1]
        offsets = addresses.astype(np.int64)
        bad = (offsets < 0) | (offsets + width > self.size)
        if bad.any() and (active is None or (bad & active).any()):
            raise MemoryFault(f"{what}: shared address out of {self.size} bytes")
        block = np.arange(self.blocks, dtype=np.int64)[:, None] * self.size
        tags = self.epoch * 64 + np.arange(threads, dtype=np.int32)[None, :] // 32
        tags = np.broadcast_to(tags, (self.blocks, threads))
        flat = offsets + block
        if active is None:
            flat, tags = flat.reshape(-1), tags.reshape(-1)
        else:
            active = np.broadcast_to(active, flat.shape)
            flat, tags = flat[active], tags[active]
        if (flat % width).any():
            raise MemoryFault(f"{what}: shared address not aligned to {width}")
        return flat // width, tags

    def _granules(self, index: Array, width: int) -> Array:
        """Granules of each access, [accesses, granules of one]."""
        count = max(width // self.granule, 1)
        first = index * width // self.granule
        return first[:, None] + np.arange(count)

    def load(
        self, addresses: Array, width: int, active: Array | None, what: str
    ) -> Array:
        """uint8 [C, T, width]; threads that are not active get zeros."""
        index, tags = self._index(addresses, width, active, what)
        if not carry(self.written, index, width, 1).all():
            raise MemoryFault(f"{what}: shared bytes read before they are written")
        if self.check_races:
            self._note_read(self._granules(index, width), tags[:, None], what)
        values = as_words(self.data, width)[index]
        shape = (self.blocks, addresses.shape[1], width)
        if active is None:
            return values.reshape(shape)
        result = np.zeros(shape, np.uint8)
        result[np.broadcast_to(active, shape[:2])] = values
        return result

    def store(
        self, addresses: Array, values: Array, active: Array | None, what: str
    ) -> None:
        width = values.shape[-1]
        index, tags = self._index(addresses, width, active, what)
        values = np.broadcast_to(values, (self.blocks, addresses.shape[1], width))
        if active is None:
            values = values.reshape(-1, width)
        else:
            values = values[np.broadcast_to(active, values.shape[:2])]
        if self.check_races:
            changed = (as_words(self.data, width)[index] != values).any(-1)
            self._note_write(
                self._granules(index, width), tags[:, None], changed[:, None], what
            )
        words = as_words(self.data, width)
        words[index] = values
        as_words(self.written, width)[index] = 1
        if self.check_races and (words[index] != values).any():
            raise MemoryFault(f"race: {what} writes two values to the same bytes")

    def forget(self, addresses: Array, width: int, active: Array | None) -> None:
        """Mark bytes as unwritten: a copy into them is under way."""
        index, _ = self._index(addresses, width, active, "cp.async")
        as_words(self.written, width)[index] = 0

    def _note_read(self, granules: Array, tags: Array, what: str) -> None:
        now = self.epoch * 64
        writer = self.write_tags[granules]
        if ((writer >= now) & (writer != tags)).any():
            raise MemoryFault(f"race: {what} reads what another warp just wrote")
        reader = self.read_tags[granules]
        mine = np.where((reader >= now) & (reader != tags), now + self.MANY, tags)
        self.read_tags[granules] = mine
        # Warps that read the same granule in this very instruction overwrote each
        # other.
        lost = self.read_tags[granules] != mine
        if lost.any():
            self.read_tags[granules[lost]] = now + self.MANY

    def _note_write(
        self, granules: Array, tags: Array, changed: Array, what: str
    ) -> None:
        now = self.epoch * 64
        reader = self.read_tags[granules]
        if ((reader >= now) & (reader != tags)).any():
            raise MemoryFault(f"race: {what} overwrites what another warp just read")
        writer = self.write_tags[granules]
        if ((writer >= now) & (writer != tags) & changed).any():
            raise MemoryFault(f"race: {what} overwrites what another warp just wrote")
        self.write_tags[granules] = np.broadcast_to(tags, granules.shape)
