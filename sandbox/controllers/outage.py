"""A controller that is down for a while: its programs are killed, and started again."""

import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Self

from sandbox import components
from sandbox.cluster import Cluster
from sandbox.controllers import CONTROLLERS
from sandbox.controllers.controller import start_programs
from sandbox.waiting import wait_until

KUBERNETES = "kube-controller-manager"  # of Jobs and StatefulSets
END_SECONDS = 30
# With its child, where a shell has started it.
_KILL = 'kill -9 "$1" $(cat "/proc/$1/task/$1/children")'


def kill_program(cluster: Cluster, name: str) -> None:
    """Kill one program of the first node, which has no time to say or write anything.

    It is forgotten: whoever waits for something of the cluster would be told of its end.

    Raises:
        RuntimeError: it does not run.
        TimeoutError: it does not end.
    """
    node = cluster.node(1)
    if reasons := node.ended([name]):
        raise RuntimeError(reasons[0])
    assert node.holder is not None, "a program of it runs"
    pid = (node.layout.run / f"{name}.pid").read_text().split()[0]
    subprocess.run(node.holder.enter("sh", "-c", _KILL, "sh", pid), check=True)
    wait_until(
        f"{name} to end",
        lambda: None if node.ended([name]) else f"process {pid} runs",
        timeout_seconds=END_SECONDS,
    )
    node.end(name)


def kill_controller(cluster: Cluster, name: str) -> None:
    """Kill all programs of a controller, or Kubernetes' own; what it has in the cluster stays.

    Args:
        cluster: where it runs.
        name: of `CONTROLLERS`, or `KUBERNETES`.

    Raises:
        RuntimeError, TimeoutError: see `kill_program`.
    """
    programs = CONTROLLERS[name].programs if name != KUBERNETES else ()
    for program in [each.name for each in programs] or [name]:
        kill_program(cluster, program)


def start_again(cluster: Cluster, name: str) -> None:
    """Start what `kill_controller` has killed, as it was started before.

    Raises:
        RuntimeError: a program has ended.
        TimeoutError: a program does not answer.
    """
    if name != KUBERNETES:
        start_programs(cluster, CONTROLLERS[name])
        return
    node = cluster.node(1)
    assert node.link is not None, "the cluster is up"
    made = components.later_components(node.layout, node.link, node.bin_dir)
    node.start([each for each in made if each.name == KUBERNETES])


class Outage:
    """Controllers that are down, until so many seconds have passed or it is left.

    Args:
        cluster: where they run.
        names: as `kill_controller` takes them; they are started again in this order.
        seconds: after which they are started again all the same.
    """

    def __init__(self, cluster: Cluster, names: Sequence[str], seconds: float) -> None:
        self._cluster, self._names, self._seconds = cluster, names, seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: Exception | None = None
        self.ended = 0.0
        """When they were started again, by the clock of this machine; 0: not yet."""

    def __enter__(self) -> Self:
        killed = list[str]()
        try:
            for name in reversed(self._names):
                kill_controller(self._cluster, name)
                killed.append(name)
        except BaseException:
            for name in reversed(killed):
                start_again(self._cluster, name)
            raise
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Start the controllers again.

        Raises:
            RuntimeError, TimeoutError: see `start_again`.
        """
        self._over.set()
        self._thread.join()
        if self._failure:
            raise self._failure

    def _run(self) -> None:
        self._over.wait(self._seconds)
        self.ended = time.time()
        try:
            for name in self._names:
                start_again(self._cluster, name)
        except Exception as failure:
            self._failure = failure
