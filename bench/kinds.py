"""Measures the kinds of workload side by side: `python -m bench.kinds [KIND ...]`, as root.

Each kind runs on a cluster of the sandbox with the kind's own controllers. Two times are measured:
from `pulumi up` to the first step of all ranks, and from a fault to the next new step. The faults
are kill -9 of a rank, the eviction of a pod, the eviction of node 0's pod, and the first two again
while the kind's controller is down. The table goes to docs/benchmarks.md, which says what these
figures leave out. `--faults`, `--evictions`, `--outages` and `--ups` say how often each is done;
with 0, the table keeps the earlier row. The rows for a number of `--ranks` other than three do not
replace those for three ranks.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench.kinds_account import Recovery, phases_between
from bench.kinds_faults import FAULTS, Fault, kill_rank
from bench.kinds_rows import first_step_row, merged, recovery_row
from bench.kinds_watch import PodWatch, StepWatch, first_step
from bench.node import cluster_lab
from bench.options import refuse_unknown
from bench.row import Row
from bench.runs import CHECKOUT
from bench.table import keep_results, read_results, when_and_load, with_where
from sandbox.controllers import CONTROLLERS
from sandbox.controllers.controller import start_controller, stop_controller
from sandbox.controllers.outage import KUBERNETES, Outage
from sandbox.stack import Stack
from tests.e2e.asking import evict, training_pods
from tests.e2e.engines import ENGINES
from tests.e2e.lab import ENDLESS, SPARES, Lab, run_settings, wait_for
from trainer.events.event import event_file, parse_events
from trainer.launch.spare import WAITS_NAME

RESULTS = CHECKOUT / "bench" / "kinds.json"
HEADING = "## Kinds of workload"
RANKS = 3
LONGEST_SECONDS = 300.0
STACK = "bench-kinds"
OF_A_JOB = 3  # evictions


@dataclass(frozen=True)
class Kind:
    """What the measurement of a kind of workload needs.

    Args:
        controllers: names of the sandbox's controllers, in the order in which they are started.
        pods: the names of its pods for node 0 and for node 1, or the beginnings of those names,
            which end with `-`. It has one entry if one pod has all ranks.
        bar_seconds: the bar for the 95th percentile of the recovery times, in seconds.
        evictions: the largest number of evictions. A Job waits 10 s before it replaces the first
            evicted pod, and each time twice as long, so further evictions would tell nothing new.
        slow_by: why its controller takes long to replace an evicted pod.
    """

    controllers: tuple[str, ...]
    pods: tuple[str, ...]
    bar_seconds: float
    evictions: int = sys.maxsize
    slow_by: str = ""

    @property
    def carried_out_by(self) -> tuple[str, ...]:
        """The controllers that are down in the faults with an outage."""
        return self.controllers or (KUBERNETES,)


@dataclass(frozen=True)
class Often:
    """How often each thing is measured.

    Args:
        ups: how often `pulumi up` is timed.
        faults: how often a rank is killed.
        evictions: how often each pod is evicted.
        outages: how often each of both is done while the controller is down.
        ranks: how many ranks each run has.
    """

    ups: int
    faults: int
    evictions: int
    outages: int
    ranks: int = RANKS

    def times(self, kind: Kind, fault: Fault) -> int:
        """How often this fault is done to a run of this kind; 0 if the kind has no such node."""
        if fault.node >= len(kind.pods):
            return 0
        wanted = self.faults if fault.in_pod else self.evictions
        wanted = self.outages if fault.away_seconds else wanted
        return wanted if fault.in_pod else min(wanted, kind.evictions)


# A Job's controller waits 10 s before it replaces the first evicted pod, then each time twice as
# long.
_JOB = "kubernetes#130881"
# A Job's controller looks at its pods once a second, and JobSet waits until all old pods are gone.
_JOBSET = "kubernetes#118470, jobset#684"
OF_ENGINES = {engine.kind.name: (engine.pods(0), engine.pods(1)) for engine in ENGINES}
KINDS: dict[str, Kind] = {
    "single-pod": Kind((), ("train-singlepod-",), 5, OF_A_JOB, _JOB),
    "multi-pod": Kind((), ("train-multipod-0", "train-multipod-1"), 5),
    "indexed-job": Kind((), ("train-indexed-0-", "train-indexed-1-"), 5, OF_A_JOB, _JOB),
    "jobset": Kind(("jobset",), OF_ENGINES["jobset"], 8, slow_by=_JOBSET),
    "trainjob": Kind(("jobset", "trainer"), OF_ENGINES["trainjob"], 8, slow_by=_JOBSET),
    "pytorchjob": Kind(("training-operator",), OF_ENGINES["pytorchjob"], 8),
    # Node 0 of an MPIJob is the pod of a Job.
    "mpijob": Kind(("mpi-operator",), OF_ENGINES["mpijob"], 8, OF_A_JOB, f"of node 0 {_JOB}"),
    "volcano": Kind(("volcano",), OF_ENGINES["volcano"], 8),
    "lws": Kind(("lws",), OF_ENGINES["lws"], 8),
}


@contextmanager
def controllers_of(lab: Lab, kinds: Sequence[str]) -> Iterator[set[str]]:
    """Run the controllers of these kinds, and give the names of those that run.

    A controller that cannot be built, or that ends, is left out with a message. All are stopped and
    removed after the block.
    """
    wanted = dict.fromkeys(name for kind in kinds for name in KINDS[kind].controllers)
    started = list[str]()
    try:
        for name in wanted:
            try:
                start_controller(lab.cluster, CONTROLLERS[name])
            except (RuntimeError, TimeoutError) as reason:
                print(f"{name} is left out, and the kinds that need it: {reason}", flush=True)
            else:
                started.append(name)
        yield set(started)
    finally:
        for name in reversed(started):
            stop_controller(lab.cluster, CONTROLLERS[name])


def settings_of(name: str, kind: Kind, run_name: str, ranks: int) -> dict[str, str | None]:
    """The settings of a run with `ranks` ranks that never ends and survives every fault."""
    pods, in_each = (str(ranks), "1") if len(kind.pods) > 1 else (None, str(ranks))
    return {
        **run_settings(run_name, ENDLESS, **SPARES),
        "topology": name,
        "processesPerPod": in_each,
        **({"pods": pods} if pods else {}),
        "run.checkpoint.interval": "25",
        "run.train.max_restarts": "10000",
        "run.train.max_pod_failures": "10000",
    }


def first_steps(lab: Lab, stack: Stack, name: str, kind: Kind, often: Often) -> list[float]:
    """Seconds from the start of `pulumi up` to the first step. Each `up` makes a new run.

    A first `up`, which is not timed, makes the platform, or replaces the run of another kind.
    """
    found: list[float] = []
    for number in range(often.ups + 1):
        run_name = f"bench-{name}-{number}"
        stack.set_all(settings_of(name, kind, run_name, often.ranks))
        begin = time.time()
        stack.up()
        first = first_step(lab.run_dir(run_name))
        if number:
            found.append(first - begin)
            print(f"{name}: first step after {first - begin:.2f} s", flush=True)
    return found


def recoveries(
    lab: Lab, stack: Stack, name: str, kind: Kind, fault: Fault, often: Often
) -> list[Recovery]:
    """The recoveries of the newest run of `first_steps`, to which one fault is done repeatedly."""
    run_dir = lab.run_dir(stack.output("runName"))
    draw, done = random.Random(0), list[Recovery]()
    back, pods = 0.0, often.ranks if len(kind.pods) > 1 else 1
    with StepWatch(run_dir) as steps:
        for _ in range(often.times(kind, fault)):
            wait_for("all pods", lambda: len(training_pods(lab, stack)) == pods, 120)
            wait_for("the spares", lambda: count_spares() == often.ranks, LONGEST_SECONDS)
            wait_for("a checkpoint", partial(steps.has_saved_after, back), LONGEST_SECONDS, 0.1)
            # The fault comes anywhere between two checkpoints, also during a save.
            done.append(_disturbed(lab, kind, fault, steps, draw.uniform(0, 1)))
            back = done[-1].back
            print(f"{name}, {fault.what}: {done[-1].seconds:.2f} s", flush=True)
    events, _ = parse_events(event_file(run_dir, 0).read_bytes())
    phases = phases_between(events, [(each.stopped, each.back) for each in done])
    return [replace(each, phases=parts) for each, parts in zip(done, phases, strict=True)]


def _disturbed(
    lab: Lab, kind: Kind, fault: Fault, steps: StepWatch, delay_seconds: float
) -> Recovery:
    """Do a fault, and return the recovery from it, without its phases.

    The run's own events, which have the phases, are read once after all faults.
    """
    with PodWatch(lab, kind.pods[fault.node]) as pods:
        time.sleep(delay_seconds)
        with outage(lab, kind, fault) as away:
            if fault.in_pod:
                at = kill_rank(lab, pods.name)
            else:
                at = time.time()
                evict(lab, pods.name)
            stopped, back = steps.outage(at)
        return Recovery(at, stopped, back, {}, pods.times(), away.ended if away else 0.0)


@contextmanager
def outage(lab: Lab, kind: Kind, fault: Fault) -> Iterator[Outage | None]:
    """Stop the kind's controllers during the block, if the fault includes an outage of them."""
    if not fault.away_seconds:
        yield None
        return
    with Outage(lab.cluster, kind.carried_out_by, fault.away_seconds) as away:
        yield away


