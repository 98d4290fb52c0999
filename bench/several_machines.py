"""Measures how long several machines take to join, to be examined, and to recover from a loss.

`python -m bench.node` uses it, with the hosts of tests/node and the nodes of the sandbox.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bench.clock import seconds_of
from cli.doctor.command import examine
from sandbox.namespaces import find_holder
from sandbox.stack import Stack
from tests.e2e.asking import people_run
from tests.e2e.lab import ENDLESS, Lab, run_settings
from tests.e2e.test_several_nodes import places, spread
from tests.node import lab as node
from tests.node.lan import NAMES, Lan
from tests.node.releases import Source, publish

RUN, NAMED_RUN, FIRST_RUN = "bench-lost-node", "bench-named-node", "bench-first-step"
SHARED = {"podCidr": "10.244.0.0/16", "storageOptions.shared": "true"}
INSTALLER_SECONDS = 10


@contextmanager
def hosts(scratch: Path, further: Sequence[str] = NAMES) -> Iterator[Lan]:
    """The first host, and further hosts with these names. None of them has k3s."""
    lab = node.Lab(scratch, Source(None, "for the bench"))
    try:
        lan = Lan(lab, further)
        try:
            yield lan
        finally:
            lan.close()
    finally:
        lab.close()


def joins(scratch: Path, times: int) -> list[float]:
    """Seconds that two further machines add to `pulumi up` of the first one, for each pair."""
    found: list[float] = []
    with hosts(scratch) as lan:
        _slow_installer(lan.lab)
        for _ in range(times):
            taken: list[float] = []
            for names in ((), NAMES):
                stack = lan.stack(*names)
                taken.append(seconds_of(stack.up))
                stack.destroy()
                lan.clean()
            found.append(taken[1] - taken[0])
    return found


def _slow_installer(lab: node.Lab) -> None:
    """Let the installer take longer, as one does that waits for the system's package manager."""
    folder = lab.mirror.folder / "k3s" / node.VERSION
    text = (folder / "install.sh").read_text()
    slow = text.replace("set -eu\n", f"set -eu\nsleep {INSTALLER_SECONDS}\n", 1)
    assert slow != text
    publish(folder, "install.sh.sha256sum", {"install.sh": slow})


def doctors(scratch: Path, times: int) -> list[float]:
    """Seconds of the doctor's examination of eight hosts over SSH, alone and in pairs."""
    with hosts(scratch, [f"gpu-{number}" for number in range(2, 9)]) as lan:
        whole = lan.doctor_plan()
        examine(replace(whole, machines=()))
        return [seconds_of(lambda: examine(whole)) for _ in range(times)]


def first_steps(lab: Lab, times: int) -> list[float]:
    """Seconds of `pulumi up` of a new stack with a pod on each of three nodes.

    It ends when the ranks of all pods have made a step. A first `up`, which does not count, brings
    the image to each node.
    """
    found: list[float] = []
    lab.cluster.up(3)
    try:
        for number in range(times + 1):
            chosen = {**run_settings(f"{FIRST_RUN}-{number}", ENDLESS), **SHARED, **spread(lab)}
            stack = lab.stack("bench-first-step", "sandbox", {**chosen, "pods": "3"})
            try:
                found.append(seconds_of(stack.up))
                assert len(set(places(lab).values())) == 3
            finally:
                stack.destroy()
    finally:
        lab.cluster.up(1)
    return found[1:]


def three_nodes(lab: Lab, times: int) -> list[float]:
    """Seconds of `python3 -m sandbox up --nodes 3`, from nothing to three nodes that are Ready."""
    found: list[float] = []
    for _ in range(times):
        lab.cluster.down()
        found.append(seconds_of(lambda: lab.cluster.up(3)))
        lab.cluster.up(1)
    return found


def losses(lab: Lab, times: int) -> list[float]:
    """Seconds from the last step before the loss of a node to the first step after it."""
    return [_with_spare(lab, f"{RUN}-{number}", _lose_one) for number in range(times)]


def namings(lab: Lab, times: int) -> list[float]:
    """Seconds from the loss of a node to the end of the `./disttrain status` that names it."""
    return [_with_spare(lab, f"{NAMED_RUN}-{number}", _name_one) for number in range(times)]


def _with_spare(lab: Lab, name: str, measure: Callable[[Lab, Stack, str], float]) -> float:
    """What `measure` returns for a run with two pods on three nodes."""
    lab.cluster.up(3)
    often = {"run.checkpoint.interval": "10", "lostNodes": "replace"}
    chosen = {**run_settings(name, ENDLESS), **SHARED, **often}
    stack = lab.stack("bench-lost", "sandbox", {**chosen, **spread(lab)})
    try:
        stack.up()
        return measure(lab, stack, name)
    finally:
        stack.destroy()
        lab.cluster.up(1)


def _lose(lab: Lab, run_name: str) -> str:
    """End a further node that has a pod, as if its power had failed, and return its name."""
    first = f"sandbox-{lab.cluster.name}"
    lost = next(place for place in places(lab).values() if place != first)
    node.wait_for("a checkpoint", lambda: max(lab.losses(run_name), default=0) > 20, 300)
    holder = find_holder(lab.cluster.layout.node(int(lost.removeprefix(f"{first}-"))))
    assert holder is not None
    holder.end()
    return lost


def _lose_one(lab: Lab, _: Stack, run_name: str) -> float:
    _lose(lab, run_name)
    metrics = lab.run_dir(run_name) / "metrics.jsonl"
    begin = metrics.stat().st_mtime
    made = max(lab.losses(run_name))
    node.wait_for("a step", lambda: max(lab.losses(run_name)) > made, 300)
    return metrics.stat().st_mtime - begin


def _name_one(lab: Lab, stack: Stack, run_name: str) -> float:
    lost = _lose(lab, run_name)
    begin = time.monotonic()

    def named() -> bool:
        # `status` ends with 1 if a run needs attention, as this one does once a pod is lost.
        status = f"./disttrain status --stack {stack.name} --json || test $? -eq 1"
        platform = json.loads(people_run(lab, stack, status))["platform"]
        return lost in {*platform["silent"], *platform["not_ready"]}

    node.wait_for("status to name the node", named, 300)
    return time.monotonic() - begin
