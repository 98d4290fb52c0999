"""Measures what a plan costs if a run is large: `python -m bench.growth [--times 5]`, as root.

A run of 1,000 ranks in 125 pods is compared with one of 3 ranks in 3 pods. For each kind of
workload the whole program runs with an engine that answers at once, and the size of what it
registers is measured. Then `pulumi preview` and `pulumi up` are measured on a cluster with 125 fake
nodes. The table goes to docs/benchmarks.md, which says what the figures leave out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.clock import seconds_of
from bench.growth_cluster import LARGE, SMALL, many_nodes, nested, settings_of, stack_of
from bench.row import Row
from bench.table import publish
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.workloads import WORKLOADS
from tests.e2e.lab import NAMESPACE, Lab
from tests.unit.stacks import deploy

HEADING = "## Growth"
TIMES = 5
MOST_RENDER_SECONDS, MOST_PREVIEW_SECONDS, MOST_UP_SECONDS = 1.0, 5.0, 10.0
MOST_FURTHER_BYTES = 100  # because larger numbers have more digits
POLL_SECONDS = 0.02
JOB = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/train-indexed"


@dataclass(frozen=True)
class UpTimes:
    """Seconds from the start of `pulumi up` until the workload exists, and until its end."""

    object_made: float
    end: float


def program(topology: str, size: tuple[int, int], times: int) -> tuple[list[float], int]:
    """Seconds that the whole program takes, and bytes of all Kubernetes objects it registers."""
    settings = nested(settings_of(topology, *size))
    with tempfile.TemporaryDirectory() as scratch:
        made = deploy("sandbox", Path(scratch), settings)  # imports modules
        objects = [r.inputs for r in made.resources if r.type.startswith("kubernetes:")]
        found = [
            seconds_of(lambda: deploy("sandbox", Path(scratch), settings)) for _ in range(times)
        ]
    return found, sum(len(json.dumps(manifest)) for manifest in objects)


def program_row(topology: str, times: int) -> Row:
    """The row of one kind of workload."""
    _, small_bytes = program(topology, SMALL, 0)
    found, large_bytes = program(topology, LARGE, times)
    middle = statistics.median(found)
    further = large_bytes - small_bytes
    return Row(
        f"{topology}: the whole program for 1,000 ranks, with an engine that answers at once",
        f"<= {MOST_RENDER_SECONDS:g} s, and manifests that do not grow",
        f"{shown(found)}; {large_bytes:,} bytes of manifests, {small_bytes:,} for 3 ranks",
        middle <= MOST_RENDER_SECONDS and further <= MOST_FURTHER_BYTES,
    )


def preview_row(lab: Lab, times: int) -> Row:
    """The row of previews of a large and a small run, in turn."""
    small, large = stack_of(lab, *SMALL), stack_of(lab, *LARGE)
    small.preview()  # the first preview compiles Python's files
    pairs = [(seconds_of(small.preview), seconds_of(large.preview)) for _ in range(times)]
    more = statistics.median(b - a for a, b in pairs)
    ratio = statistics.median(b / a for a, b in pairs)
    return Row(
        "`pulumi preview` of 125 pods with 8 ranks each, and of 3 pods with one, in turn",
        f"<= {MOST_PREVIEW_SECONDS:g} s more",
        f"{more:+.2f} s and {ratio:.2f} times, medians of {times} pairs; "
        f"{shown([b for _, b in pairs])}, the small one {shown([a for a, _ in pairs])}",
        more <= MOST_PREVIEW_SECONDS,
    )


def up_times(lab: Lab, api: Api, size: tuple[int, int]) -> UpTimes:
    """The times of `pulumi up` of a new stack, which is destroyed afterwards."""
    stack = stack_of(lab, *size)
    try:
        with ThreadPoolExecutor(1) as thread:
            begin = time.perf_counter()
            up = thread.submit(stack.up)
            while not up.done() and api.get(JOB) is None:
                time.sleep(POLL_SECONDS)
            made = time.perf_counter() - begin
            up.result()
        return UpTimes(made, time.perf_counter() - begin)
    finally:
        stack.destroy()


def up_rows(lab: Lab, times: int) -> list[Row]:
    """The rows of `pulumi up` of a large and a small run, in turn."""
    api = Api(Access(kubeconfig_path=str(lab.cluster.kubeconfig)))
    pairs = [(up_times(lab, api, SMALL), up_times(lab, api, LARGE)) for _ in range(times)]
    made = [large.object_made for _, large in pairs]
    ends = [large.end for _, large in pairs]
    return [
        Row(
            "from the start of `pulumi up` until the Job of 125 pods is in the API server",
            f"<= {MOST_UP_SECONDS:g} s",
            f"{shown(made)}; with 3 pods {shown([small.object_made for small, _ in pairs])}",
            statistics.median(made) <= MOST_UP_SECONDS,
        ),
        Row(
            "the same to the end of `pulumi up`, for which 125 pods come and are over at once",
            "-",
            f"{shown(ends)}; with 3 pods {shown([small.end for small, _ in pairs])}",
            None,
        ),
    ]


def shown(found: Sequence[float]) -> str:
    """The median and the extremes as text."""
    middle, count = statistics.median(found), len(found)
    return f"{middle:.2f} s, median of {count}: {min(found):.2f} to {max(found):.2f}"


def main(words: Sequence[str] | None = None) -> int:
    """Measure all rows, and return 1 if a bar is not met."""
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument(
        "--times",
        type=int,
        default=TIMES,
        help="how often each row is measured (default: %(default)s)",
    )
    parser.add_argument(
        "--without-cluster",
        action="store_true",
        help="measure only the rows of the kinds, which need neither root nor a cluster",
    )
    options = parser.parse_args(words)
    times = options.times
    load, rows = os.getloadavg()[0], list[Row]()

    def add(*more: Row) -> None:
        rows.extend(more)
        for row in more:
            print(f"{row.what}: {row.measured}", flush=True)

    for topology in WORKLOADS:
        add(program_row(topology, times))
    if not options.without_cluster:
        with tempfile.TemporaryDirectory() as scratch, many_nodes(Path(scratch)) as lab:
            add(preview_row(lab, times))
            add(*up_rows(lab, times))
    publish(HEADING, "growth", rows, load, keep_others=options.without_cluster)
    return int(any(row.met is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
