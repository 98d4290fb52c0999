"""A project whose image is imported into a real containerd. A small layer stands in for torch."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from infra.image.containerd import Containerd
from infra.image.dependencies import Sources, layout_folder
from infra.image.ensure import Ensured, ensure
from infra.image.oci import Image
from infra.image.plan import ImagePlan, plan_image
from infra.image.platforms import this_machine
from infra.image.prune import KEEP_UNUSED_MINUTES
from infra.image.wanted import Platform, named_by_no_pod
from tests.unit.image.layouts import tiny_image, write_layout

PROJECT = Path(__file__).parent.parent.parent
DEPS_BYTES = 5_000_000
REPOSITORY = "localhost/disttrain/trainer"

CONFIG = """\
version = 2
root = "{folder}/root"
state = "{folder}/state"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
"""
# The script's argument is the configuration file, beside which it writes the PID of containerd.
RESTARTED = """\
trap 'ended=yes; kill "$pid"' TERM
while [ -z "${ended:-}" ]; do
  containerd --config "$0" & pid=$!
  echo "$pid" >"${0%/*}/pid"
  wait "$pid"
  [ -n "${ended:-}" ] || sleep 1
done
wait
"""


def wait_for(what: str, check: Callable[[], bool]) -> None:
    """Wait until the check is true, and fail after a minute."""
    end = time.monotonic() + 60
    while not check():
        assert time.monotonic() < end, f"waited 60 s for {what}"
        time.sleep(0.1)


@contextmanager
def running_containerd() -> Iterator[Containerd]:
    """Run a containerd during the block; its store is removed afterwards.

    If it ends earlier, it is started again, as systemd restarts a k3s whose containerd has ended.
    """
    folder = Path(tempfile.mkdtemp(prefix="ctrd-", dir="/tmp"))  # a socket's path must be short
    (folder / "config.toml").write_text(CONFIG.format(folder=folder))
    client = Containerd(["ctr"], f"{folder}/containerd.sock")
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            ["/bin/sh", "-c", RESTARTED, str(folder / "config.toml")], stdout=log, stderr=log
        )

    def answers() -> bool:
        assert process.poll() is None, (folder / "log").read_text()[-2000:]
        command = ["ctr", "--address", str(client.address), "version"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    try:
        wait_for("containerd to answer", answers)
        # Otherwise containerd would make /opt/containerd. The tests of clusters, which run beside
        # these, would report that a cluster has left it behind.
        assert (folder / "opt").is_dir(), "containerd keeps something outside its folder"
        yield client
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(folder)


@dataclass
class Lab:
    """A project, a cache with its built dependencies, and a containerd."""

    containerd: Containerd
    project: Path
    cache: Path
    deps: Image
    said: list[str] = field(default_factory=lambda: [])

    def plan(self, repository: str = REPOSITORY) -> ImagePlan:
        """Return the plan of the project's image."""
        return plan_image(self.project, repository, "scratch", None)

    def ensure(
        self,
        repository: str = REPOSITORY,
        cache: Path | None = None,
        request: str = "",
        keep_unused_minutes: int = KEEP_UNUSED_MINUTES,
        namespace: str = "",
        images_of_pods: Callable[[], Collection[str] | None] = named_by_no_pod,
    ) -> Ensured:
        """Import the project's image as `pulumi up` does, and return what was done."""
        return ensure(
            self.plan(repository),
            self.containerd,
            Sources(self.project, cache or self.cache, "auto"),
            self.said.append,
            request,
            keep_unused_minutes,
            Platform(namespace, images_of_pods),
        )

    @property
    def built(self) -> Path:
        """Return the folder in the cache with the dependencies."""
        return layout_folder(self.plan(), self.cache, this_machine())

    def change_code(self, text: str) -> None:
        """Replace the trainer's program by this text, so that the image has another content."""
        (self.project / "trainer" / "__main__.py").write_text(text)

    def ctr(self, *arguments: str, namespace: str = "k8s.io") -> str:
        """Run `ctr` against the containerd, and return what it prints."""
        command = ["ctr", "--address", str(self.containerd.address), "-n", namespace, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def file_in_image(self, reference: str, path: str, target: Path) -> tuple[str, os.stat_result]:
        """Return the text and the metadata of a file in an image."""
        target.mkdir()
        self.ctr("images", "mount", reference, str(target))
        try:
            return (target / path).read_text(), (target / path).stat()
        finally:
            self.ctr("images", "unmount", "--rm", str(target))

    def empty(self) -> bool:
        """Whether containerd has neither images nor content."""
        return not (self.containerd.images() or self.ctr("content", "ls", "-q").split())

    def cri_knows(self, digest: str) -> bool:
        """Whether the CRI plugin has given the image its second name, `sha256:<config digest>`."""
        images = self.containerd.images().items()
        return any(name.startswith("sha256:") and held == digest for name, held in images)


def emptied(containerd: Containerd) -> bool:
    """Remove everything that tests have left, and return whether it is gone.

    A lease keeps the content of an interrupted import for a day. The CRI plugin's names of images
    can come late.
    """
    ctr = ["ctr", "--address", str(containerd.address)]

    def ask(namespace: str, *words: str) -> list[str]:
        command = [*ctr, "-n", namespace, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    left: list[str] = []
    for namespace in containerd.namespaces():
        for kind in ("leases", "images"):
            for name in ask(namespace, kind, "ls", "-q"):
                ask(namespace, kind, "rm", "--sync", name)
        left += ask(namespace, "images", "ls", "-q") + ask(namespace, "content", "ls", "-q")
    return not left


@contextmanager
def image_lab(containerd: Containerd, tmp_path: Path) -> Iterator[Lab]:
    """Yield a lab for one test. Afterwards wait until containerd has nothing of the test
    any more.
    """
    project = tmp_path / "project"
    for name in ("docker/Dockerfile", "trainer/requirements.txt"):
        (project / name).parent.mkdir(parents=True)
        shutil.copyfile(PROJECT / name, project / name)
    # The content is random, so that no test finds another test's layer.
    lab = Lab(containerd, project, tmp_path / "cache", tiny_image(os.urandom(DEPS_BYTES)))
    lab.change_code("print(1)\n")
    write_layout(lab.built, lab.deps)
    yield lab
    wait_for("containerd to be empty", lambda: emptied(containerd))
