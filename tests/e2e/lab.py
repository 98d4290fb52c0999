"""The lab of the end-to-end tests: a cluster, the stacks on it, and functions that ask both."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from sandbox.cluster import Cluster
from sandbox.follow import train_points
from sandbox.stack import Stack
from sandbox.venvs import PROJECT

T = TypeVar("T")
NAMESPACE = "disttrain"
TRAINING_LIMIT_SECONDS = 600
SPARES = {"run.train.spare_processes": "true"}
ENDLESS = 1_000_000  # steps; a run of so many steps does not end before its test ends


class Lab:
    """A running cluster and the folder for states and settings of the stacks on it."""

    def __init__(self, cluster: Cluster, scratch: Path, text: Path) -> None:
        self.cluster = cluster
        self.scratch = scratch
        self.text = text

    def stack(
        self, name: str, template: str, settings: Mapping[str, str | None], person: str = ""
    ) -> Stack:
        """Return a stack with the settings of `Pulumi.<template>.yaml`, this cluster, and
        `settings`.

        A stack with the setting `platform` gets no settings of the cluster. Each `person` has a
        backend and stack files of their own.
        """
        folder = self.scratch / person
        folder.mkdir(exist_ok=True)
        copy = folder / f"Pulumi.{name}.yaml"
        copy.write_text((PROJECT / f"Pulumi.{template}.yaml").read_text())
        stack = Stack(name, folder / "backend", copy)
        here = {"datasetFile": str(self.text)}
        if not settings.get("platform"):
            here |= {
                "kubeconfig": str(self.cluster.kubeconfig),
                "containerdAddress": str(self.cluster.containerd_address),
                "dataRoot": str(self.cluster.data_root),
            }
        stack.set_all({**here, **settings})
        return stack

    def kubectl(self, *arguments: str, namespace: str = NAMESPACE) -> str:
        """Return the output of kubectl on this lab's cluster; a failure raises."""
        done = subprocess.run(
            [*self.cluster.kubectl, "-n", namespace, *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def ctr(self, *arguments: str) -> str:
        """Return the output of containerd's ctr in the kubelet's namespace; a failure raises."""
        address = str(self.cluster.containerd_address)
        done = subprocess.run(
            ["ctr", "--address", address, "--namespace", "k8s.io", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"ctr {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def shell(self, command: str) -> str:
        """Return the output of a shell command with this cluster's kubeconfig; it must succeed."""
        done = subprocess.run(
            ["sh", "-c", command],
            env={**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig), "PATH": self.path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    @property
    def path(self) -> str:
        """PATH with the sandbox's own tools first."""
        return f"{Path(self.cluster.kubectl[0]).parent}{os.pathsep}{os.environ['PATH']}"

    def trainer_images(self) -> list[str]:
        """Return all names of the trainer's images, including those that containerd has given."""
        rows = [row.split() for row in self.ctr("images", "ls").splitlines()[1:]]
        digests = {name: digest for name, _, digest, *_ in rows}
        ours = {name for name in digests if name.startswith("localhost/disttrain/trainer")}
        held = {digests[name] for name in ours}
        return [n for n in digests if n in ours or (n[:7] == "sha256:" and digests[n] in held)]

    def get(self, kind: str, *names: str, namespace: str = NAMESPACE) -> Any:
        """Return one object, or the list of objects, as kubectl's JSON."""
        return json.loads(self.kubectl("get", kind, *names, "-o", "json", namespace=namespace))

    def uids(self, *kinds: str) -> dict[str, str]:
        """Return the uids of the objects of these kinds, as `{kind/name: uid}`."""
        items = self.get(",".join(kinds))["items"]
        return {
            f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["uid"] for item in items
        }

    def more_than_half_a_node(self, ranks: int = 1) -> str:
        """Return so much CPU for each of a pod's `ranks` ranks that a node has room for one such
        pod.
        """
        cores = self.get("nodes")["items"][0]["status"]["allocatable"]["cpu"]
        return f"{int(cores) * 1000 // (2 * ranks) + 1}m"

    def left(self) -> list[str]:
        """Return the names of this program's objects in the cluster; they have an owner's label."""
        kinds = "namespaces,persistentvolumes,pods,persistentvolumeclaims"
        arguments = ("get", kinds, "-A", "-l", "disttrain.dev/owner", "-o", "name")
        return self.kubectl(*arguments).split()

    def wait_claim_bound(self) -> None:
        """Wait until the claim of the data volume is bound, because `up` does not wait for it."""

        wait_for("the claim to be bound", lambda: self.claim()["status"]["phase"] == "Bound", 300)

    def claim(self) -> dict[str, Any]:
        """Return the claim of the data volume; there must be exactly one."""
        found = self.get("persistentvolumeclaims", "--selector=app.kubernetes.io/component=storage")
        (item,) = found["items"]
        return item

    def run_dir(self, run_name: str) -> Path:
        """Return the run's folder, by its path on this machine."""
        return self.cluster.data_root / "runs" / run_name

    def losses(self, run_name: str) -> dict[int, float]:
        """Return the training loss by step. If a step was written twice, its last loss counts."""
        return {point["step"]: point["loss"] for point in train_points(self.run_dir(run_name))}

    def wait_done(self, run_name: str) -> dict[str, Any]:
        """Wait for the run's done marker, and return its content."""
        marker = self.run_dir(run_name) / "done.json"
        wait_for(f"{marker}", marker.exists, TRAINING_LIMIT_SECONDS)
        return json.loads(marker.read_text())


def wait_for(
    what: str, ask: Callable[[], T], limit_seconds: float, pause_seconds: float = 0.5
) -> T:
    """Return the first true answer of `ask`; if there is none in time, the test fails and names
    `what`.
    """
    deadline = time.monotonic() + limit_seconds
    while True:
        answer = ask()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"waited {limit_seconds:.0f} s for {what}"
        time.sleep(pause_seconds)


def run_settings(run_name: str, max_steps: int, **more: str) -> dict[str, str]:
    """Return settings of a tiny deterministic run, with the same seed and global batch everywhere.

    The run has no spare processes, although it would have some by default: their import of torch
    would take a third more processor time at each start. `SPARES` enables them in tests of
    restarts.
    """
    return {
        "runName": run_name,
        "preset": "shakespeare-char-cpu",
        "run.model.n_layer": "2",
        "run.model.n_head": "2",
        "run.model.n_embd": "64",
        "run.model.block_size": "64",
        "run.train.max_steps": str(max_steps),
        "run.train.global_batch_size": "12",
        "run.train.warmup_steps": "10",
        "run.train.dtype": "float32",
        "run.eval.interval": str(max_steps),
        "run.checkpoint.interval": "50",
        "run.log.interval": "1",
        "run.train.spare_processes": "false",
        **more,
    }