def count_spares() -> int:
    """How many processes wait to take a rank's place (spares).

    In a run that has trained for some seconds there is one for each rank. All pods are on this
    machine, and no other run is.
    """
    names = list[str]()
    for path in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):
            names.append(path.read_text().strip())
    return names.count(WAITS_NAME)


def measure(lab: Lab, stack: Stack, name: str, often: Often) -> list[Row]:
    """The rows of one kind."""
    kind = KINDS[name]
    seconds = first_steps(lab, stack, name, kind, often)
    rows = [first_step_row(seconds)] if seconds else []
    for number, fault in enumerate(FAULTS):
        times = often.times(kind, fault)
        if not times:
            continue
        if not fault.in_pod and times == kind.evictions:  # this needs a Job that has lost no pod
            run_name = f"bench-{name}-evicted-{number}"
            stack.set_all(settings_of(name, kind, run_name, often.ranks))
            stack.up()
            first_step(lab.run_dir(run_name))
        found = recoveries(lab, stack, name, kind, fault, often)
        rows.append(recovery_row(fault.what, kind.bar_seconds, found, kind.slow_by))
    return rows


def main(words: Sequence[str] | None = None) -> int:
    """Measure the kinds, and return 1 if a bar is not met."""
    parser = argparse.ArgumentParser(prog="python -m bench.kinds", description=__doc__)
    add = parser.add_argument
    kinds = f"kinds to measure, of {', '.join(KINDS)} (default: all)"
    add("kinds", nargs="*", metavar="KIND", help=kinds)
    for option, default, help in (
        ("--faults", 20, "how often a rank is killed"),
        ("--evictions", 20, "how often each pod is evicted"),
        ("--outages", 20, "how often each of these faults is done while the controller is down"),
        ("--ups", 5, "how often `pulumi up` is timed"),
        ("--ranks", RANKS, "number of ranks of a run"),
    ):
        add(option, type=int, default=default, help=f"{help} (default: {default})")
    options = parser.parse_args(words)
    if options.ranks < 2:
        parser.error(f"--ranks {options.ranks} cannot be used: the faults need at least two ranks")
    refuse_unknown(parser, "kind", options.kinds, KINDS)
    often = Often(options.ups, options.faults, options.evictions, options.outages, options.ranks)
    chosen, missed = options.kinds or list(KINDS), False
    with (
        tempfile.TemporaryDirectory() as scratch,
        cluster_lab(Path(scratch)) as lab,
        controllers_of(lab, chosen) as served,
    ):
        stack = lab.stack(STACK, "sandbox", {})
        try:
            for name in (name for name in chosen if served.issuperset(KINDS[name].controllers)):
                load = os.getloadavg()[0]
                rows = measure(lab, stack, name, often)
                missed |= any(row.met is False for row in rows)
                keep(row_name(name, often.ranks), rows, load)
        finally:
            stack.destroy()
    return int(missed)


def row_name(name: str, ranks: int) -> str:
    """The name in the first column of a kind's rows."""
    return name if ranks == RANKS else f"{name}, {ranks} ranks"


def keep(name: str, rows: list[Row], load: float) -> None:
    """Write rows under this name into the results and the document, and keep the other rows."""
    before = read_results(RESULTS)
    rows_now = merged(before.get(name, []), with_where(rows, when_and_load(load)))
    order = list(dict.fromkeys([*KINDS, *before, name]))
    keep_results(RESULTS, HEADING, order, name, rows_now)


if __name__ == "__main__":
    sys.exit(main())
