"""Starts, stops and checks a real Kubernetes of one node, in Linux namespaces of its own."""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from sandbox import api, components, configuration, mountpoints, network
from sandbox.cgroups import make_cgroup, remove_cgroup
from sandbox.image_archive import image_archive
from sandbox.layout import STATE_ROOT, Layout
from sandbox.namespaces import Holder, find_holder, start_holder
from sandbox.network import Link
from sandbox.pki import make_pki
from sandbox.preflight import problems, require_root_on_linux
from sandbox.processes import Component, Processes
from sandbox.say import say
from sandbox.waiting import wait_until

__all__ = ["STATE_ROOT", "Cluster", "ClusterStatus"]

LOCK_SECONDS = 300
# A lock on this folder, which always exists, protects what clusters share: subnets, mount points.
MACHINE = Path("/var/lib")


@dataclass(frozen=True)
class ClusterStatus:
    """State of a cluster: `up` (the node is Ready), `down` (nothing runs) or `broken`.

    `problems` says what is broken.
    """

    name: str
    state: Literal["up", "down", "broken"]
    problems: tuple[str, ...] = ()
    node_ip: str | None = None


class Cluster:
    """The cluster `name`, whose state is below `state_root/name`.

    Args:
        name: 1 to 30 characters, each a-z, 0-9 or '-'.
        bin_dir: folder with `components.PROGRAMS`; None will do for `down`, `status` and `logs`.
        state_root: folder that holds the folders of all clusters.

    Raises:
        ValueError: the name or the state folder cannot be used.
    """

    def __init__(self, name: str, bin_dir: Path | None, state_root: Path = STATE_ROOT) -> None:
        self.layout = Layout(name, state_root)
        self._bin_dir = bin_dir

    @property
    def bin_dir(self) -> Path:
        """Folder with the cluster's programs."""
        assert self._bin_dir is not None, "this Cluster was made for `down` and `status` alone"
        return self._bin_dir

    @property
    def name(self) -> str:
        """Name of the cluster."""
        return self.layout.name

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig; the file exists while the cluster is up."""
        return self.layout.kubeconfig

    @property
    def context(self) -> str:
        """Name of the kubeconfig's one context."""
        return self.layout.identity

    @property
    def containerd_address(self) -> Path:
        """containerd's socket, for `ctr --address` on the host."""
        return self.layout.containerd_socket

    @property
    def data_root(self) -> Path:
        """Folder for hostPath volumes; the same path on the host and on the node."""
        return self.layout.data

    @property
    def node_ip(self) -> str | None:
        """Address of the node as reached from the host; None when the cluster is down."""
        link = network.current_link(self.layout.host_link)
        return str(link.node) if link else None

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

    def up(self) -> None:
        """Start the cluster and return when its node takes pods; do nothing if it is up already.

        What a broken or killed cluster of this name has left is removed first.

        Raises:
            RuntimeError: the machine lacks something (the text names all of it), or a component
                ended (the text has its last log lines).
            TimeoutError: a wait reached its limit; the text says what it waited for.
        """
        require_root_on_linux()
        start = time.monotonic()
        with self._exclusive():
            status = self.status()
            if status.state == "up":
                say(f"cluster {self.name} is up already: {self.kubeconfig}")
                return
            if found := problems(self.layout, self.bin_dir):
                raise RuntimeError("the sandbox cannot start here:\n- " + "\n- ".join(found))
            if status.state == "broken":
                say(f"  removing what is left of cluster {self.name}: {status.problems[0]}")
            self._clean(keep_logs=False)
            try:
                self._start()
            except BaseException:
                self._clean(keep_logs=True)  # the logs say why
                raise
        say(f"cluster {self.name} is up after {time.monotonic() - start:.1f} s: {self.kubeconfig}")

    def down(self, *, purge: bool = False) -> None:
        """Stop the cluster and remove all that it made, except `data` and the image store.

        Args:
            purge: remove those two as well.

        Raises:
            TimeoutError: a process does not end, or a control group cannot be removed.
        """
        require_root_on_linux()
        start = time.monotonic()
        if not self.layout.root.exists() and not find_holder(self.layout):
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
        """Look at it without changing anything."""
        require_root_on_linux()
        holder = find_holder(self.layout)
        link = network.current_link(self.layout.host_link)
        if holder is None:
            rest = self.layout.run.exists() or link is not None
            if not rest:
                return ClusterStatus(self.name, "down")
            return ClusterStatus(self.name, "broken", ("its processes have been killed",))
        if link is None:
            missing = f"its network link {self.layout.host_link} does not exist"
            return ClusterStatus(self.name, "broken", (missing,))
        processes = self._processes(holder)
        found = [
            f"{name} does not run; its log is {processes.log(name)}"
            for name in components.COMPONENTS
            if not processes.is_running(name)
        ]
        found += [reason for check in self._checks(link) if (reason := check())]
        state = "broken" if found else "up"
        return ClusterStatus(self.name, state, tuple(found), str(link.node))

    def enter(self, *command: str) -> list[str]:
        """The command line that runs `command` inside the cluster's namespaces, as on the node.

        Raises:
            RuntimeError: the cluster is down.
        """
        require_root_on_linux()
        holder = find_holder(self.layout)
        if holder is None:
            raise RuntimeError(f"cluster {self.name} is down")
        return holder.enter(*command)

    def log(self, component: str) -> Path:
        """The log file of a component. Raises ValueError if there is no component of that name."""
        if component not in components.COMPONENTS:
            allowed = ", ".join(components.COMPONENTS)
            raise ValueError(f"there is no component {component!r}; name one of {allowed}")
        return self.layout.log / f"{component}.log"

    @cached_property
    def _pause_image(self) -> str:
        digest = hashlib.sha256((self.bin_dir / "pause").read_bytes()).hexdigest()[:12]
        return f"localhost/disttrain/pause:{digest}"

    def _processes(self, holder: Holder) -> Processes:
        return Processes(holder, self.layout.run, self.layout.log)

    def _start(self) -> None:
        layout = self.layout
        with _phase("namespaces and link"):
            for folder in (layout.data, layout.containerd_store):
                folder.mkdir(exist_ok=True)
            layout.run.mkdir(mode=0o700)
            for folder in (layout.log, layout.kubelet, layout.cni):
                folder.mkdir(exist_ok=True)
            make_cgroup(layout.cgroup)
            with _locked(MACHINE, "the start or end of another cluster"):
                mountpoints.make_mount_points()
                holder = start_holder(layout, self.bin_dir / "pause")
                link = network.connect(layout.host_link, holder.pid)
        with _phase("certificates and configuration"):
            make_pki(layout.pki, components.certificates(layout, link))
            cni_folder = components.find_cni_folder()
            assert cni_folder is not None, "the preflight has seen it"
            configuration.write_configuration(layout, link, self._pause_image, cni_folder)
        processes = self._processes(holder)
        with _phase("etcd, containerd, API server"):
            first = components.first_components(layout, link, self.bin_dir)
            self._start_all(processes, first)
            self._wait(processes, "containerd", self._containerd_missing)
            self._import_pause_image()
            self._wait(processes, "the API server", lambda: self._api_missing(link))
        with _phase("kubelet, controllers, kube-proxy, DNS"):
            self._create(components.manifests(link))
            self._start_all(processes, components.later_components(layout, link, self.bin_dir))
            for check in self._checks(link):
                what = (check.__doc__ or "").rstrip(".")
                self._wait(processes, what, check)

    def _start_all(self, processes: Processes, wanted: Iterable[Component]) -> None:
        # The caller's variables, such as proxies and locale, must not change how the node works.
        environment = {"PATH": f"{self.bin_dir}:{components.SYSTEM_PATH}", "HOME": "/root"}
        for component in wanted:
            processes.start(component, environment)

    def _wait(self, processes: Processes, what: str, missing: Callable[[], str | None]) -> None:
        started = [path.stem for path in sorted(self.layout.run.glob("*.pid"))]

        def missing_or_ended() -> str | None:
            processes.require_running(started)
            return missing()

        try:
            wait_until(what, missing_or_ended, timeout_seconds=120)
        except TimeoutError as reason:
            raise TimeoutError(f"{reason} (logs: {self.layout.log})") from None

    def _checks(self, link: Link) -> list[Callable[[], str | None]]:
        """Functions that each check one part: None if it works, else the text of what is missing.

        A function's docstring names the part for the messages of a wait.
        """
        address = str(link.node)

        def node_ready() -> str | None:
            """The node to be Ready."""
            return self._object_missing(
                link, f"/api/v1/nodes/{self.layout.node_name}", api.missing_node_condition
            )

        def service_account() -> str | None:
            """The service account that pods need."""
            return self._object_missing(
                link, "/api/v1/namespaces/default/serviceaccounts/default", lambda _: None
            )

        def proxy_ready() -> str | None:
            """kube-proxy's rules."""
            return _http_missing(address, components.PROXY_HEALTH_PORT, "/healthz")

        def dns_ready() -> str | None:
            """CoreDNS."""
            return _http_missing(address, components.COREDNS_READY_PORT, "/ready")

        def api_ready() -> str | None:
            """The API server."""
            return self._api_missing(link)

        return [api_ready, service_account, proxy_ready, dns_ready, node_ready]

    def _api_missing(self, link: Link) -> str | None:
        return self._object_missing(link, "/readyz", lambda _: None)

    def _object_missing(
        self, link: Link, path: str, missing: Callable[[str], str | None]
    ) -> str | None:
        pki = self.layout.pki
        try:
            status, body = api.https_get(str(link.node), components.API_PORT, path, pki)
        except OSError as reason:
            return f"https://{link.node}:{components.API_PORT}: {reason}"
        if status != 200:
            return f"{path}: status {status}: {' '.join(body.split())[:300]}"
        return missing(body)

    def _containerd_missing(self) -> str | None:
        done = self._ctr("version")
        return " ".join(done.stderr.split()) if done.returncode else None

    def _import_pause_image(self) -> None:
        listed = self._ctr("-n", "k8s.io", "images", "list", "--quiet")
        if self._pause_image in listed.stdout.split():
            return
        archive = self.layout.run / "pause.tar"
        archive.write_bytes(image_archive(self.bin_dir / "pause", self._pause_image))
        done = self._ctr("-n", "k8s.io", "images", "import", str(archive))
        if done.returncode:
            raise RuntimeError(f"the pause image could not be imported: {done.stderr.strip()}")
        archive.unlink()
        pinned = "io.cri-containerd.pinned=pinned"  # or a kubelet with a full disk removes it
        done = self._ctr("-n", "k8s.io", "images", "label", self._pause_image, pinned)
        if done.returncode:
            raise RuntimeError(f"the pause image could not be pinned: {done.stderr.strip()}")

    def _ctr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        program = str(components.host_program("ctr"))
        return subprocess.run(
            [program, "--address", str(self.containerd_address), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )

    def _create(self, objects: object) -> None:
        done = subprocess.run(
            [*self.kubectl, "create", "-f", "-"],
            input=json.dumps(objects),
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"kubectl create failed: {done.stderr.strip()}")

    def _clean(self, *, keep_logs: bool) -> None:
        """Remove a cluster in whatever state it is, except `data` and the image store."""
        layout = self.layout
        with _locked(MACHINE, "the start or end of another cluster"):
            if holder := find_holder(layout):
                holder.end()
            network.disconnect(layout.host_link)
            mountpoints.remove_mount_points()
        remove_cgroup(layout.cgroup)
        # Nothing is mounted below these on the host: the mounts went with the cluster's namespace.
        for folder in (layout.run, *(() if keep_logs else (layout.log,))):
            if folder.exists():
                shutil.rmtree(folder)
        sockets = (layout.containerd_socket, Path(f"{layout.containerd_socket}.ttrpc"))
        for file in (layout.kubeconfig, *sockets):
            file.unlink(missing_ok=True)

    @contextmanager
    def _exclusive(self) -> Generator[None]:
        """Only one `up` or `down` of this cluster at a time."""
        self.layout.root.mkdir(parents=True, exist_ok=True)
        with _locked(self.layout.root, f"another up or down of cluster {self.name}"):
            yield


def _http_missing(address: str, port: int, path: str) -> str | None:
    try:
        status, _ = api.http_get(address, port, path)
    except OSError as reason:
        return f"http://{address}:{port}{path}: {reason}"
    return None if status == 200 else f"http://{address}:{port}{path}: status {status}"


@contextmanager
def _locked(folder: Path, other: str) -> Generator[None]:
    """Hold a lock on a folder, which is made again if its last owner has removed it."""
    descriptor = -1

    def busy() -> str | None:
        nonlocal descriptor
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if folder.exists() and os.path.samestat(os.fstat(descriptor), folder.stat()):
                return None
        except BlockingIOError:
            pass
        os.close(descriptor)
        return f"{folder} is locked"

    wait_until(f"{other} to end", busy, timeout_seconds=LOCK_SECONDS)
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _phase(what: str) -> Generator[None]:
    start = time.monotonic()
    yield
    say(f"  {what}: {time.monotonic() - start:.1f} s")
