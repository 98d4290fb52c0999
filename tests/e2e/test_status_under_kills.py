"""`./disttrain status` is right at every look while pods and ranks are killed at random.

What it says is compared with what was done, and with the metrics that the run writes on the host.
"""

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isclose

import pytest

from cli.status.judge import QUIET_SECONDS, QUIET_STEPS, RunStatus
from cli.status.snapshot import take_snapshot
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from sandbox.stack import Stack
from tests.e2e.lab import ENDLESS, NAMESPACE, SPARES, Lab, run_settings, wait_for
from trainer.events.account import account_of
from trainer.events.event import event_file, parse_events
from trainer.events.span import Kind

RUN = "e2e-killed"
SECONDS = float(os.environ.get("DISTTRAIN_KILL_SECONDS", "60"))
PODS = 3
COMES_BACK_SECONDS = 300  # enough on a busy machine; the test is about what status says, not when


@dataclass
class Kill:
    """One kill, by the clock of this machine, which is that of the node too."""

    what: str
    at: datetime


@dataclass
class Killer:
    """Kills a random pod or a random rank, gives the run some seconds, and kills again.

    It goes on until `SECONDS` have passed, and until there are enough kills and enough `looks`,
    which a slow machine does not make in that time.
    """

    lab: Lab
    random: random.Random
    looks: "list[Look]"
    kills: list[Kill] = field(default_factory=lambda: [])
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        end = time.monotonic() + SECONDS
        while not self.over.is_set() and (time.monotonic() < end or not self._are_enough()):
            pod = f"train-multipod-{self.random.randrange(PODS)}"
            way = self.random.choice([self._delete, self._kill_pod, self._kill_rank])
            self.kills.append(Kill(f"{way.__name__} {pod}", datetime.now(UTC)))
            way(pod)
            self.over.wait(self.random.uniform(1, 15))

    def _are_enough(self) -> bool:
        return len(self.looks) > SECONDS / 5 and len(self.kills) > SECONDS / 30

    def _delete(self, pod: str, *how: str) -> None:
        options = ("--ignore-not-found", "--wait=false", *how)
        if not self.lab.kubectl("delete", "pod", pod, *options):
            self.kills.pop()  # nothing was deleted: the pod was killed a moment ago

    def _kill_pod(self, pod: str) -> None:
        self._delete(pod, "--force", "--grace-period=0")

    def _kill_rank(self, pod: str) -> None:
        program = (
            "import os,signal,pathlib\n"
            "for p in pathlib.Path('/proc').glob('[0-9]*/cmdline'):\n"
            "  try: words, name = p.read_bytes().split(b'\\0'), (p.parent / 'comm').read_text()\n"
            "  except OSError: continue\n"
            "  is_spare = name.startswith('spare')\n"
            "  if b'train' in words and not is_spare: os.kill(int(p.parent.name), signal.SIGKILL)\n"
        )
        try:
            self.lab.kubectl("exec", pod, "--", "python3", "-c", program)
        except AssertionError:
            self.kills.pop()  # that pod is not running now: nothing was killed


@pytest.fixture
def stack(lab: Lab) -> Iterator[Stack]:
    """Yield a stack that is up, with an endless run of three pods."""
    settings = run_settings(RUN, ENDLESS, topology="multi-pod", **SPARES)
    settings |= {"run.eval.interval": "1000000", "run.checkpoint.interval": "20"}
    settings |= {"processesPerPod": "1"}
    made = lab.stack("e2e-killed", "sandbox", settings)
    made.set("pods", str(PODS))
    made.up()
    yield made
    made.destroy()


@dataclass
class Truth:
    """Collects every step that the run has written, with its time, also steps that a restart takes
    back.
    """

    lab: Lab
    steps: set[tuple[int, float]] = field(default_factory=lambda: set())
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.over.is_set():
            self.read()
            self.over.wait(0.2)

    def read(self) -> None:
        path = self.lab.run_dir(RUN) / "metrics.jsonl"
        for line in path.read_bytes()[-100_000:].splitlines():
            try:
                record = json.loads(line)
            except ValueError:  # the line is being written, or was read without its beginning
                continue
            self.steps.add((int(record["step"]), float(record["unix_time"])))

    def newest(self) -> int:
        """Return the step that was written last."""
        self.read()
        return max(self.steps, key=lambda pair: pair[1])[0]


@dataclass(frozen=True)
class Look:
    """What status said, between two times."""

    begin: datetime
    end: datetime
    run: RunStatus


