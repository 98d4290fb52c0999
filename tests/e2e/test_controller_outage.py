"""The controller of a kind is killed, and then a rank or a pod of the run is lost.

Kubernetes' own controllers carry out the kinds that need no other controller. `make test-engines`
runs this file; `bench.kinds` measures how long the same takes.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pytest

from bench.kinds import KINDS, Kind
from bench.kinds_faults import kill_rank
from sandbox.controllers import CONTROLLERS
from sandbox.controllers.controller import running
from sandbox.controllers.outage import Outage
from sandbox.stack import Stack
from tests.e2e.asking import evict, training_pods, wait_for_first_checkpoint
from tests.e2e.lab import ENDLESS, Lab, run_settings, wait_for
from trainer.events.event import Name, event_file, parse_events
from trainer.launch.pod_failures import PLACE
from trainer.launch.run_log import log_path

NEEDED = tuple(dict.fromkeys(name for kind in KINDS.values() for name in kind.controllers))
NODES = 2
LIMIT_SECONDS = 300
LAST_CHARACTERS = 10_000  # of the log, shown in a failure
LONGER_SECONDS = 2 * LIMIT_SECONDS  # longest outage; the test ends it earlier
STEP_OF_RANK_0 = re.compile(r" 0 0 step (\d+)/")
SAVED = re.compile(r" checkpoint step-(\d+) saved ")
ROUND = re.compile(r"\[node 0\] round \d+: ")
COUNTED = re.compile(r"\((?:pod )?restart \d+ of ")


@dataclass(frozen=True)
class Trains:
    """A run that trains and has saved a checkpoint."""

    lab: Lab
    stack: Stack
    kind: Kind
    run_name: str

    def steps(self) -> list[int]:
        """Return the steps in the order in which they were made; one that was made twice is in it
        twice.
        """
        return [int(step) for step in STEP_OF_RANK_0.findall(self.log())]

    def log(self) -> str:
        """Return what all nodes have printed so far."""
        newest = [log_path(self.lab.run_dir(self.run_name), node) for node in range(NODES)]
        files = [file for path in newest for file in sorted(path.parent.glob(f"{path.name}.*"))]
        return "".join(file.read_text() for file in [*files, *newest] if file.exists())

    def saved(self) -> list[int]:
        """Return the steps of which a checkpoint was put in place."""
        return [int(step) for step in SAVED.findall(self.log())]

    def rounds(self) -> int:
        """Return how often the ranks were started."""
        return len(ROUND.findall(self.log()))

    def starts(self) -> list[int]:
        """Return how often each node's pod was started, as the pods themselves have noted it."""
        files = [event_file(self.lab.run_dir(self.run_name), node) for node in range(NODES)]
        found = [parse_events(file.read_bytes())[0] for file in files if file.exists()]
        return [sum(event.name == Name.POD_STARTED for event in events) for events in found]

    def pods(self) -> dict[str, str]:
        """Return the uid of each living pod, by its name."""
        uids = self.lab.uids("pod")
        names = [name.removeprefix("pod/") for name in training_pods(self.lab, self.stack)]
        return {name: uids[f"Pod/{name}"] for name in names if f"Pod/{name}" in uids}

    def pod(self, node: int) -> str:
        """Return the name of the living pod of a node; -1 stands for the last node."""
        given = self.kind.pods[node]
        is_begin = given.endswith("-")
        (name,) = (n for n in self.pods() if n == given or (is_begin and n.startswith(given)))
        return name

    def failed_pods(self) -> int:
        """Return how many failed pods the run counts against `run.train.max_pod_failures`."""
        path = self.lab.run_dir(self.run_name) / PLACE
        return json.loads(path.read_text())["failures"] if path.exists() else 0

    def wait_for_steps(self, after: int) -> None:
        """Wait until there is a checkpoint of a step beyond this one."""
        wait_for(f"a save after {after}", lambda: max(self.saved()) > after, LIMIT_SECONDS)


@pytest.fixture(scope="module")
def served(lab: Lab) -> Iterator[Lab]:
    with running(lab.cluster, [CONTROLLERS[name] for name in NEEDED]):
        yield lab


@pytest.fixture(scope="module")
def stack(served: Lab) -> Iterator[Stack]:
    made = served.stack("e2e-outage", "sandbox", {})
    yield made
    made.destroy()


@pytest.fixture(scope="module", params=KINDS)
def trains(request: pytest.FixtureRequest, served: Lab, stack: Stack) -> Trains:
    kind, run_name = KINDS[request.param], f"e2e-outage-{request.param}"
    several = len(kind.pods) > 1
    shape = {"pods": str(NODES) if several else None, "processesPerPod": "1" if several else "2"}
    stack.set_all({"topology": request.param, **run_settings(run_name, ENDLESS), **shape})
    stack.up()
    wait_for_first_checkpoint(served, run_name)
    return Trains(served, stack, kind, run_name)


def test_killed_rank_comes_back_without_the_controller(trains: Trains) -> None:
    """A killed rank comes back while the controller is down, and all pods stay.

    Only the steps since the last checkpoint are made again. When the controller is back, it finds
    nothing to do.
    """
    run, lab = trains, trains.lab
    pods, starts, made = run.pods(), run.starts(), run.steps()
    rounds = run.rounds()
    with Outage(lab.cluster, run.kind.carried_out_by, LONGER_SECONDS) as away:
        kill_rank(lab, run.pod(0))
        wait_for("a new round", lambda: run.rounds() > rounds, LIMIT_SECONDS)
        run.wait_for_steps(made[-1])
        assert not away.ended
    run.wait_for_steps(run.steps()[-1])
    assert run.pods() == pods
    assert run.starts() == starts
    assert run.failed_pods() == 0
    assert run.rounds() == rounds + 1
    again = breaks(run.steps()[len(made) - 1 :])
    assert len(again) <= 1  # none if the rank was killed just after a save
    for last, first in again:
        assert first <= last
        assert first - 1 in run.saved()


def test_evicted_pod_comes_back_with_the_controller(trains: Trains) -> None:
    """A pod that is evicted while the controller is down comes back when the controller is back.

    The pod has saved before it ended, so no step is lost or made twice, and no restart is counted.
    Each pod is made anew at most once.
    """
    run, lab = trains, trains.lab
    pods, starts, made, counted = run.pods(), run.starts(), run.steps(), count(run)
    evicted = run.pod(-1)
    with Outage(lab.cluster, run.kind.carried_out_by, LONGER_SECONDS) as away:
        evict(lab, evicted)
        gone = pods[evicted]
        wait_for("the pod's end", lambda: gone not in run.pods().values(), LIMIT_SECONDS)
        assert not away.ended
    run.wait_for_steps(run.steps()[-1])
    assert gone not in run.pods().values()
    assert len(run.pods()) == len(pods)
    again = [after - before for before, after in zip(starts, run.starts(), strict=True)]
    assert again[-1] == 1
    assert max(again) == 1
    assert run.failed_pods() == 0
    assert count(run) == counted, run.log()[-LAST_CHARACTERS:]
    assert breaks(run.steps()[len(made) - 1 :]) == []


def breaks(steps: list[int]) -> list[tuple[int, int]]:
    """Return each two steps that were made one after the other and are not neighbours."""
    return [(one, two) for one, two in pairwise(steps) if two != one + 1]


def count(run: Trains) -> int:
    """Return how many restarts the nodes have counted against a limit."""
    return len(COUNTED.findall(run.log()))
