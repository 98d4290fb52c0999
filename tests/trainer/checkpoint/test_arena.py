"""Copies of tensors in host memory. A stand-in that records all calls takes the part of the GPU."""

from __future__ import annotations

import mmap
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.lab import Lab, NoSignals, last_step
from trainer.checkpoint import save, store
from trainer.checkpoint.arena import PIECE_BYTES, Arena
from trainer.checkpoint.background_save import BackgroundSave
from trainer.parallel.device import choose_compute
from trainer.parallel.world import World
from trainer.train import train
from trainer.watch.beat import BEAT, Phase


def test_a_run_on_the_cpu_touches_no_gpu(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run on the CPU of a GPU machine makes no call of `torch.cuda` when it saves. Each such call
    would make a context of half a gigabyte on a GPU that is not the run's own.
    """
    run = lab.config(train__max_steps=12, checkpoint__interval=3)

    def refuse(*values: object, **named: object) -> None:
        raise AssertionError("a run on the CPU has called torch.cuda")

    def is_available() -> bool:
        """Return True to the trainer, as on a GPU machine. Torch itself needs the truth."""
        return str(sys._getframe(1).f_globals["__name__"]).startswith("trainer.")

    monkeypatch.setattr(torch.cuda, "is_available", is_available)
    for name in ("synchronize", "current_stream", "Stream", "Event", "init", "_lazy_init"):
        monkeypatch.setattr(torch.cuda, name, refuse)
    is_waited_for = threading.Event()
    write, wait = store.commit, BackgroundSave.wait

    def write_once_waited_for(*values: Any) -> None:
        assert is_waited_for.wait(60)
        is_waited_for.clear()
        write(*values)

    def wait_and_note(save: BackgroundSave, seconds: float | None = None) -> bool:
        if seconds:
            is_waited_for.set()
        return wait(save, seconds)

    monkeypatch.setattr(store, "commit", write_once_waited_for)
    monkeypatch.setattr(BackgroundSave, "wait", wait_and_note)
    train(run, World(), choose_compute(run.train, 0), NoSignals(), lambda: None)
    assert last_step(run) == 12


def test_page_locking_counts_as_saving(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank tells the entrypoint that it saves before it reserves the memory for that. For a large
    model on a GPU that takes longer than a step may take, and must not look like a hang.
    """
    phases, reserved = list[Phase](), list[Phase]()

    class NotedArena(Arena):
        def __init__(self, size_bytes: int, device: torch.device) -> None:
            reserved.append(phases[-1])
            super().__init__(size_bytes, device)

    monkeypatch.setattr(BEAT, "phase", phases.append)
    monkeypatch.setattr(save, "Arena", NotedArena)
    run = lab.config(train__max_steps=8, checkpoint__interval=4, log__interval=100)
    train(run, World(), choose_compute(run.train, 0), NoSignals(), lambda: None)
    assert reserved == [Phase.SAVE]


class RecordingGpu:
    """A stand-in for `torch.cuda` that records in order what is asked of it, and for which
    device.

    As with a real GPU, each thread begins on GPU 0. A question about an event makes a context on
    the GPU of the thread that asks, which a real GPU may do.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.locked: set[int] = set()
        self.contexts: set[torch.device] = set()
        gpu, thread = self, threading.local()

        def set_device(device: torch.device) -> None:
            thread.device = device

        class Stream:
            def __init__(self, device: object = None, name: str = "side"):
                gpu.calls.append(f"{name} stream of {device}")
                self.name = name

            def wait_stream(self, other: Stream) -> None:
                gpu.calls.append(f"{self.name} waits for {other.name}")

            def wait_event(self, event: object) -> None:
                gpu.calls.append(f"{self.name} waits for event")

        class Event:
            def record(self, stream: Stream) -> None:
                gpu.calls.append(f"event on {stream.name}")

            def query(self) -> bool:
                gpu.calls.append("host asks for event")
                gpu.contexts.add(getattr(thread, "device", torch.device("cuda", 0)))
                return gpu.calls.count("host asks for event") > 2

        @contextmanager
        def stream(entered: Stream) -> Iterator[None]:
            gpu.calls.append(f"enter {entered.name}")
            yield
            gpu.calls.append(f"leave {entered.name}")

        main = Stream("cuda:1", "main")
        self.calls.clear()
        self.parts = {
            "Stream": Stream,
            "Event": Event,
            "stream": stream,
            "current_stream": lambda device: main,
            "set_device": set_device,
            "cudart": lambda: self,
        }

    def cudaHostRegister(self, address: int, size_bytes: int, flags: int) -> int:  # noqa: N802
        """Lock the pages, or return 712 ("already registered") as a real GPU does where they are
        locked.
        """
        self.calls.append(f"lock {size_bytes} bytes")
        if address in self.locked:
            return 712
        self.locked.add(address)
        return 0

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        self.locked.remove(address)
        return 0


def test_a_gpus_copy_is_ordered_by_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy from a GPU runs on a stream of its own, after what was computed before and before the
    next change of the weights, and the host does not wait for it. On the stream that trains, copies
    would not overlap with training.
    """
    gpu = RecordingGpu()
    for name, part in gpu.parts.items():
        monkeypatch.setattr(torch.cuda, name, part)
    arena = Arena(12, torch.device("cuda", 1))
    weights = torch.ones(3)
    arena.begin([(0, weights)])
    assert not arena.is_filled
    arena.let_weights_change()
    assert arena.is_filled  # The next updates wait for nothing.
    (piece,) = arena.pieces(0, 12)
    assert gpu.calls == [
        "lock 12 bytes",
        "side stream of cuda:1",
        "side waits for main",
        "enter side",
        "event on side",
        "leave side",
        "main waits for event",
        *["host asks for event"] * 3,
    ]
    weights.zero_()
    assert torch.frombuffer(piece, dtype=torch.float32).tolist() == [1, 1, 1]


def test_writing_makes_no_other_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writing thread of a rank makes no context on another GPU than the rank's own. The ranks
    of a pod with 8 GPUs could take some 3.5 GB of the memory of GPU 0.
    """
    gpu = RecordingGpu()
    for name, part in gpu.parts.items():
        monkeypatch.setattr(torch.cuda, name, part)
    arena = Arena(12, torch.device("cuda", 1))
    arena.begin([(0, torch.ones(3))])
    writing = threading.Thread(target=lambda: list(arena.pieces(0, 12)))
    writing.start()
    writing.join()
    assert gpu.contexts == {torch.device("cuda", 1)}


def test_a_gpus_pages_are_unlocked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An arena unlocks its pages when it is freed. Otherwise a later run of the process may get the
    same addresses, which the driver then refuses, as was seen on an H200.
    """
    gpu = RecordingGpu()
    for name, part in gpu.parts.items():
        monkeypatch.setattr(torch.cuda, name, part)
    arena = Arena(12, torch.device("cuda", 1))
    assert len(gpu.locked) == 1
    del arena
    assert not gpu.locked
    for _ in range(3):
        Arena(12, torch.device("cuda", 1))


@pytest.mark.parametrize("changed_after", [0, 1, 3])
def test_a_copy_is_of_one_moment(changed_after: int) -> None:
    """However much of a copy has been written, changes that training makes later are not in it."""
    sizes = (PIECE_BYTES - 8, 100, PIECE_BYTES + 3, 1)
    tensors = [torch.full((size,), number, dtype=torch.uint8) for number, size in enumerate(sizes)]
    begins = [0, PIECE_BYTES, PIECE_BYTES + 128, 3 * PIECE_BYTES]
    arena = Arena(3 * PIECE_BYTES + 64, torch.device("cpu"))
    for _ in range(2):  # the memory is used again
        arena.begin([*zip(begins, tensors, strict=True)])
        assert not arena.is_filled
        found = bytearray()
        for number, piece in enumerate(arena.pieces(0, 3 * PIECE_BYTES + 1)):
            if number == changed_after:
                arena.let_weights_change()
                assert arena.is_filled
                for tensor in tensors:
                    tensor.fill_(99)
            found += piece
        for number, (begin, size) in enumerate(zip(begins, sizes, strict=True)):
            assert found[begin : begin + size] == bytes([number]) * size
            tensors[number].fill_(number)


def test_a_large_arena_needs_little_memory_while_nothing_changes() -> None:
    """A large arena is written through one small buffer, because a rank has no room for a second
    copy of its shard.
    """
    size = 16 * PIECE_BYTES
    shard = torch.ones(size, dtype=torch.uint8)
    before, most, end = _resident_bytes(), 0, b""
    arena = Arena(size, torch.device("cpu"), kept_bytes=0)
    arena.begin([(0, shard)])
    for piece in arena.pieces(0, size):
        most = max(most, _resident_bytes())
        end = bytes(piece[-1:])
    assert most - before < 3 * PIECE_BYTES
    assert end == b"\1"


def test_a_large_arena_gives_back_what_is_written() -> None:
    """When training changes the weights, the whole copy is in memory, and each piece is given back
    once it is written.
    """
    size = 16 * PIECE_BYTES
    shard = torch.ones(size, dtype=torch.uint8)
    arena = Arena(size, torch.device("cpu"), kept_bytes=0)
    before = _resident_bytes()
    arena.begin([(0, shard)])
    arena.let_weights_change()
    assert _resident_bytes() - before >= size
    pieces = list[memoryview]()
    for piece in arena.pieces(0, size):
        assert piece[-1:] == b"\1"
        pieces.append(piece)
    assert _resident_bytes() - before < 3 * PIECE_BYTES
    # Pages that were only unmapped, and not given back, would still show their content.
    assert all(piece[0] == piece[-1] == 0 for piece in pieces)


def _resident_bytes() -> int:
    """Return the resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