def take_look(api: Api) -> Look:
    """Return what status says now of the only run."""
    begin = datetime.now(UTC)
    (run,) = take_snapshot(api, NAMESPACE).runs
    return Look(begin, datetime.now(UTC), run)


def trains(seen: Look) -> bool:
    return seen.run.state == "training"


def faults_of(seen: Look, steps: set[tuple[int, float]], kills: list[Kill]) -> list[str]:
    """Return what is wrong with a look, in words; empty if nothing is."""
    run, faults = seen.run, list[str]()
    allowed_states = {"training", "saving", "quiet", "recovering", "starting", "waiting", "unknown"}
    if run.state not in allowed_states:
        faults.append(f"it said {run.state}: {run.detail}")
    if run.state == "unknown" and not run.detail:
        faults.append("it said unknown without a reason")
    usual = run.progress.seconds_between_reports or 0.0
    allowed = max(QUIET_STEPS * usual, QUIET_SECONDS) + (seen.end - seen.begin).total_seconds() + 2
    end = seen.end.timestamp()
    silent = seen.begin.timestamp() - max((at for _, at in steps if at <= end), default=0.0)
    if run.state == "training" and silent > allowed:
        faults.append(f"it said training, and no step was done for {silent:.1f} s")
    lately = any(0 <= (seen.end - kill.at).total_seconds() < 120 for kill in kills)
    if run.state in ("recovering", "starting", "waiting") and not lately:
        faults.append(f"it said {run.state} ({run.detail}), and nothing had been killed")
    step = run.progress.step
    if step is not None and not any(number == step and at <= end for number, at in steps):
        faults.append(f"it said step {step}, which was never written")
    return faults


@pytest.mark.timeout(600 + SECONDS)
def test_status_is_right_at_every_look_while_pods_are_killed(
    lab: Lab, stack: Stack, record_property: Callable[[str, object], None]
) -> None:
    """At every look, status names a state and a step that were true at that time.

    It never says that a run trains while no step is made, nor that it recovers if nothing was
    killed. After the last kill the run trains again. Its own account of the time adds up to the
    whole.
    """
    seed = int(os.environ.get("DISTTRAIN_TEST_SEED", "0")) or random.randrange(1 << 30)
    print(f"seed {seed}")
    api = Api(Access(kubeconfig_path=str(lab.cluster.kubeconfig)))
    looks: list[Look] = []
    killer, truth = Killer(lab, random.Random(seed), looks), Truth(lab)
    watcher, thread = (threading.Thread(target=each.run) for each in (truth, killer))
    watcher.start()

    def is_there() -> bool:
        looks[:] = [take_look(api)]
        return trains(looks[0])

    try:
        # On a slow machine this may be the only look between a start and the next kill.
        wait_for("training before the first kill", is_there, COMES_BACK_SECONDS)
        thread.start()
        while thread.is_alive():
            looks.append(take_look(api))
            time.sleep(0.3)
    finally:
        killer.over.set()
        if thread.ident:  # the killer was started
            thread.join()
        truth.over.set()
        watcher.join()
    # The run comes back: status says so, and it makes further steps.
    after: list[Look] = []

    def is_back() -> bool:
        after.append(take_look(api))
        return trains(after[-1])

    try:
        wait_for("training", is_back, COMES_BACK_SECONDS)
    except AssertionError:
        pytest.fail(f"it does not come back: {after[-1]}; {lab.kubectl('get', 'pods')}")
    before = truth.newest()
    wait_for("further steps", lambda: truth.newest() > before, 300)
    states = {seen.run.state for seen in looks}
    record_property("looks", len(looks))
    record_property("kills", len(killer.kills))
    assert "training" in states
    assert states & {"recovering", "starting", "waiting"}
    faults = {
        f"look {number} at {seen.end:%H:%M:%S}": found
        for number, seen in enumerate(looks)
        if (found := faults_of(seen, truth.steps, killer.kills))
    }
    assert not faults, f"seed {seed}; kills: {killer.kills}; states {states}"
    # The run's own account names the time that the kubelets took for new pods.
    account = account_of(*parse_events(event_file(lab.run_dir(RUN), 0).read_bytes()))
    assert account.seconds[Kind.IMAGE] > 0
    assert account.seconds[Kind.CONTAINER] > 0
    assert isclose(sum(account.seconds.values()), account.wall_seconds)
    assert stack
