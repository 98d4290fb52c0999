"""Reads from a trace of torch's profiler when a GPU copied checkpoints and ran kernels."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_LARGE_BYTES = 64 * 1024  # smaller copies are losses and flags, not a checkpoint's or a batch's


@dataclass(frozen=True)
class TimeLine:
    """The copies of checkpoints to the host, and the kernels beside them."""

    copied_bytes: int
    pageable_bytes: int
    """The bytes of batches that came from memory that is not page-locked, since the first copy. The
    host waits for such copies."""
    copy_seconds: float
    overlap_seconds: float
    """The part of `copy_seconds` in which at least one kernel ran too."""
    kernel_count: int
    first_kernel_after_seconds: float
    """From the beginning of the first copy to that of the next kernel; infinite if none follows."""
    shares_a_stream: bool
    """Whether some copy and some kernel were on the same stream."""
    first_kernel_launched_after_seconds: float
    """From the beginning of the first copy to the host's launch of that kernel.

    It shows whether the host was late, or the GPU let the kernel wait. It is infinite if the trace
    has no launch of the kernel.
    """

    def describe(self) -> str:
        """Return one line for people."""
        rate = self.copied_bytes / self.copy_seconds / 1e9 if self.copy_seconds else 0.0
        ran, launched = self.first_kernel_after_seconds, self.first_kernel_launched_after_seconds
        return (
            f"{self.copied_bytes / 1e6:.0f} MB copied in {1e3 * self.copy_seconds:.1f} ms "
            f"({rate:.1f} GB/s), kernels beside {1e3 * self.overlap_seconds:.1f} ms of it, the "
            f"first {1e3 * ran:.1f} ms after the begin of a copy (launched after "
            f"{1e3 * launched:.1f} ms)"
        )


def time_line(trace: str) -> TimeLine:
    """Read a Chrome trace; its times are microseconds.

    Args:
        trace: the JSON text that `torch.profiler.profile.export_chrome_trace` wrote.
    """
    events: list[dict[str, Any]] = json.loads(trace)["traceEvents"]
    copies = [
        event
        for event in events
        if event.get("cat") == "gpu_memcpy"
        and "DtoH" in event["name"]
        and event["args"].get("bytes", 0) >= _LARGE_BYTES
    ]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    copying, computing = _union(copies), _union(kernels)
    launches = {
        event["args"]["correlation"]: event["ts"]
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver")
    }
    begin, never = (copying[0][0] if copying else 0.0), float("inf")
    first, launched = min(
        (
            (event["ts"], launches.get(event["args"]["correlation"], never))
            for event in kernels
            if event["ts"] >= begin
        ),
        default=(never, never),
    )
    return TimeLine(
        copied_bytes=sum(event["args"]["bytes"] for event in copies),
        pageable_bytes=sum(
            event["args"]["bytes"]
            for event in events
            if event.get("cat") == "gpu_memcpy"
            and "HtoD (Pageable" in event["name"]
            and event["args"].get("bytes", 0) >= _LARGE_BYTES
            and event["ts"] >= begin
        ),
        copy_seconds=_length(copying) / 1e6,
        overlap_seconds=_length(_intersection(copying, computing)) / 1e6,
        kernel_count=len(kernels),
        first_kernel_after_seconds=(first - begin) / 1e6,
        shares_a_stream=bool(_streams(copies) & _streams(kernels)),
        first_kernel_launched_after_seconds=(launched - begin) / 1e6,
    )


def _streams(events: Iterable[dict[str, Any]]) -> set[tuple[int, int]]:
    return {(event["args"]["device"], event["args"]["stream"]) for event in events}


def _union(events: Iterable[dict[str, Any]]) -> list[tuple[float, float]]:
    """Return the intervals of the events in order; intervals that touch are joined."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted((e["ts"], e["ts"] + e["dur"]) for e in events):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def _intersection(
    one: list[tuple[float, float]], other: list[tuple[float, float]]
) -> list[tuple[float, float]]:
    pairs = ((max(a, c), min(b, d)) for a, b in one for c, d in other)
    return [(begin, end) for begin, end in pairs if begin < end]


def _length(intervals: Iterable[tuple[float, float]]) -> float:
    return sum(end - begin for begin, end in intervals)
