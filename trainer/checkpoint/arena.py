"""Holds a copy of the tensors in host memory, so that training continues while a save writes them.

The memory is one block of exactly the bytes that this rank writes. On a CPU run the block stays
empty while the weights do not change: the writing thread takes the weights piece by piece through
one small buffer, so that a rank needs little memory in addition to its shard. If training changes
the weights before all pieces are taken, `let_weights_change` first copies the rest into the block.

A GPU copies the tensors on a stream of its own into page-locked memory, at the same time as the
passes that only read the weights. On the host only the writing thread waits for that copy.
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

KEPT_BYTES = 256 << 20  # A block of at most this size keeps its memory between two saves.
PIECE_BYTES = 8 << 20  # This is a multiple of the page size.
_POLL_SECONDS = 0.002


class Arena:
    """Host memory for one copy of this rank's tensors. Each save uses the same memory."""

    def __init__(self, size_bytes: int, device: torch.device, kept_bytes: int = KEPT_BYTES):
        """Reserve the memory.

        Args:
            size_bytes: The size of the copy.
            device: The device of the tensors. No other device is ever used.
            kept_bytes: On a CPU, larger memory is given back to the system while it is written.
        """
        self._size, self._device = size_bytes, device
        self._on_gpu = device.type == "cuda"
        self._keeps_memory = self._on_gpu or size_bytes <= kept_bytes
        # The default would be shared memory, of which madvise gives nothing back to the system.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = mmap.mmap(-1, max(size_bytes, 1), flags=flags)
        self._bytes: np.ndarray[Any, Any] = np.frombuffer(self._memory, np.uint8)
        self._piece: np.ndarray[Any, Any] = np.zeros(min(PIECE_BYTES, size_bytes), np.uint8)
        self._lock = threading.Lock()
        self._sources: list[tuple[int, np.ndarray[Any, Any]]] = []  # to copy, last first
        self._taken = 0  # Bytes before this one are copied.
        self._stream: Any = None  # a torch.cuda.Stream, whose types are incomplete
        self._copied: Any = None  # a torch.cuda.Event
        self._is_waited_for = True  # whether the training stream waits for that event
        if self._on_gpu:
            address = self._bytes.ctypes.data
            _lock_pages(address, len(self._bytes))
            # This must run before the memory is freed: a new owner of the addresses could not
            # lock them.
            unlock = weakref.finalize(self, _unlock_pages, self._memory, address)
            unlock.atexit = False  # The end of the process unlocks, and CUDA may end before it.
            self._stream = torch.cuda.Stream(device)

    def begin(self, sources: Sequence[tuple[int, torch.Tensor]]) -> None:
        """Begin to copy tensors. `sources` has each after its first byte in the copy, ascending.

        Call this in the training thread. The tensors must not change until `let_weights_change`.
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
            self._is_waited_for = False
            return
        with self._lock:
            flat = [(begin, _as_bytes(tensor).numpy()) for begin, tensor in sources]
            self._sources, self._taken = flat[::-1], 0

    @property
    def is_filled(self) -> bool:
        """Whether the weights may change without a call of `let_weights_change`."""
        return not self._sources and self._is_waited_for

    def let_weights_change(self) -> None:
        """Make the copy independent of the weights, which may change after this call.

        On a CPU this copies the bytes that are not written yet. On a GPU the training stream is
        told to wait for the copy, and the host continues at once.
        """
        if not self._is_waited_for:
            torch.cuda.current_stream(self._device).wait_event(self._copied)
            self._is_waited_for = True
        with self._lock:
            self._take(self._size, self._bytes, 0)

    def pieces(self, begin: int, end: int) -> Iterator[memoryview]:
        """Yield the bytes from `begin` to `end` in pieces.

        A piece is valid until the next one is requested. Only the writing thread may call this, and
        only once for each byte.
        """
        if self._copied is not None:
            # A thread begins on GPU 0. The question below may make a context there, which takes
            # about 500 MB of that GPU's memory (seen in meta-pytorch/torchcomms, pull request 777).
            torch.cuda.set_device(self._device)
            # `synchronize` is not used: it keeps a core busy, and Python's lock too if torch does
            # not release it. Then the training thread could not start the next pass.
            while not self._copied.query():
                time.sleep(_POLL_SECONDS)
        for here in range(begin, end, PIECE_BYTES):
            stop = min(here + PIECE_BYTES, end)
            with self._lock:
                is_direct = bool(self._sources)
                if is_direct:
                    self._piece.fill(0)  # A few bytes between two tensors are unused.
                    self._take(stop, self._piece, here)
            block = self._piece.data if is_direct else memoryview(self._memory)[here:]
            yield block[: stop - here]
            if not is_direct and not self._keeps_memory:
                self._give_back(here, stop)

    def _take(self, end: int, into: np.ndarray[Any, Any], into_begin: int) -> None:
        """Copy the sources up to the byte `end`. The first byte of `into` is byte `into_begin`.

        The caller holds the lock, because the writing thread and the training thread both call it.
        """
        while self._sources:
            begin, source = self._sources[-1]
            here, stop = max(self._taken, begin), min(end, begin + len(source))
            if here < stop:
                # numpy copies here: torch would use threads that wait for work by spinning.
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
    """Lock host memory, so that a GPU can copy into it without the CPU.

    `pin_memory` is not used, because its allocator rounds up to a power of two: 18 GB would become
    32 GB.
    """
    cudart: Any = torch.cuda.cudart()
    code = cudart.cudaHostRegister(address, size_bytes, 0)
    if int(code) != 0:
        raise MemoryError(
            f"{size_bytes} bytes of host memory cannot be page-locked: CUDA error {int(code)}"
        )


def _unlock_pages(memory: mmap.mmap, address: int) -> None:
    """Unlock the memory at `address`.

    It is the content of `memory`, which is an argument so that it exists until this call.
    """
    cudart: Any = torch.cuda.cudart()
    code = int(cudart.cudaHostUnregister(address))
    assert code == 0, f"CUDA error {code} when {len(memory)} bytes were to be unlocked"
