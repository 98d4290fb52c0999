"""Measures traceml-ai 0.5.0 beside our search for slow ranks: `python -m bench.traceml_beside`.

Three ranks on this machine's processor train the same model, once for each place in which one rank
is made slow, and once without. Both run to the end; what counts is which rank and which cause they
name. The table goes to docs/benchmarks.md, which says what can be compared. traceml-ai comes from
the package index into a virtualenv of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from bench.injected_rank import CLEAN, USUAL_SECONDS
from bench.row import Row
from bench.runs import CHECKOUT, Bench, free_port
from bench.table import publish
from trainer.watch.slow import Cause

HEADING = "## traceml beside it"
PACKAGE = "traceml-ai==0.5.0"
VENV = CHECKOUT / "build" / "traceml"
RANKS, SLOW, SECONDS = 3, 1, 0.3
# What is slow -> what we have to call it, and what traceml has to.
KINDS = {
    "slow data": (Cause.DATA, "INPUT_STRAGGLER"),
    "slow forward": (Cause.COMPUTE, "COMPUTE_STRAGGLER"),
    "slow backward": (Cause.COMPUTE, "COMPUTE_STRAGGLER"),
    CLEAN: (None, None),
}
STRAGGLERS = ("STRAGGLER", "INPUT_STRAGGLER", "COMPUTE_STRAGGLER", "H2D_STRAGGLER")
_SLOW_RANK = re.compile(r"slow rank: rank (?P<rank>\d+) on node 0 takes .*?: (?P<cause>.*?) \(")


def ensure_traceml() -> Path:
    """The folder of the programs of a virtualenv with traceml, which sees the torch of this one."""
    programs = VENV / "bin"
    if not (VENV / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
        packages = next(VENV.glob("lib/python*/site-packages"))
        (packages / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
        python = programs / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", PACKAGE], check=True)
        (VENV / "complete").touch()
    return programs


def of_ours(bench: Bench, kind: str, steps: int) -> tuple[str, bool]:
    """What our trainer says, and whether that is right."""
    settings = [
        f"--train.max_steps={steps}",
        "--train.warmup_steps=1",
        f"--train.global_batch_size={4 * RANKS}",
        "--eval.interval=0",
        "--checkpoint.interval=0",
        "--log.interval=1",
    ]
    config = bench.config(f"ours-{kind.replace(' ', '-')}", settings)
    words = ["-m", "bench.injected_rank", str(bench.write(config)), kind, str(SLOW), str(SECONDS)]
    log = bench.run_ranks(words, config.run_dir, RANKS)[0].read_text().splitlines()
    said = [(at, m) for at, line in enumerate(log) if (m := _SLOW_RANK.match(line))]
    cause = KINDS[kind][0]
    if not said:
        return "names nobody", cause is None
    at, found = said[0]
    made = sum(line.startswith("step ") for line in log[:at])
    is_right = {(int(m["rank"]), m["cause"]) for _, m in said} == {(SLOW, str(cause))}
    return f"rank {found['rank']}, {found['cause']}, after {made} steps", is_right


def of_traceml(bench: Bench, programs: Path, kind: str, steps: int) -> tuple[str, bool]:
    """What traceml says in its summary at the end, and whether that is right."""
    config = bench.config("traceml", [f"--train.global_batch_size={4 * RANKS}"])
    name = kind.replace(" ", "-")
    logs = bench.root / "traceml-logs"
    words: list[str | Path] = [programs / "traceml", "run", "--mode", "summary"]
    words += ["--nproc-per-node", str(RANKS), "--logs-dir", logs, "--run-name", name]
    words += ["--master-port", str(free_port()), "--aggregator-port", str(free_port())]
    words += [CHECKOUT / "bench" / "traceml_rank.py", "--args", bench.write(config), kind]
    words += [str(SLOW), str(SECONDS), str(steps)]
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    summaries = [*logs.rglob("final_summary.json")]
    mine = [path for path in summaries if name in path.parts]
    if done.returncode or not mine:
        raise RuntimeError(f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return verdict(json.loads(mine[0].read_text()), KINDS[kind][1])


def verdict(summary: dict[str, Any], wanted: str | None) -> tuple[str, bool]:
    """The findings of its section about the time of steps, the first of which is its diagnosis."""
    issues: list[dict[str, Any]] = summary["step_time"]["issues"]
    kinds = [str(issue["kind"]) for issue in issues]
    ranks: list[int] = (issues[0].get("ranks") or []) if issues else []
    kind = kinds[0] if kinds else "nothing"
    words = f"{kind}, rank {ranks[0]}" if ranks else kind
    if wanted is None:
        return words, not {*kinds} & {*STRAGGLERS}
    return words, kind == wanted and ranks[:1] == [SLOW]


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python -m bench.traceml_beside", description=__doc__)
    parser.add_argument("--steps", type=int, default=60, help="of each run (default: %(default)s)")
    options = parser.parse_args()
    programs, load, rows = ensure_traceml(), os.getloadavg()[0], list[Row]()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), threads=1)
        for kind in KINDS:
            what = f"{SECONDS} s more in each step of rank {SLOW} of {RANKS}: {kind}"
            what = f"no rank is slow, {RANKS} ranks" if kind == CLEAN else what
            what += f", {options.steps} steps with {USUAL_SECONDS} s in each forward pass"
            for name, (said, is_right) in (
                ("ours", of_ours(bench, kind, options.steps)),
                ("traceml-ai 0.5.0", of_traceml(bench, programs, kind, options.steps)),
            ):
                rows.append(Row(f"{name}: {what}", "the rank and the cause", said, is_right))
                print(f"{rows[-1].what}: {said} ({'right' if is_right else 'wrong'})", flush=True)
    publish(HEADING, "traceml", rows, load)
    return 0


if __name__ == "__main__":
    sys.exit(main())
