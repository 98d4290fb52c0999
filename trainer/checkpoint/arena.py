"""The memory through which a checkpoint goes, so that training can go on while it is written.

It is one block of exactly the bytes that this rank writes. On a CPU run the block stays empty as
long as the weights do not change: the thread that writes takes them piece by piece through one
small buffer, so that a rank needs little memory beside its shard. Where training wants to change
the weights earlier, `let_weights_change` copies the rest into the block at once.

A GPU copies on a stream of its own into page-locked memory, beside the passes that only read the
weights; the host never waits for that, except in the thread that writes.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
from __future__ import annotations

import mmap
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

KEPT_BYTES = 256 << 20  # a block of at most so many bytes keeps its memory between two saves
PIECE_BYTES = 8 << 20  # a multiple of the size of a page
_POLL_SECONDS = 0.002


class Arena:
    """Host memory for one copy of this rank's tensors; used again for the next one."""

    def __init__(self, size_bytes: int, device: torch.device, kept_bytes: int = KEPT_BYTES):
        """`device`: where the tensors are; no other one is ever touched."""
        self._size, self._device = size_bytes, device
        self._on_gpu = device.type == "cuda"
        self._keeps_memory = self._on_gpu or size_bytes <= kept_bytes
        # Private: of shared memory, as it would be by default, the system takes nothing back.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = mmap.mmap(-1, max(size_bytes, 1), flags=flags)
        self._bytes: np.ndarray[Any, Any] = np.frombuffer(self._memory, np.uint8)
        self._piece: np.ndarray[Any, Any] = np.zeros(min(PIECE_BYTES, size_bytes), np.uint8)
        self._lock = threading.Lock()
        self._sources: list[tuple[int, np.ndarray[Any, Any]]] = []  # not taken yet, last first
        self._taken = 0  # up to which byte they are
        self._stream: Any = None  # torch.cuda.Stream; its types are incomplete
        self._copied: Any = None  # torch.cuda.Event
        if self._on_gpu:
            address = self._bytes.ctypes.data
            _lock_pages(address, len(self._bytes))
            # Before the memory is freed: whoever gets the same addresses could not lock them.
            unlock = weakref.finalize(self, _unlock_pages, self._memory, address)
            unlock.atexit = False  # the end of the process does it, and CUDA may have ended by then
            self._stream = torch.cuda.Stream(device)

    def begin(self, sources: Sequence[tuple[int, torch.Tensor]]) -> None:
        """Take a copy of these tensors, each with its first byte here, in ascending order.

        Call it in the thread that trains. The tensors must not change until `let_weights_change`.
        """
        if self._on_gpu:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
            with torch.cuda.stream(self._stream):
                for begin, tensor in sources:
                    raw = _as_bytes(tensor)
                    here = self._bytes[begin : begin + len(raw)]
                    torch.from_numpy(here).copy_(raw, non_blocking=True)
                self._copied = torch.cuda.Event()
                self._copied.record(self._stream)
            return
        with self._lock:
            flat = [(begin, _as_bytes(tensor).numpy()) for begin, tensor in sources]
            self._sources, self._taken = flat[::-1], 0

    @property
    def is_filled(self) -> bool:
        """Whether nothing has to be done before the weights may change."""
        return not self._sources and self._copied is None

    def let_weights_change(self) -> None:
        """What training does from now on changes nothing in the copy.

        On a CPU this copies what is not written yet; a GPU is told to wait by itself, and the host
        goes on.
        """
        if self._copied is not None:
            torch.cuda.current_stream(self._device).wait_event(self._copied)
        with self._lock:
            self._take(self._size, self._bytes, 0)

    def pieces(self, begin: int, end: int) -> Iterator[memoryview]:
        """The bytes from `begin` to `end` in pieces, each good until the next one is asked for.

        For the thread that writes. Each byte can be had once.
        """
        if self._copied is not None:
            # Not by `synchronize`, which keeps a core busy, and Python's lock too where torch does
            # not give it up: then the thread that trains could not start the next pass.
            while not self._copied.query():
                time.sleep(_POLL_SECONDS)
        for here in range(begin, end, PIECE_BYTES):
            stop = min(here + PIECE_BYTES, end)
            with self._lock:
                is_direct = bool(self._sources)
                if is_direct:
                    self._piece.fill(0)  # between two tensors there may be a few unused bytes
                    self._take(stop, self._piece, here)
            block = self._piece.data if is_direct else memoryview(self._memory)[here:]
            yield block[: stop - here]
            if not is_direct and not self._keeps_memory:
                self._give_back(here, stop)

    def _take(self, end: int, into: np.ndarray[Any, Any], into_begin: int) -> None:
        """Copy the sources up to the byte `end`; the first byte of `into` is byte `into_begin`.

        Whoever calls it holds the lock: the thread that writes and the one that trains may both.
        """
        while self._sources:
            begin, source = self._sources[-1]
            here, stop = max(self._taken, begin), min(end, begin + len(source))
            if here < stop:
                # By numpy: torch would share this with threads that wait for work by spinning.
                target = into[here - into_begin : stop - into_begin]
                np.copyto(target, source[here - begin : stop - begin])
            if stop < begin + len(source):
                break
            self._sources.pop()
        self._taken = end

    def _give_back(self, begin: int, end: int) -> None:
        first = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
        last = end // mmap.PAGESIZE * mmap.PAGESIZE
        if first < last:
            self._memory.madvise(mmap.MADV_DONTNEED, first, last - first)


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _lock_pages(address: int, size_bytes: int) -> None:
    """Make host memory such that a GPU copies into it by itself.

    Not by `pin_memory`, whose allocator rounds up to a power of two: 18 GB would become 32.
    """
    cudart: Any = torch.cuda.cudart()
    code = cudart.cudaHostRegister(address, size_bytes, 0)
    if int(code) != 0:
        raise MemoryError(
            f"{size_bytes} bytes of host memory cannot be page-locked: CUDA error {int(code)}"
        )


def _unlock_pages(memory: mmap.mmap, address: int) -> None:
    """`memory` is what lies at `address`: it exists as long as this function can be called."""
    cudart: Any = torch.cuda.cudart()
    code = int(cudart.cudaHostUnregister(address))
    assert code == 0, f"CUDA error {code} when {len(memory)} bytes were to be unlocked"
