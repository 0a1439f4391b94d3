"""Global and shared memory that know which of their bytes may be read.

Addresses are arrays [C, T]: one for each thread of each block of a batch. An access of
16 bytes or fewer must be aligned to its width, as on the device.
"""

from __future__ import annotations

import numpy as np
import torch

from nvfp4_proof.emulator.words import carry, differ, fill, gather, scatter, set_rows

Array = np.ndarray

GUARD_BYTES = 256
GLOBAL_BASE = 1 << 32
UNMAPPED, MAPPED, READABLE = 0, 1, 3


class MemoryFault(RuntimeError):
    """An access that the device would not survive, or whose result is undefined."""


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
        offsets = addresses - np.uint64(GLOBAL_BASE)  # huge where it is below the base
        if offsets.size and offsets.max() > self.data.size - width:
            raise MemoryFault(f"{what}: global address far outside of every tensor")
        return _aligned(offsets, width, f"{what}: global")

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
        values = gather(self.data, index, width)
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
        index = self._index(addresses, width, what).reshape(-1)
        flags = gather(self.flags, index, width)
        if not flags.all():
            mapped = (flags != UNMAPPED).all(-1)
            raise MemoryFault(self._explain(what, "write", index, mapped, width))
        scatter(self.data, index, values.reshape(-1, width))
        fill(self.flags, index, width, READABLE)

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
        shape = self.blocks, addresses.shape[1]
        chosen = slice(None) if active is None else np.broadcast_to(active, shape)
        warps = np.arange(shape[1], dtype=np.int32) // 32
        tags = np.broadcast_to(self.epoch * 64 + warps, shape)[chosen].reshape(-1)
        first = np.arange(self.blocks, dtype=np.uint64)[:, None] * np.uint64(self.size)
        first = np.broadcast_to(first, shape)[chosen].reshape(-1)
        offsets = addresses[chosen].reshape(-1)
        if offsets.size and offsets.max() > self.size - width:
            raise MemoryFault(f"{what}: shared address out of {self.size} bytes")
        return _aligned(offsets + first, width, f"{what}: shared"), tags

    def _rows(self, tags: Array, index: Array, width: int) -> tuple[Array, Array]:
        """Tags as [rows, granules of one access], and the row of each access."""
        count = max(width // self.granule, 1)
        return tags.reshape(-1, count), index * width // (count * self.granule)

    def load(
        self, addresses: Array, width: int, active: Array | None, what: str
    ) -> Array:
        """uint8 [C, T, width]; threads that are not active get zeros."""
        index, tags = self._index(addresses, width, active, what)
        if not carry(self.written, index, width, 1).all():
            raise MemoryFault(f"{what}: shared bytes read before they are written")
        if self.check_races:
            self._note_read(index, width, tags[:, None], what)
        values = gather(self.data, index, width)
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
            changed = differ(self.data, index, values)
            self._note_write(index, width, tags[:, None], changed[:, None], what)
        scatter(self.data, index, values)
        fill(self.written, index, width, 1)
        if self.check_races and differ(self.data, index, values).any():
            raise MemoryFault(f"race: {what} writes two values to the same bytes")

    def forget(self, addresses: Array, width: int, active: Array | None) -> None:
        """Mark bytes as unwritten: a copy into them is under way."""
        index, _ = self._index(addresses, width, active, "cp.async")
        fill(self.written, index, width, 0)

    def _note_read(self, index: Array, width: int, tags: Array, what: str) -> None:
        now = self.epoch * 64
        writers, rows = self._rows(self.write_tags, index, width)
        if _others(writers.take(rows, axis=0), tags, now).any():
            raise MemoryFault(f"race: {what} reads what another warp just wrote")
        readers, rows = self._rows(self.read_tags, index, width)
        others = _others(readers.take(rows, axis=0), tags, now)
        mine = np.where(others, now + self.MANY, tags)
        set_rows(readers, rows, mine)
        # Warps that read the same granule in this very instruction overwrote each
        # other.
        lost = readers.take(rows, axis=0) != mine
        if lost.any():
            row, column = np.nonzero(lost)
            readers[rows[row], column] = now + self.MANY

    def _note_write(
        self, index: Array, width: int, tags: Array, changed: Array, what: str
    ) -> None:
        now = self.epoch * 64
        readers, rows = self._rows(self.read_tags, index, width)
        if _others(readers.take(rows, axis=0), tags, now).any():
            raise MemoryFault(f"race: {what} overwrites what another warp just read")
        writers, rows = self._rows(self.write_tags, index, width)
        others = _others(writers.take(rows, axis=0), tags, now)
        if (others & changed).any():
            raise MemoryFault(f"race: {what} overwrites what another warp just wrote")
        set_rows(writers, rows, tags)


def _others(found: Array, tags: Array, now: int) -> Array:
    """Which tags found are of this epoch and of another warp."""
    return (found >= now) & (found != tags)


def _aligned(offsets: Array, width: int, what: str) -> Array:
    """int64: the index of the word of ``width`` bytes at each offset in bytes."""
    if (offsets & np.uint64(width - 1)).any():
        raise MemoryFault(f"{what} address not aligned to {width}")
    return (offsets // np.uint64(width)).view(np.int64)
