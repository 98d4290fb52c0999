"""Measures the trainer: `python -m bench` for all rows, `python -m bench throughput` for one row.

It prints the table and writes it to docs/benchmarks.md. All results are kept in
bench/results.json, so that the table keeps the other rows when one row is measured alone.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
import tempfile
from pathlib import Path

import torch

from bench.options import refuse_unknown
from bench.row import Row
from bench.rows import ROWS
from bench.runs import CHECKOUT, Bench
from bench.table import keep_results, read_results, table, with_where
from trainer.parallel.cores import available_cores

RESULTS = CHECKOUT / "bench" / "results.json"


def main() -> int:
    """Measure the rows, and return 1 if a bar is not met."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "rows",
        nargs="*",
        metavar="ROW",
        help=f"rows to measure, of {', '.join(ROWS)} (default: all)",
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=available_cores(),
        help="number of threads of each process (default: %(default)s)",
    )
    options = parser.parse_args()
    refuse_unknown(parser, "row", options.rows, ROWS)
    measured: list[Row] = []
    for name in options.rows or ROWS:
        print(f"== {name}", flush=True)
        load, begin = _load(), datetime.datetime.now(datetime.UTC)
        with tempfile.TemporaryDirectory() as root:
            found = ROWS[name](Bench(Path(root), options.threads))
        where = f"{begin:%Y-%m-%d}, {_cpu()}, load {load} to {_load()} on {os.cpu_count()} cores"
        measured.extend(found)
        keep_results(RESULTS, "## Trainer", list(ROWS), name, with_where(found, where))
    print(table(read_results(RESULTS), list(options.rows or ROWS)))
    return int(any(row.met is False for row in measured))


def _load() -> str:
    """The load average of the last minute; the table has it beside each figure."""
    return f"{os.getloadavg()[0]:.1f}"


def _cpu() -> str:
    """The processor's vendor, name and vector instructions, as far as the system tells them.

    An example is `AuthenticAMD, AMD EPYC, AVX512`. They are in the table because one vendor's
    figures say little about another's.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = list[str]()
    known = {
        name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    name = known.get("model name") or platform.processor() or platform.machine()
    vendor = known.get("vendor_id", "unknown vendor")
    return f"{vendor}, {name}, {torch.backends.cpu.get_cpu_capability()}"


if __name__ == "__main__":
    sys.exit(main())
