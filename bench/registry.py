"""Measures the push of the trainer image to a registry: `python -m bench.registry`.

The registry is the real one (distribution) on the loopback. So the figures contain the registry's
work (it reads each layer once more), but not what a network would add. The dependencies come from
the cache: build them first, by `make demo` or `python -m infra.image ensure`. The table goes to
docs/benchmarks.md.
"""

from __future__ import annotations

import datetime
import os
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from bench.row import Row
from bench.runs import CHECKOUT
from bench.table import Json, keep_results, with_where
from infra.command_line import cache_folder
from infra.image.dependencies import Sources, dependencies_are_built
from infra.image.oci import code_layer
from infra.image.plan import ImagePlan, plan_image
from infra.image.registry.connection import Access
from infra.image.registry.push import Pushed, push
from infra.image.registry.repository import Repository
from tests.registry.lab import running

RESULTS = CHECKOUT / "bench" / "registry.json"
NAME, HEADING = "push", "## The image by a registry"
BASE = "localhost/disttrain/base:bookworm"
MOST_BYTES_OF_CODE = 1_000_000


def measure(scratch: Path) -> list[Json]:
    """The rows: a first push with and without compression, a second push, and one of new code."""
    rows: list[Json] = []
    for compression in ("gzip", "none"):
        with running(scratch / compression) as server:
            access = Access(f"{server.name}/team/trainer", plain_http=True)
            plan = plan_image(CHECKOUT, access.repository, BASE, None)
            assert dependencies_are_built(plan.deps_hash, cache_folder()), "build the image first"
            first, seconds = timed(plan, access, compression)
            rows.append(
                row(f"first push, compression: {compression}", "-", first, seconds, met=None)
            )
            if compression == "gzip":
                again, seconds = timed(plan, access, compression)
                rows.append(
                    row("second push", "0 bytes", again, seconds, met=again.pushed_bytes == 0)
                )
                one_more = code_layer([("trainer/one_more.py", Path(__file__))])
                changed = replace(plan, code_hash="0" * 12, code_layer=plan.code_layer + one_more)
                code, seconds = timed(changed, access, compression)
                met = code.pushed_bytes < MOST_BYTES_OF_CODE
                rows.append(row("push of changed code", "the code alone", code, seconds, met=met))
        shutil.rmtree(scratch / compression)
    return rows


def timed(plan: ImagePlan, access: Access, compression: str) -> tuple[Pushed, float]:
    """Push once; return what was pushed, and the seconds that it took."""
    sources = Sources(CHECKOUT, cache_folder(), "auto")
    begin = time.perf_counter()
    done = push(plan, Repository(access), sources, print, compress=compression == "gzip")
    return done, time.perf_counter() - begin


def row(what: str, bar: str, pushed: Pushed, seconds: float, *, met: bool | None) -> Json:
    """The row of a push that was just made."""
    measured = f"{pushed.pushed_bytes / 1e6:,.2f} MB in {seconds:.2f} s"
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    when = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {load}"
    return with_where([Row(what, bar, measured, met)], when)[0]


def main() -> int:
    """Measure all rows, and return 1 if a bar is not met."""
    with tempfile.TemporaryDirectory() as scratch:
        rows = measure(Path(scratch))
    keep_results(RESULTS, HEADING, [NAME], NAME, rows)
    for each in rows:
        print(f"{each['what']}: {each['measured']}")
    return int(any(each["met"] is False for each in rows))


if __name__ == "__main__":
    sys.exit(main())
