"""Compares traceml-ai 0.5.0 with our search for slow ranks: `python -m bench.traceml_beside`.

It runs as root. Three ranks on this machine's processor train the same model, once for each thing
that makes one of them slow (bench/traceml_scenes.py), and once with no slow rank. Each run is done
with both programs and goes to its end. What counts is which rank and which cause the program names.
The table goes to docs/benchmarks.md, which says what can be compared. traceml-ai comes from the
package index into a virtualenv of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.other_venv import ensure_other_venv
from bench.row import Row
from bench.runs import CHECKOUT, Bench, free_port
from bench.table import publish
from bench.traceml_scenes import KINDS, RANKS, SECONDS, SLOW, Kind, Scene, scene_of

HEADING = "## traceml beside it"
PACKAGE = "traceml-ai==0.5.0"
STRAGGLERS = ("STRAGGLER", "INPUT_STRAGGLER", "COMPUTE_STRAGGLER", "H2D_STRAGGLER")
LIMIT_SECONDS = 600.0  # the longest time that a run may take
_SLOW = re.compile(
    r"slow rank: (?:rank (?P<rank>\d+) on node \d+ takes|no single rank:) .*: (?P<cause>[\w ]+) \("
)
_STEP = re.compile(r"step (\d+)/")


def of_ours(bench: Bench, kind: str, steps: int, scene: Scene) -> tuple[str, bool]:
    """Run our trainer; return what it says about slow ranks, and whether that is right."""
    before = KINDS[kind].steps_before
    settings = [
        f"--train.max_steps={before + steps}",
        "--train.warmup_steps=1",
        f"--train.global_batch_size={4 * RANKS}",
        "--eval.interval=0",
        "--checkpoint.interval=0",
        "--log.interval=1",
    ]
    config = bench.config(f"ours-{kind.replace(' ', '-')}", settings)
    words = ["-m", "bench.injected_rank", str(bench.write(config)), kind, str(SLOW), str(SECONDS)]
    clean_lines = 0

    def inject(ranks: list[subprocess.Popen[bytes]], log: Path) -> None:
        nonlocal clean_lines
        wait(lambda: steps_of(lines_of(log)) >= before, ranks, log)
        clean_lines = len(lines_of(log)) if before else 0
        scene.inject()

    log = bench.run_ranks(words, config.run_dir, RANKS, scene.places, inject)[0]
    return found_by_ours(lines_of(log), clean_lines, KINDS[kind])


def found_by_ours(log: Sequence[str], clean_lines: int, kind: Kind) -> tuple[str, bool]:
    """What the log of rank 0 says about slow ranks, and whether that is right.

    No rank was slow while the first `clean_lines` lines were written.
    """
    said = [(at, found) for at, line in enumerate(log) if (found := _SLOW.match(line))]
    if not said:
        return "names nobody", kind.cause is None
    at, first = said[0]
    after = steps_of(log[:at]) - steps_of(log[:clean_lines])
    who = f"rank {first['rank']}" if first["rank"] else "no single rank"
    named = {(found["rank"] and int(found["rank"]), found["cause"]) for _, found in said}
    is_right = at >= clean_lines and named == {(kind.rank, str(kind.cause))}
    return f"{who}, {first['cause']}, after {after} steps", is_right


def lines_of(log: Path) -> list[str]:
    """The lines that were printed so far."""
    return log.read_text().splitlines() if log.exists() else []


def steps_of(lines: Sequence[str]) -> int:
    """The number of the last step in these lines; 0 if there is none."""
    return max((int(found[1]) for line in lines if (found := _STEP.match(line))), default=0)


def wait(
    until: Callable[[], bool], processes: Sequence[subprocess.Popen[bytes]], log: Path
) -> None:
    """Wait until `until` returns true.

    Raises:
        RuntimeError: a process has ended, or `LIMIT_SECONDS` have passed.
    """
    end = time.monotonic() + LIMIT_SECONDS
    while not until():
        has_ended = any(process.poll() is not None for process in processes)
        if has_ended or time.monotonic() > end:
            raise RuntimeError(f"the run has not come so far:\n{log.read_text()[-3000:]}")
        time.sleep(0.1)


def of_traceml(
    bench: Bench, programs: Path, kind: str, steps: int, scene: Scene
) -> tuple[str, bool]:
    """Run traceml; return what its final summary says, and whether that is right."""
    name = kind.replace(" ", "-")
    logs, begun = bench.root / "traceml-logs", bench.root / f"traceml-{name}-begun"
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {
        **os.environ,
        "PATH": path,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": scene.interface,
    }
    started, printed = list[subprocess.Popen[bytes]](), list[Path]()
    for node, command in enumerate(traceml_commands(bench, programs, kind, steps, scene, begun)):
        printed.append(bench.root / f"traceml-{name}-{node}.log")
        with printed[-1].open("wb") as log:
            started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
    try:
        wait(begun.exists, started, printed[0])
        scene.inject()
        codes = [process.wait(LIMIT_SECONDS) for process in started]
    finally:
        for process in started:
            process.terminate()  # traceml then ends its ranks
            process.wait()
    mine = [path for path in logs.rglob("final_summary.json") if name in path.parts]
    if any(codes) or not mine:
        raise RuntimeError("\n".join(log.read_text()[-3000:] for log in printed))
    return verdict(json.loads(mine[0].read_text()), KINDS[kind].issue)


def traceml_commands(
    bench: Bench, programs: Path, kind: str, steps: int, scene: Scene, begun: Path
) -> list[list[str | Path]]:
    """The command for each node: three ranks on one node, or three nodes with a network each."""
    config = bench.write(bench.config("traceml", [f"--train.global_batch_size={4 * RANKS}"]))
    words: list[str | Path] = [programs / "traceml", "run", "--mode", "summary"]
    words += ["--logs-dir", bench.root / "traceml-logs", "--run-name", kind.replace(" ", "-")]
    words += ["--master-port", str(free_port()), "--aggregator-port", str(free_port())]
    script: list[str | Path] = [CHECKOUT / "bench" / "traceml_rank.py", "--args", config, kind]
    script += [str(SLOW), str(SECONDS), str(steps), begun, scene.group or "-"]
    if scene.networks is None:
        return [[*words, "--nproc-per-node", str(RANKS), *script]]
    words += ["--nnodes", str(RANKS), "--nproc-per-node", "1", "--master-addr", scene.master]
    words += ["--aggregator-host", scene.master, "--aggregator-bind-host", "0.0.0.0"]
    nodes = [(scene.networks.inside(node), ["--node-rank", str(node)]) for node in range(RANKS)]
    return [[*inside, *words, *node, *script] for inside, node in nodes]


def verdict(summary: dict[str, Any], wanted: str | None) -> tuple[str, bool]:
    """What the summary's section about the time of steps says, and whether that is right.

    The first finding is the diagnosis. `wanted` is the right one; None: no rank is slow.
    """
    issues: list[dict[str, Any]] = summary["step_time"]["issues"]
    kinds = [str(issue["kind"]) for issue in issues]
    ranks: list[int] = (issues[0].get("ranks") or []) if issues else []
    kind = kinds[0] if kinds else "nothing"
    words = f"{kind}, rank {ranks[0]}" if ranks else kind
    if wanted is None:
        return words, not {*kinds} & {*STRAGGLERS}
    return words, kind == wanted and ranks[:1] == [SLOW]


def main() -> int:
    """Measure all rows, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.traceml_beside", description=__doc__)
    parser.add_argument(
        "--steps", type=int, default=60, help="number of steps of each run (default: %(default)s)"
    )
    parser.add_argument(
        "--kinds",
        nargs="+",
        choices=KINDS,
        default=[*KINDS],
        metavar="KIND",
        help=f"kinds of slow rank to measure, of {', '.join(KINDS)} (default: all)",
    )
    options = parser.parse_args()
    programs = ensure_other_venv("traceml", PACKAGE)
    load, rows = os.getloadavg()[0], list[Row]()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), threads=1)
        for name in options.kinds:
            kind = KINDS[name]
            with scene_of(name) as scene:
                ours = of_ours(bench, name, options.steps, scene)
            with scene_of(name) as scene:
                theirs = of_traceml(bench, programs, name, options.steps, scene)
            for who, (said, is_right) in (("ours", ours), ("traceml-ai 0.5.0", theirs)):
                what = f"{who}: {kind.what}, {options.steps} steps"
                rows.append(Row(what, kind.bar, said, is_right))
                print(f"{rows[-1].what}: {said} ({'right' if is_right else 'wrong'})", flush=True)
    publish(HEADING, "traceml", rows, load, keep_others=[*options.kinds] != [*KINDS])
    return 0


if __name__ == "__main__":
    sys.exit(main())
