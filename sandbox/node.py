"""One node of a cluster: its namespaces, its link to the host, its programs and its containerd."""

import hashlib
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path

from sandbox import components, mountpoints, network
from sandbox.cgroups import make_cgroup, remove_cgroup
from sandbox.folder_lock import locked_folder
from sandbox.image_archive import image_archive
from sandbox.layout import Layout
from sandbox.namespaces import Holder, find_holder, start_holder, wait_until_gone
from sandbox.network import Link
from sandbox.processes import Component, Processes
from sandbox.waiting import wait_until

# A lock on this folder, which always exists, protects what all clusters share: the subnets and the
# mount points.
MACHINE = Path("/var/lib")
START_SECONDS = 120


class Node:
    """A node, running or not.

    Args:
        layout: the node's paths and names.
        bin_dir: folder with `components.PROGRAMS`; None is enough to look at the node and to
            remove it.
    """

    def __init__(self, layout: Layout, bin_dir: Path | None) -> None:
        self.layout = layout
        self._bin_dir = bin_dir

    @property
    def bin_dir(self) -> Path:
        """Folder with the cluster's programs."""
        assert self._bin_dir is not None, "this was made for `down` and `status` alone"
        return self._bin_dir

    @property
    def name(self) -> str:
        """Name of the Node object."""
        return self.layout.node_name

    @property
    def holder(self) -> Holder | None:
        """The process that keeps the node's namespaces; None if the node does not run."""
        return find_holder(self.layout)

    @property
    def link(self) -> Link | None:
        """The node's link to the host; None if there is none."""
        return network.current_link(self.layout.host_link)

    @property
    def address(self) -> str | None:
        """The address at which the host and the other nodes reach the node; None if it is down."""
        link = self.link
        return str(link.node) if link else None

    @property
    def has_begun(self) -> bool:
        """Whether the node runs, or something is left of a node that was killed."""
        return self.layout.run.exists() or self.holder is not None or self.link is not None

    def holder_or_link_problem(self) -> str | None:
        """What is wrong with the node's namespaces or its link; None if nothing is."""
        if self.holder is None:
            return "its processes have been killed"
        if self.link is None:
            return f"its network link {self.layout.host_link} does not exist"
        return None

    def ended(self, names: Iterable[str]) -> list[str]:
        """One sentence for each of these programs that does not run.

        Raises:
            RuntimeError: the node itself does not run, so it has no holder.
        """
        processes = self._processes
        return [
            f"{name} does not run; its log is {processes.log(name)}"
            for name in names
            if not processes.is_running(name)
        ]

    def program(self, name: str) -> str | None:
        """The path of the program that runs under this name; None if it does not run."""
        return self._processes.program(name)

    def make(self) -> tuple[Holder, Link]:
        """Make the node's folders, its control group, its namespaces and its link to the host."""
        layout = self.layout
        for folder in (layout.data, layout.containerd_store):
            folder.mkdir(parents=True, exist_ok=True)
        layout.run.mkdir(mode=0o700)
        for folder in (layout.log, layout.kubelet, layout.cni):
            folder.mkdir(exist_ok=True)
        make_cgroup(layout.cgroup)
        with locked_folder(MACHINE, "the start or end of another cluster"):
            mountpoints.make_mount_points()
            holder = start_holder(layout, self.bin_dir / "pause")
            return holder, network.connect(layout.host_link, holder.pid)

    def clean(self, *, keep_logs: bool) -> None:
        """Remove the node, whatever its state is, except its image store and `data`."""
        layout = self.layout
        with locked_folder(MACHINE, "the start or end of another cluster"):
            if holder := self.holder:
                holder.end()
            wait_until_gone(layout)
            network.disconnect(layout.host_link)
            mountpoints.remove_mount_points()
        remove_cgroup(layout.cgroup)
        # On the host nothing is mounted below these: the mounts ended with the node's namespace.
        for folder in (layout.run, *(() if keep_logs else (layout.log,))):
            if folder.exists():
                shutil.rmtree(folder)
        sockets = (layout.containerd_socket, Path(f"{layout.containerd_socket}.ttrpc"))
        for file in (layout.kubeconfig, *sockets):
            file.unlink(missing_ok=True)

    def start(self, wanted: Iterable[Component], more: Mapping[str, str] | None = None) -> None:
        """Start programs; `more` are environment variables beside the usual ones."""
        # The caller's variables, such as proxies and locale, must not change how the node works.
        environment = {"PATH": f"{self.bin_dir}:{components.SYSTEM_PATH}", "HOME": "/root"}
        for component in wanted:
            self._processes.start(component, {**environment, **(more or {})})

    def end(self, name: str) -> None:
        """End one program, if it runs. Raises TimeoutError if it does not end."""
        self._processes.end(name)

    def wait(self, what: str, missing: Callable[[], str | None]) -> None:
        """Wait until `missing` returns None, while all programs of the node run.

        Raises:
            ComponentEndedError: a program of the node has ended.
            TimeoutError: the limit is reached; the text says what was waited for.
        """
        processes = self._processes
        started = [path.stem for path in sorted(self.layout.run.glob("*.pid"))]

        def missing_or_ended() -> str | None:
            processes.require_running(started)
            return missing()

        try:
            wait_until(what, missing_or_ended, timeout_seconds=START_SECONDS)
        except TimeoutError as reason:
            raise TimeoutError(f"{reason} (logs: {self.layout.log})") from None

    def ctr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `ctr` with the node's containerd."""
        program = str(components.host_program("ctr"))
        return subprocess.run(
            [program, "--address", str(self.layout.containerd_socket), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )

    def prepare_containerd(self) -> None:
        """Wait for containerd, and import the pause image, which keeps the pods' namespaces.

        Raises:
            RuntimeError: the image could not be imported or pinned.
            TimeoutError: containerd does not answer.
        """
        self.wait("containerd", self._containerd_missing)
        image = self.pause_image
        listed = self.ctr("-n", "k8s.io", "images", "list", "--quiet")
        if image in listed.stdout.split():
            return
        archive = self.layout.run / "pause.tar"
        archive.write_bytes(image_archive(self.bin_dir / "pause", image))
        done = self.ctr("-n", "k8s.io", "images", "import", str(archive))
        if done.returncode:
            raise RuntimeError(f"the pause image could not be imported: {done.stderr.strip()}")
        archive.unlink()
        pinned = "io.cri-containerd.pinned=pinned"  # a kubelet with a full disk keeps it then
        done = self.ctr("-n", "k8s.io", "images", "label", image, pinned)
        if done.returncode:
            raise RuntimeError(f"the pause image could not be pinned: {done.stderr.strip()}")

    @cached_property
    def pause_image(self) -> str:
        """Name of the pause image, which keeps the namespaces of pods."""
        digest = hashlib.sha256((self.bin_dir / "pause").read_bytes()).hexdigest()[:12]
        return f"localhost/disttrain/pause:{digest}"

    @property
    def _processes(self) -> Processes:
        holder = self.holder
        if holder is None:
            raise RuntimeError(f"node {self.name} has ended")
        return Processes(holder, self.layout.run, self.layout.log)

    def _containerd_missing(self) -> str | None:
        done = self.ctr("version")
        return " ".join(done.stderr.split()) if done.returncode else None
