"""Starts, stops and checks a real Kubernetes of one or several nodes, each in Linux namespaces."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sandbox import components, configuration
from sandbox.checks import checks_of_cluster, checks_of_node, lacking, missing_api
from sandbox.folder_lock import locked_folder
from sandbox.further_nodes import join_cluster
from sandbox.layout import MOST_NODES, STATE_ROOT, Layout
from sandbox.node import Node
from sandbox.peer_links import PeerLink, disconnect_node
from sandbox.pki import make_pki
from sandbox.preflight import problems, require_root_on_linux
from sandbox.say import say

__all__ = ["STATE_ROOT", "Cluster", "ClusterStatus"]


@dataclass(frozen=True)
class ClusterStatus:
    """State of a cluster: `up` (all nodes are Ready), `down` (nothing runs) or `broken`.

    `problems` says what is broken. `nodes` maps the name of each running node to its address.
    """

    name: str
    state: Literal["up", "down", "broken"]
    problems: tuple[str, ...] = ()
    node_ip: str | None = None
    nodes: Mapping[str, str] = field(default_factory=dict[str, str])


class Cluster:
    """The cluster `name`, whose state is below `state_root/name`.

    Args:
        name: 1 to 30 characters, each a-z, 0-9 or '-'.
        bin_dir: folder with `components.PROGRAMS`; None is enough for `down`, `status` and `logs`.
        state_root: folder that holds the folders of all clusters.

    Raises:
        ValueError: the name or the state folder cannot be used.
    """

    def __init__(self, name: str, bin_dir: Path | None, state_root: Path = STATE_ROOT) -> None:
        self.layout = Layout(name, state_root)
        self._bin_dir = bin_dir
        self._first = Node(self.layout, bin_dir)

    @property
    def bin_dir(self) -> Path:
        """Folder with the cluster's programs."""
        return self._first.bin_dir

    @property
    def name(self) -> str:
        """Name of the cluster."""
        return self.layout.name

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig; the file exists while the cluster is up."""
        return self.layout.kubeconfig

    @property
    def containerd_address(self) -> Path:
        """The first node's containerd: its socket, for `ctr --address` on the host."""
        return self.layout.containerd_socket

    @property
    def data_root(self) -> Path:
        """Folder for hostPath volumes; it is the same on the host and on all nodes."""
        return self.layout.data

    @property
    def node_ip(self) -> str | None:
        """Address of the first node as reached from the host; None when the cluster is down."""
        return self._first.address

    def node(self, number: int) -> Node:
        """Node `number` of the cluster, counted from 1.

        Raises:
            ValueError: the cluster has no such node.
        """
        found = {node.layout.number: node for node in (self._first, *self._further())}
        if number not in found:
            there = ", ".join(map(str, found))
            raise ValueError(f"cluster {self.name} has no node {number}; there are: {there}")
        return found[number]

    def peer_link(self, number: int) -> PeerLink:
        """The link between a further node and the others, to be cut, slowed down or mended.

        Raises:
            ValueError: there is no such node, or it is node 1, to which all links lead.
            RuntimeError: one of the two nodes is down.
        """
        node, first = self.node(number).holder, self._first.holder
        if number == 1:
            raise ValueError("the links lead to node 1: name another node")
        if node is None or first is None:
            raise RuntimeError(f"cluster {self.name} is broken: run `up` first")
        return PeerLink(first, node, number)

    @property
    def kubectl(self) -> list[str]:
        """The first words of a kubectl command line. Behind a proxy, run it in `environment()`."""
        return [str(self.bin_dir / "kubectl"), f"--kubeconfig={self.kubeconfig}"]

    def environment(self) -> dict[str, str]:
        """This process's environment, with KUBECONFIG, PATH and NO_PROXY set for the cluster."""
        values = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        values["PATH"] = f"{self.bin_dir}:{values.get('PATH', components.SYSTEM_PATH)}"
        for name in ("NO_PROXY", "no_proxy"):
            parts = [part for part in (values.get(name), self.node_ip) if part]
            values[name] = ",".join(parts)
        return values

    def up(self, nodes: int | None = None) -> None:
        """Start the cluster and return when its nodes take pods; do nothing if they do already.

        `up` first removes what a broken or killed cluster of this name has left. While the first
        node works, `up` starts only those further nodes that are missing or broken. If fewer nodes
        are wanted than there are, it removes the last ones with everything that runs on them.

        Args:
            nodes: how many nodes the cluster shall have; None: as many as there are, or one.

        Raises:
            ValueError: the number is not possible.
            RuntimeError: the machine lacks something (the text names all of it), or a component
                ended (the text has its last log lines).
            TimeoutError: a wait reached its limit; the text says what it waited for.
        """
        require_root_on_linux()
        start = time.monotonic()
        with self._exclusive():
            status = self.status()
            there = [node.layout.number for node in self._further()]
            wanted = self._wanted(nodes or max(there, default=1))
            numbers = [node.layout.number for node in wanted]
            if status.state == "up" and there == numbers:
                say(f"cluster {self.name} is up already")
                return
            if found := problems(self.layout, self.bin_dir):
                raise RuntimeError("the sandbox cannot start here:\n- " + "\n- ".join(found))
            if not self._first_problems():
                further = self._further()
                self._remove_nodes([node for node in further if node.layout.number not in numbers])
                self._add_nodes([node for node in wanted if self._node_problems(node)])
            else:
                if status.state == "broken":
                    say(f"  removing what is left of cluster {self.name}: {status.problems[0]}")
                self._start_all(wanted)
        say(f"cluster {self.name} is up after {time.monotonic() - start:.1f} s")

    def down(self, *, purge: bool = False) -> None:
        """Stop the cluster and remove all that it made, except `data` and the image stores.

        Args:
            purge: remove the data and the image stores as well.

        Raises:
            TimeoutError: a process does not end, or a control group cannot be removed.
        """
        require_root_on_linux()
        start = time.monotonic()
        if not self.layout.root.exists() and not self._first.has_begun:
            say(f"cluster {self.name} is down")
            return
        with self._exclusive():
            self._clean(keep_logs=False)
            if purge:
                shutil.rmtree(self.layout.root)
                with suppress(OSError):  # other clusters are in it
                    self.layout.state_root.rmdir()
        say(f"cluster {self.name} is down after {time.monotonic() - start:.1f} s")

    def status(self) -> ClusterStatus:
        """The state of the cluster. Nothing is changed."""
        require_root_on_linux()
        further = self._further()
        if not self._first.has_begun and not further:
            return ClusterStatus(self.name, "down")
        running = {n.name: address for n in (self._first, *further) if (address := n.address)}
        found = self._first_problems()
        for node in [] if found else further:
            found += [f"node {node.name}: {problem}" for problem in self._node_problems(node)]
        state = "broken" if found else "up"
        return ClusterStatus(self.name, state, tuple(found), self.node_ip, running)

    def enter(self, *command: str, number: int = 1) -> list[str]:
        """The command line that runs `command` inside the namespaces of a node.

        Raises:
            RuntimeError: the node is down.
            ValueError: there is no node of this number.
        """
        require_root_on_linux()
        holder = self.node(number).holder
        if holder is None:
            what = f"cluster {self.name}" if number == 1 else f"node {self.node(number).name}"
            raise RuntimeError(f"{what} is down")
        return holder.enter(*command)

    def log(self, component: str, number: int = 1) -> Path:
        """The log file of a component of a node.

        Raises:
            ValueError: there is no node of this number, or no component of that name on it.
        """
        folder = self.node(number).layout.log
        first = (*components.COMPONENTS, components.MIRROR)
        own = first if number == 1 else components.NODE_COMPONENTS
        controllers = sorted(path.stem for path in folder.glob("*.log"))
        allowed = list(dict.fromkeys((*own, *controllers)))
        if component not in allowed:
            text = ", ".join(allowed)
            raise ValueError(f"there is no component {component!r}; name one of {text}")
        return folder / f"{component}.log"

    def _further(self) -> list[Node]:
        """The nodes after the first one that were started and not removed since."""
        found = (Node(layout, self._bin_dir) for layout in self.layout.further_nodes())
        return [node for node in found if node.has_begun]

    def _wanted(self, count: int) -> list[Node]:
        """The nodes after the first one in a cluster of `count` nodes."""
        if not 1 <= count <= MOST_NODES:
            raise ValueError(f"--nodes {count} is not possible: use 1 to {MOST_NODES}")
        return [Node(self.layout.node(n), self._bin_dir) for n in range(2, count + 1)]

    def _remove_nodes(self, further: list[Node]) -> None:
        first = self._first.holder
        assert first is not None, "the first node runs"
        for node in further:
            say(f"  taking {node.name} away")
            node.clean(keep_logs=False)
            disconnect_node(first, node.layout.number)
            self.run_kubectl("delete", "--ignore-not-found", "node", node.name)

    def _start_all(self, further: list[Node]) -> None:
        self._clean(keep_logs=False)
        try:
            self._start()
            if further:
                self._join(further)
        except BaseException:
            self._clean(keep_logs=True)  # the logs say why
            raise

    def _add_nodes(self, further: list[Node]) -> None:
        if not further:
            return
        for node in further:
            node.clean(keep_logs=False)
        try:
            self._join(further)
        except BaseException:
            for node in further:
                node.clean(keep_logs=True)
            raise

    def _join(self, further: list[Node]) -> None:
        start = time.time()
        with _phase(f"{', '.join(node.name for node in further)}"):
            join_cluster(self._first, further, self._apply)
            for node in further:
                for check in checks_of_node(self._first, node, start):
                    node.wait(f"{node.name}: {check.part}", check.missing)

    def _start(self) -> None:
        layout, first = self.layout, self._first
        with _phase("namespaces and link"):
            _, link = first.make()
        with _phase("certificates and configuration"):
            make_pki(layout.pki, components.certificates(layout, link))
            cni_folder = components.find_cni_folder()
            assert cni_folder is not None, "the preflight has seen it"
            configuration.write_configuration(layout, link, first.pause_image, cni_folder)
        with _phase("etcd, containerd, API server"):
            first.start(components.first_components(layout, link, self.bin_dir))
            first.prepare_containerd()
            first.wait("the API server", lambda: missing_api(first, link))
        with _phase("kubelet, controllers, kube-proxy, DNS"):
            self.run_kubectl("create", "-f", "-", given=json.dumps(components.manifests(link)))
            first.start(components.later_components(layout, link, self.bin_dir))
            for check in checks_of_cluster(first, link):
                first.wait(check.part, check.missing)

    def _first_problems(self) -> list[str]:
        first = self._first
        if reason := first.holder_or_link_problem():
            return [reason]
        link = first.link
        assert link is not None, "holder_or_link_problem has found none"
        names = components.COMPONENTS + ((components.MIRROR,) if self._further() else ())
        return first.ended(names) + lacking(checks_of_cluster(first, link))

    def _node_problems(self, node: Node) -> list[str]:
        if reason := node.holder_or_link_problem():
            return [reason]
        ended = node.ended(components.NODE_COMPONENTS)
        return ended + lacking(checks_of_node(self._first, node))

    def _apply(self, objects: object) -> None:
        self.run_kubectl("apply", "-f", "-", given=json.dumps(objects))

    def run_kubectl(self, *arguments: str, given: str = "") -> str:
        """Output of kubectl with `given` as its standard input. Raises RuntimeError if it fails."""
        done = subprocess.run(
            [*self.kubectl, *arguments],
            input=given,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"kubectl {arguments[0]} failed: {done.stderr.strip()}")
        return done.stdout

    def _clean(self, *, keep_logs: bool) -> None:
        """Remove the cluster, whatever its state is, except `data` and the image stores."""
        for layout in self.layout.further_nodes():
            Node(layout, self._bin_dir).clean(keep_logs=keep_logs)
        self._first.clean(keep_logs=keep_logs)

    @contextmanager
    def _exclusive(self) -> Generator[None]:
        """Hold a lock, so that only one `up` or `down` of this cluster runs at a time."""
        self.layout.root.mkdir(parents=True, exist_ok=True)
        with locked_folder(self.layout.root, f"another up or down of cluster {self.name}"):
            yield


@contextmanager
def _phase(what: str) -> Generator[None]:
    start = time.monotonic()
    yield
    say(f"  {what}: {time.monotonic() - start:.1f} s")
