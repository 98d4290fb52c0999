"""Measures previews, the doctor, installation and `up`: `python -m bench.node [ROW ...]`, as root.

The table goes to docs/benchmarks.md. Each row is the median or the 95th percentile of several runs
on the hosts of tests/node and tests/e2e. There sshd, sudo, systemd, Pulumi, Kubernetes and
containerd are real, but k3s and its installer are stand-ins.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.clock import seconds_of
from bench.options import refuse_unknown
from bench.row import Row
from bench.run_stacks import nothing_to_do, switches
from bench.runs import CHECKOUT
from bench.several_machines import (
    doctors,
    first_steps,
    joins,
    losses,
    namings,
    three_nodes,
)
from bench.table import keep_results, when_and_load, with_where
from sandbox.cache import locked
from sandbox.dataset import training_text
from sandbox.stack import Stack
from tests.e2e.conftest import build_image, cluster_with_image
from tests.e2e.lab import Lab, run_settings
from tests.e2e.remote_node import RemoteNode
from tests.node import lab as node
from tests.node.releases import Source

RESULTS = CHECKOUT / "bench" / "node.json"
RUNS = 5
LOSSES = 10  # how often the loss of a node is measured
CLUSTER = "e2e-bench"


def preview(scratch: Path) -> list[float]:
    """Seconds of `pulumi preview` of the dev stack; a first one only compiles Python's files."""
    settings = scratch / "Pulumi.bench-dev.yaml"
    settings.write_text((CHECKOUT / "Pulumi.dev.yaml").read_text())
    stack = Stack("bench-dev", scratch / "backend", settings)
    stack.preview()
    return [seconds_of(stack.preview) for _ in range(RUNS)]


def doctor(scratch: Path) -> list[float]:
    """Seconds of `./disttrain doctor --host-only`, with the start of Python."""
    command = [str(CHECKOUT / "disttrain"), "doctor", "--host-only", "--fail-on", "none"]
    return [
        seconds_of(lambda: subprocess.run(command, cwd=scratch, check=True, capture_output=True))
        for _ in range(RUNS)
    ]


def install(scratch: Path) -> list[float]:
    """Seconds of `pulumi up` of k3s over SSH, minus those of the bare installer and k3s' start."""
    lab = node.Lab(scratch, Source(None, "for the bench"))
    try:
        own: list[float] = []
        bare = (
            "env INSTALL_K3S_SKIP_DOWNLOAD=true INSTALL_K3S_SKIP_START=true "
            "INSTALL_K3S_SYMLINK=skip sh /lab/install.sh && systemctl restart k3s"
        )
        for _ in range(RUNS):
            stack = lab.stack()
            whole = seconds_of(stack.up)
            installer = lab.mirror.folder / "k3s" / node.VERSION / "install.sh"
            lab.host.path("/lab/install.sh").write_text(installer.read_text())
            own.append(whole - seconds_of(lambda: lab.host.shell(bare)))
            lab.clean()
        return own
    finally:
        lab.close()


@contextmanager
def cluster_lab(scratch: Path) -> Iterator[Lab]:
    """A cluster of the tests with the trainer image; the cluster is removed after the block."""
    with locked(f"{CLUSTER}-cluster"):
        cluster = cluster_with_image(CLUSTER, scratch)
        try:
            cluster.up()
            lab = Lab(cluster, scratch, training_text().path)
            build_image(lab)
            yield lab
        finally:
            cluster.down(purge=True)


def no_change(scratch: Path) -> list[float]:
    """Seconds of `pulumi up` of the whole program over SSH, with nothing to do."""
    with cluster_lab(scratch) as lab:
        remote = RemoteNode(lab, scratch)
        try:
            stack = remote.stack("bench-ssh", run_settings("bench", 20))
            stack.up()
            found = [seconds_of(lambda: stack.up("--expect-no-changes")) for _ in range(RUNS)]
        finally:
            remote.close()
        lab.kubectl("delete", "namespace", "disttrain")
        return found


def pods(scratch: Path) -> list[float]:
    """Seconds from the start of `pulumi up` until three new pods run; the node has the image."""
    with cluster_lab(scratch) as lab:
        stack = lab.stack("bench-pods", "sandbox-multipod", run_settings("bench", 20))
        stack.up()
        found: list[float] = []
        for number in range(RUNS):
            old = set(lab.uids("pod"))
            before = set(lab.uids("pod").values())
            stack.set("run.seed", str(number))
            begin = time.perf_counter()
            with node.background_up(stack) as up:
                while running(lab, before) < len([pod for pod in old if "multipod" in pod]):
                    assert up.poll() is None, node.output_file(stack).read_text()
                    time.sleep(0.1)
                found.append(time.perf_counter() - begin)
                up.wait()
        stack.destroy()
        return found


def running(lab: Lab, old: set[str]) -> int:
    """How many training pods run whose uids are not in `old`."""
    return sum(
        pod["status"]["phase"] == "Running" and pod["metadata"]["uid"] not in old
        for pod in lab.get("pod")["items"]
        if "multipod" in pod["metadata"]["name"]
    )


def second_up(scratch: Path) -> list[float]:
    """Seconds of `pulumi up`, with its preview, of a finished run of which nothing has changed."""
    with cluster_lab(scratch) as lab:
        return nothing_to_do(lab, RUNS)


