"""Measures the trainer's bars: `python -m bench` for all rows, or `python -m bench throughput`.

Prints the table and puts it into docs/benchmarks.md. What was measured is kept in
bench/results.json, so that rows that are run alone do not take the others out of the table.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.rows import ROWS, Row
from bench.runs import CHECKOUT, Bench
from bench.table import put_into_section, table
from trainer.cores import available_cores

RESULTS = CHECKOUT / "bench" / "results.json"
DOCUMENT = CHECKOUT / "docs" / "benchmarks.md"


def main() -> int:
    """Run the rows; returns 1 where a bar is not met."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}")
    parser.add_argument("--threads", type=int, default=available_cores(), help="of each process")
    options = parser.parse_args()
    if unknown := [name for name in options.rows if name not in ROWS]:
        parser.error(f"unknown row {', '.join(unknown)}; allowed: {', '.join(ROWS)}")
    measured: list[Row] = []
    for name in options.rows or ROWS:
        print(f"== {name}", flush=True)
        load, begin = _load(), datetime.datetime.now(datetime.UTC)
        with tempfile.TemporaryDirectory() as root:
            found = ROWS[name](Bench(Path(root), options.threads))
        where = f"{begin:%Y-%m-%d}, {_cpu()}, load {load} to {_load()} on {os.cpu_count()} cores"
        kept = _kept()
        kept[name] = [{**dataclasses.asdict(row), "where": where} for row in found]
        measured.extend(found)
        RESULTS.write_text(json.dumps(kept, indent=2) + "\n")
        put_into_section(DOCUMENT, "## Trainer", table(kept, list(ROWS)))
    print(table(_kept(), list(options.rows or ROWS)))
    return int(any(row.met is False for row in measured))


def _kept() -> dict[str, list[dict[str, Any]]]:
    """What was measured before, read late: rows may run side by side."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def _load() -> str:
    """How busy the machine is: figures taken on a busy one say so."""
    return f"{os.getloadavg()[0]:.1f}"


def _cpu() -> str:
    """Name of the processor, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    sys.exit(main())
