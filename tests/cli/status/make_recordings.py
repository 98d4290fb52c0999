"""Records the states again: `python -m tests.cli.status.make_recordings [KIND ...]`, as root.

On a cluster of the sandbox with the real controllers, a run of each kind is brought into one state
after the other. The state that `status` has to show follows from what was done to the run and from
the API server's answers, and never from `status` itself. The answers of the API server go to the
folder `recorded`, a file for each state; `test_recorded.py` reads them.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.kinds import KINDS
from bench.kinds_faults import kill_rank
from infra.kube.api_server.access import Access
from infra.kube.api_server.client import Client
from infra.workloads import WORKLOADS
from infra.workloads.kind import WorkloadKind
from sandbox.cluster import Cluster
from sandbox.controllers import CONTROLLERS
from sandbox.controllers.controller import running
from sandbox.dataset import training_text
from sandbox.stack import PulumiFailedError, Stack
from tests.cli.status.save_gate import SETTINGS, SaveGate
from tests.cli.status.shown import (
    Shown,
    anything,
    has_failed,
    has_finished,
    has_no_live_pod,
    is_long_over,
    lacks_image,
    recovers,
    saves_before_it_ends,
    starts,
    trains,
    waits_for_node,
    waits_for_save,
)
from tests.cli.status.tape import Asked, Recording, see_only_run, write
from tests.e2e.asking import people_run, training_pods
from tests.e2e.conftest import build_image, cluster_with_image
from tests.e2e.engines import MPIJOB
from tests.e2e.lab import ENDLESS, Lab, run_settings, wait_for
from tests.e2e.queue_guest import CPU, QUEUE, URGENT, end_others, start_others

NAME = "recorded"
CLUSTER = "e2e-recorded"
KEPT = "localhost/disttrain-recorded/kept:latest"
PODS = 2
QUEUED = ("indexed-job", "jobset", "trainjob", "pytorchjob", "mpijob")
NEVER_FAIL = ("multi-pod", "lws")  # their pods belong to StatefulSets, which never fail
LIMIT_SECONDS = 180
FATAL = {"run.train.initial_weights": "/data/no-such-weights"}


class Recorder:
    """Brings runs into states, and records them."""

    def __init__(self, lab: Lab, stack: Stack) -> None:
        self.lab, self.stack, self.wrong = lab, stack, list[str]()
        self.client = Client(Access(kubeconfig_path=str(lab.cluster.kubeconfig)))

    def take(
        self, name: str, state: str, how: str, is_so: Callable[[Shown], bool] = anything
    ) -> None:
        """Ask for the run's state until `is_so` accepts the answers, and record these."""

        def look() -> list[Asked]:
            recording = Recording(self.client)
            said.append(see_only_run(recording).state)
            return recording.asked if is_so(Shown(recording.asked)) else []

        said = list[str]()
        asked = wait_for(f"{name}: {how}", look, LIMIT_SECONDS, 0.3)
        write(name, state, how, asked)
        print(f"{time.strftime('%X')} {name}: {state}, status says {said[-1]}", flush=True)
        if said[-1] != state:
            self.wrong.append(name)

    def settings(self, kind: WorkloadKind, run_name: str, steps: int) -> dict[str, str | None]:
        """Return the settings of a run of two ranks."""
        several = {"pods": str(PODS), "processesPerPod": "1"}
        alone = {"pods": None, "processesPerPod": str(PODS)}
        shape: dict[str, str | None] = {**(several if kind.several_pods else alone)}
        return {**run_settings(run_name, steps), "topology": kind.name, **shape}

    def of_kind(self, kind: WorkloadKind) -> None:
        """Record all states of a run of this kind outside of a queue."""
        name, lab, stack = kind.name, self.lab, self.stack
        stack.set_all({"queue": None, **self.settings(kind, f"r-{name}", ENDLESS)})
        stack.up()
        self.take(f"{name}-trains", "training", "pulumi up has ended", trains)
        self._without_node_and_image(kind)
        self.take(f"{name}-trains-again", "training", "the image is back", trains)
        first = sorted(training_pods(lab, stack))[0].removeprefix("pod/")
        kill_rank(lab, first)
        self.take(f"{name}-recovers", "recovering", "a rank was killed", recovers)
        self.take(f"{name}-has-recovered", "training", "a rank was killed", trains)
        people_run(lab, stack, f"./disttrain stop --stack {stack.name}")
        self.take(f"{name}-stopped", "stopped", "./disttrain stop has ended")
        stack.set_all(self.settings(kind, f"r-{name}-short", 20))
        stack.up()
        lab.wait_done(f"r-{name}-short")
        self.take(f"{name}-finished", "finished", "all steps were made", has_finished)
        self.saving(kind)
        self._failed(kind)
        typed = f"{kind.kind.lower()}.{kind.api_version.partition('/')[0]}"
        lab.kubectl("delete", typed, kind.object_name)
        self.take(f"{name}-gone", "gone", "somebody has deleted its workload", is_long_over)

    def _without_node_and_image(self, kind: WorkloadKind) -> None:
        lab, stack = self.lab, self.stack
        node, image = lab.get("nodes")["items"][0]["metadata"]["name"], stack.output("image")
        old = training_pods(lab, stack)
        uids = {uid for pod, uid in lab.uids("pod").items() if pod.lower() in old}
        lab.kubectl("cordon", node)
        lab.ctr("images", "tag", "--force", image, KEPT)
        lab.ctr("images", "rm", image)
        try:
            lab.kubectl("delete", *old)
            waits = f"{kind.name}-waits-for-node"
            self.take(
                waits,
                "waiting",
                "its pods were deleted, and the node takes no new ones",
                lambda shown: (
                    waits_for_node(shown)
                    and not uids & {pod["metadata"]["uid"] for pod in shown.pods}
                ),
            )
            lab.kubectl("uncordon", node)
            self.take(f"{kind.name}-no-image", "failing", "its image is not there", lacks_image)
        finally:
            lab.kubectl("uncordon", node)
            lab.ctr("images", "tag", "--force", KEPT, image)
        pods = PODS if kind.several_pods else 1
        self.take(f"{kind.name}-starts", "starting", "its image is back", partial(starts, pods))

    def saving(self, kind: WorkloadKind) -> None:
        """Record a run while it saves, and while it saves before a stop.

        The save is held up until the answers are recorded. Otherwise the state in which a run is
        told to stop and still writes would be over too soon.
        """
        lab, name, stack = self.lab, kind.name, self.stack
        with self._save_that_takes_long(kind, f"r-{name}-saves", None) as gate:
            self.take(f"{name}-saving", "saving", "its checkpoint takes long", waits_for_save)
            stop = f"./disttrain stop --stack {stack.name}"
            how = "./disttrain stop, while its checkpoint takes long"
            with meanwhile(lambda: people_run(lab, stack, stop), gate):
                self.take(f"{name}-saves-and-stops", "saving", how, saves_before_it_ends)

    def saving_in_queue(self, kind: WorkloadKind) -> None:
        """Record a run that still saves while work of a higher priority preempts it."""
        lab, name = self.lab, kind.name
        with self._save_that_takes_long(kind, f"r-{name}-gives-way", QUEUE) as gate:
            how = "work of a higher priority gets its place, while its checkpoint takes long"
            with meanwhile(lambda: start_others(lab, URGENT, URGENT), gate):
                self.take(f"{name}-saves-and-gives-way", "saving", how, saves_before_it_ends)
            end_others(lab, URGENT)

    @contextmanager
    def _save_that_takes_long(
        self, kind: WorkloadKind, run_name: str, queue: str | None
    ) -> Iterator[SaveGate]:
        stack, gate = self.stack, SaveGate(self.lab.cluster)
        stack.set_all({"queue": queue, **self.settings(kind, run_name, ENDLESS), **SETTINGS})
        stack.up()
        gate.close()
        try:
            yield gate
        finally:
            gate.open()
            stack.set_all(dict.fromkeys(SETTINGS))

    def _failed(self, kind: WorkloadKind) -> None:
        stack = self.stack
        more = MPIJOB.no_retry if kind is MPIJOB.kind else {}
        settings = self.settings(kind, f"r-{kind.name}-fatal", 20)
        stack.set_all({**settings, **FATAL, **more})
        try:
            with pytest.raises(PulumiFailedError, match="training failed"):
                stack.up()
        finally:
            stack.set_all(dict.fromkeys((*FATAL, *more)))
        state = "failing" if kind.name in NEVER_FAIL else "failed"
        is_so = anything if state == "failing" else partial(has_failed, kind)
        self.take(f"{kind.name}-fatal", state, "its initial weights are not there", is_so)

    def in_queue(self, kind: WorkloadKind) -> None:
        """Record the states in a queue of Kueue: preempted, stopped there, queued at the start."""
        name, lab, stack = kind.name, self.lab, self.stack
        stack.set_all({"queue": QUEUE, **self.settings(kind, f"r-{name}-queue", ENDLESS)})
        stack.up()  # the first `up` also makes the platform with its queue
        self.take(f"{name}-admitted", "training", "its queue has room for it", trains)
        start_others(lab, URGENT, URGENT)
        wait_for("the pods to go", lambda: not training_pods(lab, stack), LIMIT_SECONDS)
        self.take(f"{name}-preempted", "queued", "work of a higher priority has its place")
        people_run(lab, stack, f"./disttrain stop --stack {stack.name}")
        self.take(f"{name}-stopped-in-queue", "stopped", "./disttrain stop, while it waited")
        end_others(lab, URGENT)
        start_others(lab, "others")
        stack.set_all(self.settings(kind, f"r-{name}-queued", ENDLESS))
        stack.up()
        self.take(f"{name}-queued", "queued", "others have all of its queue", has_no_live_pod)
        end_others(lab, "others")
        self.take(f"{name}-admitted-late", "training", "others have left its queue", trains)
        self.saving_in_queue(kind)