def switch(scratch: Path) -> list[float]:
    """Seconds of `pulumi up` of a run in three pods, while a run in a single pod trains."""
    with cluster_lab(scratch) as lab:
        return switches(lab, RUNS)


def machines(scratch: Path) -> list[float]:
    """Seconds of `pulumi up` with two further machines, minus those of the first machine alone."""
    return joins(scratch, RUNS)


def doctor_machines(scratch: Path) -> list[float]:
    """Seconds of the doctor's examination of eight hosts."""
    return doctors(scratch, RUNS)


def first_step(scratch: Path) -> list[float]:
    """Seconds of `pulumi up` of a new run on three nodes, until all ranks have made a step."""
    with cluster_lab(scratch) as lab:
        return first_steps(lab, RUNS)


def lost_node(scratch: Path) -> list[float]:
    """Seconds from the loss of one of three nodes to the first new step."""
    with cluster_lab(scratch) as lab:
        return losses(lab, LOSSES)


def named_node(scratch: Path) -> list[float]:
    """Seconds from the loss of one of three nodes to the `./disttrain status` that names it."""
    with cluster_lab(scratch) as lab:
        return namings(lab, LOSSES)


def nodes_ready(scratch: Path) -> list[float]:
    """Seconds to start a sandbox with three nodes, from nothing."""
    with cluster_lab(scratch) as lab:
        return three_nodes(lab, RUNS)


@dataclass(frozen=True)
class Timed:
    """One row: what is timed, several times, and the bar for one percentile of the times.

    Args:
        what: what is timed, in the words of the table.
        bar_seconds: the largest value that the percentile may have, in seconds.
        measure: a function that gets a folder for scratch files, and returns the times in seconds.
        percent: which percentile has to meet the bar; 50 is the median.
    """

    what: str
    bar_seconds: float
    measure: Callable[[Path], list[float]]
    percent: int = 50

    @property
    def bar(self) -> str:
        """The bar in the words of the table, which does not name the median."""
        return ("" if self.percent == 50 else f"p{self.percent} ") + f"<= {self.bar_seconds:g} s"

    def value(self, seconds: Sequence[float]) -> float:
        """The percentile that the bar is for."""
        return float(np.percentile(seconds, self.percent))

    def said(self, seconds: Sequence[float]) -> str:
        """The percentile, with the number and the range of the times, for the table."""
        spread = f"of {len(seconds)}: {min(seconds):.2f} to {max(seconds):.2f}"
        if self.percent == 50:
            return f"{self.value(seconds):.2f} s, median {spread}"
        median = statistics.median(seconds)
        return f"{self.value(seconds):.2f} s, p{self.percent} {spread}, median {median:.2f}"


ROWS = {
    "preview": Timed("`pulumi preview` of the dev stack, warm", 1.7, preview),
    "doctor": Timed("the doctor's whole host pass", 5, doctor),
    "install": Timed(
        "our own time on top of the bare installer and k3s' start, over SSH", 5, install
    ),
    "no-change": Timed("`pulumi up` of the whole program over SSH, nothing to do", 10, no_change),
    "second-up": Timed(
        "`pulumi up` with its preview, a run on another stack's platform, finished, nothing to do",
        3,
        second_up,
    ),
    "switch": Timed(
        "`pulumi up` from a run in one pod to one in three pods, until all of them train",
        15,
        switch,
    ),
    "machines": Timed(
        "what two further machines add to the `up` of the first, whose installer takes 10 s (at "
        "least 13 s of `up`, so that the bar is 1.3 times one machine)",
        4,
        machines,
    ),
    "doctor-machines": Timed(
        "the doctor of eight hosts over SSH, each two of them included",
        5,
        doctor_machines,
    ),
    "first-step": Timed(
        "`pulumi up` of a new stack with a pod on each of three nodes, which have the image, until "
        "all ranks have stepped",
        25,
        first_step,
    ),
    "three-nodes": Timed(
        "`python3 -m sandbox up --nodes 3`, until all three are Ready",
        15,
        nodes_ready,
    ),
    "named-node": Timed(
        "from the loss of one of three nodes to the end of the `./disttrain status` that names it, "
        "asked again and again",
        15,
        named_node,
        percent=95,
    ),
    "lost-node": Timed(
        "from the loss of one of three nodes to a step not made before, `lostNodes: replace`",
        90,
        lost_node,
        percent=95,
    ),
    "pods": Timed("from `pulumi up` to three new pods Running", 15, pods),
}


def main() -> int:
    """Measure the rows, and return 1 if a bar is not met."""
    parser = argparse.ArgumentParser(prog="python -m bench.node", description=__doc__)
    parser.add_argument(
        "rows",
        nargs="*",
        metavar="ROW",
        help=f"rows to measure, of {', '.join(ROWS)} (default: all)",
    )
    options = parser.parse_args()
    refuse_unknown(parser, "row", options.rows, ROWS)
    missed = False
    for name in options.rows or ROWS:
        row = ROWS[name]
        print(f"== {name}", flush=True)
        load = os.getloadavg()[0]
        with tempfile.TemporaryDirectory() as scratch:
            runs = sorted(row.measure(Path(scratch)))
        met = row.value(runs) <= row.bar_seconds
        missed |= not met
        print(f"{row.said(runs)} ({', '.join(f'{run:.2f}' for run in runs)})", flush=True)
        rows = with_where([Row(row.what, row.bar, row.said(runs), met)], when_and_load(load))
        keep_results(RESULTS, "## The node", list(ROWS), name, rows)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
