"""Measures the trainer on a GPU: `python3 -m bench.gpu [ROW ...]`, or `make bench-gpu`.

It writes the section "On a GPU" of docs/benchmarks.md, with the machine, its driver and its version
of torch in every row. bench/gpu.json keeps the measurements. It uses the torch of this Python, and
needs no network and no installation. Without a GPU it says so and ends with status 77.

The model is that of gpt2-124m. The text has random characters, as many different ones as GPT-2 has
tokens, because the speed of training does not depend on what the tokens are.
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.options import refuse_unknown
from bench.runs import CHECKOUT
from bench.table import keep_results, table, with_where
from tests.gpu.__main__ import NOT_RUN, why_not_here

RESULTS = CHECKOUT / "bench" / "gpu.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the rows, and return 1 if a bar is not met, or 77 if there is no GPU."""
    parser = argparse.ArgumentParser(prog="python3 -m bench.gpu", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows to measure (default: all)")
    parser.add_argument("--yardstick", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--compiled", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--float32-loss", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--first-step", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cache", help=argparse.SUPPRESS)
    parser.add_argument("--time-line", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if (reason := why_not_here()) is not None:
        print(f"bench/gpu was not run: {reason}.")
        return NOT_RUN
    from bench import gpu_rows  # it needs torch, and the trainer's packages

    refuse_unknown(parser, "row", options.rows, gpu_rows.ROWS)
    if options.yardstick:
        gpu_rows.run_yardstick(options.yardstick, options.compiled, options.float32_loss)
        return 0
    if options.first_step:
        gpu_rows.run_first_step(options.first_step, options.cache)
        return 0
    if options.time_line:
        gpu_rows.run_time_line(options.time_line)
        return 0
    return measure(options.rows or list(gpu_rows.ROWS))


def measure(names: Sequence[str]) -> int:
    """Measure the rows and save each at once, so that no other row is lost if one fails."""
    from bench import gpu_rows
    from tests.gpu.machine import describe_machine

    where = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {describe_machine()}"
    worst = 0
    for name in names:
        print(f"== {name}", flush=True)
        with tempfile.TemporaryDirectory() as root:
            try:
                found = gpu_rows.ROWS[name](Path(root))
            except (RuntimeError, subprocess.CalledProcessError) as error:
                print(f"the row {name} failed: {error}", flush=True)
                worst = 1
                continue
        rows = with_where(found, where)
        keep_results(RESULTS, "## On a GPU", list(gpu_rows.ROWS), name, rows)
        print(table({name: rows}, [name]), flush=True)
        worst = max(worst, int(any(row.met is False for row in found)))
    return worst


if __name__ == "__main__":
    sys.exit(main())
