"""A real API server behind the stand-in of k3s: etcd, kube-apiserver and a few controllers.

They are the sandbox's programs with the sandbox's options, in a network namespace of their own.
Only the stand-in reaches them, by sockets in a folder that the test host shares. There is no
kubelet and no scheduler, so no pod ever runs. They are started only once; each newly installed k3s
begins with an empty database (stand_in/cluster.py).
"""

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from ipaddress import IPv4Network
from pathlib import Path

from sandbox import components
from sandbox.cluster_commands import programs
from sandbox.kubeconfig import write_kubeconfig
from sandbox.layout import Layout
from sandbox.network import Link
from sandbox.pki import make_pki
from sandbox.processes import Component
from sandbox.waiting import wait_until
from tests.node import relay
from tests.node.stand_in import cluster

LINK = Link(IPv4Network("198.18.0.0/30"))  # its addresses are on the namespace's own loopback
MANAGER = "kube-controller-manager"
# The controllers that the tests need. Volumes become available and are bound to claims. An object
# that the engine deletes waits for the objects that belong to it. Namespaces are deleted with their
# content. A pod cannot be made before its namespace has the service account `default`.
CONTROLLERS = "--controllers=" + ",".join(
    (
        "persistentvolume-binder-controller",
        "garbage-collector-controller",
        "namespace-controller",
        "serviceaccount-controller",
    )
)
# With this admission plugin the deletion of a namespace takes 8 s longer, because a controller
# checks whether pods still use its claims. No pod ever runs here.
WITHOUT = "--disable-admission-plugins=StorageObjectInUseProtection"
START_SECONDS = 120


class ApiServer:
    """A running API server, which the caller has to close.

    Args:
        scratch: the folder for all files; its path must be short enough for sockets.

    Raises:
        RuntimeError: a program has ended; its log is below `scratch`.
        TimeoutError: a program did not become ready; its log is below `scratch`.
    """

    folder: Path
    """The folder that the test host shares: sockets, the administrator's certificate, programs."""

    def __init__(self, scratch: Path) -> None:
        layout = Layout("api", scratch)
        self.folder = layout.run
        layout.log.mkdir(parents=True)
        make_pki(layout.pki, components.certificates(layout, LINK))
        write_kubeconfig(
            layout.run / f"{MANAGER}.kubeconfig",
            server=f"https://{LINK.node}:{components.API_PORT}",
            name=layout.name,
            pki=layout.pki,
            certificate=MANAGER,
        )
        for file in (programs() / "kubectl", *Path(cluster.__file__).parent.glob("*.py")):
            shutil.copy(file, self.folder)
        shutil.copy(programs() / "etcd", self.folder / cluster.ETCD_PROGRAM)
        self._process = subprocess.Popen(
            [
                *("setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--pid", "--fork"),
                *("--kill-child", "sh", "-euc", script(layout)),
            ],
            stdin=subprocess.DEVNULL,
        )
        try:
            wait_until("the API server", self._not_ready, timeout_seconds=START_SECONDS)
            (self.folder / "ready").touch()
            wait_until("its controllers", self._no_account, timeout_seconds=START_SECONDS)
        except BaseException:
            self.close()
            raise
        first = sorted(cluster.keys(self.folder))
        (self.folder / cluster.FIRST_KEYS).write_text(json.dumps(first))

    def get(self, path: str) -> object:
        """Return the object at a path, read without k3s. Raise OSError if there is none."""
        api = cluster.Socket(self.folder / "api.sock", cluster.administrator(self.folder))
        return cluster.ask(api, "GET", path)

    def _not_ready(self) -> str | None:
        return self._missing("/readyz")

    def _no_account(self) -> str | None:
        return self._missing("/api/v1/namespaces/default/serviceaccounts/default")

    def _missing(self, path: str) -> str | None:
        if self._process.poll() is not None:
            raise RuntimeError(f"it has ended; see the logs in {self.folder.parent / 'log'}")
        try:
            self.get(path)
        except OSError as reason:
            return str(reason)
        return None

    def close(self) -> None:
        """End all programs."""
        self._process.kill()
        self._process.wait()


def script(layout: Layout) -> str:
    """Return the shell script of process 1 of the namespaces.

    All programs end when it is killed.
    """
    bin_dir = programs()
    first = {c.name: c for c in components.first_components(layout, LINK, bin_dir)}
    later = {c.name: c for c in components.later_components(layout, LINK, bin_dir)}
    address = f"{LINK.node}:{components.API_PORT}"
    passing_on = (sys.executable, relay.__file__, str(layout.run / "api.sock"), address)
    return "\n".join(
        [
            f"ip link set lo up; ip address add {LINK.node}/32 dev lo",
            in_background(layout, first["etcd"]),
            in_background(layout, first["kube-apiserver"], WITHOUT),
            in_background(layout, Component("relay", passing_on)),
            f"until [ -e {layout.run}/ready ]; do sleep 0.1; done",
            in_background(layout, later[MANAGER], CONTROLLERS),
            "wait",
        ]
    )


def in_background(layout: Layout, component: Component, *options: str) -> str:
    """Return the line of the shell script that starts a program, with its log in a file."""
    words: Sequence[str] = (*component.command, *options)
    return f"{shlex.join(words)} >{layout.log / component.name}.log 2>&1 &"