@contextmanager
def meanwhile(work: Callable[[], object], gate: SaveGate) -> Iterator[None]:
    """Run `work` in a thread during the block; then open the gate, so that `work` can end."""
    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(work)
        try:
            yield
        finally:
            gate.open()
        done.result()


@contextmanager
def prepared(scratch: Path, kinds: Sequence[WorkloadKind], queues: bool) -> Iterator[Recorder]:
    """Yield a recorder on a cluster with the controllers of the kinds, and with a queue if
    asked.
    """
    cluster: Cluster = cluster_with_image(CLUSTER, scratch)
    try:
        cluster.up()
        lab = Lab(cluster, scratch, training_text().path)
        build_image(lab)
        needed = {name for kind in kinds for name in KINDS[kind.name].controllers}
        needed |= {"kueue"} if queues else set()
        wanted = [each for name, each in CONTROLLERS.items() if name in needed]
        queue: dict[str, Any] = {
            "queues.name": QUEUE,
            "queues.quota.cpu": CPU,
            f"queues.priorities.{URGENT}": "1000",
        }
        with ExitStack() as undo:
            undo.enter_context(running(cluster, wanted))
            stack = lab.stack(NAME, "sandbox", queue if queues else {})
            undo.callback(stack.destroy)
            yield Recorder(lab, stack)
    finally:
        cluster.down(purge=True)


def main(words: Sequence[str] | None = None) -> int:
    """Record; return 1 if `status` said another word than it has to, otherwise 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--queues", choices=("also", "only", "not"), default="also")
    parser.add_argument("--saving", action="store_true", help="only of a run that saves")
    options = parser.parse_args(words)
    kinds = [WORKLOADS[name] for name in options.kinds or WORKLOADS]
    with (
        tempfile.TemporaryDirectory() as folder,
        prepared(Path(folder), kinds, options.queues != "not") as recorder,
    ):
        for kind in kinds if options.queues != "only" else []:
            (recorder.saving if options.saving else recorder.of_kind)(kind)
        for kind in kinds if options.queues != "not" else []:
            if kind.name in QUEUED:
                (recorder.saving_in_queue if options.saving else recorder.in_queue)(kind)
    print(f"wrong: {', '.join(recorder.wrong) or 'none'}")
    return int(bool(recorder.wrong))


if __name__ == "__main__":
    sys.exit(main())
