"""Lets a controller be down for a while: kills its programs, and starts them again."""

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

KUBERNETES = "kube-controller-manager"  # Kubernetes' own controllers, as of Jobs, StatefulSets
END_SECONDS = 30
# Kills a process and its children: Kueue is the child of a shell.
_KILL = 'kill -9 "$1" $(cat "/proc/$1/task/$1/children")'


def kill_program(cluster: Cluster, name: str) -> None:
    """Kill one program of the first node with SIGKILL, so that it can write nothing more.

    The file with the program's PID is removed. Otherwise everything that waits for the cluster
    would fail because the program has ended.

    Raises:
        RuntimeError: the program does not run.
        TimeoutError: the program does not end.
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
    """Kill all programs of a controller, or Kubernetes' own. Its objects in the cluster stay.

    Args:
        cluster: the cluster in which the controller runs.
        name: a name in `CONTROLLERS`, or `KUBERNETES`.

    Raises:
        RuntimeError, TimeoutError: see `kill_program`.
    """
    programs = CONTROLLERS[name].programs if name != KUBERNETES else ()
    for program in [each.name for each in programs] or [name]:
        kill_program(cluster, program)


def start_again(cluster: Cluster, name: str) -> None:
    """Start the programs that `kill_controller` has killed, as they were started at first.

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
    """A context in which controllers are down, for `seconds` or until its end if that is sooner.

    Args:
        cluster: the cluster in which the controllers run.
        names: names as `kill_controller` takes them. The controllers start again in this order.
        seconds: the longest time for which they are down.
    """

    def __init__(self, cluster: Cluster, names: Sequence[str], seconds: float) -> None:
        self._cluster, self._names, self._seconds = cluster, names, seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: Exception | None = None
        self.ended = 0.0
        """Unix time, in seconds, at which they were started again; 0 before that."""

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
        """Start the controllers again, unless they were already started.

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
