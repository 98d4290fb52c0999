"""Makes a claim on a folder of the node, and runs `./disttrain` as a user does on that volume."""

import os
import subprocess
import sys
import uuid
from contextlib import suppress
from pathlib import Path

from infra.kube import names
from infra.labels import VOLUME_LABEL
from tests.kube.lab import PROJECT, Lab, Run, wait_for
from tests.kube.python_image import PYTHON_IMAGE

PODS = "/api/v1/namespaces/{}/pods"
PLACEMENT = (
    "{nodeSelector: {kubernetes.io/os: linux}, tolerations: [{key: team, operator: Exists}]}"
)
UID = 1000


def run_with_claim(lab: Lab) -> Run:
    """Return a run whose namespace has a claim on a folder of the node.

    The run's `more` has the names of the `claim` and of the `image` for its pods, and the path of
    the `folder` on this machine.
    """
    run = Run(lab, lab.namespace(), "dev")
    name = f"data-{uuid.uuid4().hex[:8]}"
    folder = lab.cluster.data_root / name
    folder.mkdir()
    os.chown(folder, UID, UID)
    size = {"storage": "1Gi"}
    access = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    # Without a reference, any claim that waits in the cluster could be bound to the volume.
    reserved = {"claimRef": {"namespace": run.namespace, "name": name}}
    volume = {"capacity": size, "hostPath": {"path": str(folder)}, **access, **reserved}
    # The claim selects the volume by a label, as the program's claims do. A claim that names its
    # volume often waits for 15 s.
    labels = {VOLUME_LABEL: name}
    metadata = {"name": name, "labels": labels}
    body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata}
    lab.api.create("/api/v1/persistentvolumes", {**body, "spec": volume})
    wanted = {"selector": {"matchLabels": labels}, "resources": {"requests": size}, **access}
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}}
    claims = f"/api/v1/namespaces/{run.namespace}/persistentvolumeclaims"
    lab.api.create(claims, {**body, "spec": wanted})
    # If a pod found the claim unbound, the scheduler might try the pod again only after minutes.
    try:
        wait_for("the claim to be bound", lambda: _is_bound(lab, f"{claims}/{name}"))
    except AssertionError as late:
        objects = lab.kubectl("-n", run.namespace, "get", f"pv/{name}", f"pvc/{name}", "-o", "yaml")
        log = lab.cluster.log("kube-controller-manager").read_text(errors="replace")
        about = [line for line in log.splitlines() if name in line]
        last = log.splitlines()[-20:]
        raise AssertionError("\n".join([str(late), objects, *about, "...", *last])) from None
    run.more.update(claim=name, image=PYTHON_IMAGE, folder=str(folder))
    return run


def _is_bound(lab: Lab, path: str) -> bool:
    claim = lab.api.get(path)
    return claim is not None and claim.get("status", {}).get("phase") == "Bound"


def runs_folder(run: Run) -> Path:
    """Return the folder of all runs, by its path on this machine."""
    return Path(str(run.more["folder"])) / "runs"


def bytes_below(folder: Path) -> int:
    """Return how many bytes the files below a folder use on the disk. They may be renamed
    meanwhile.
    """
    total = 0
    for where, _, files in os.walk(folder):
        for name in files:
            with suppress(FileNotFoundError):
                total += (Path(where) / name).stat().st_blocks * 512  # some files are sparse
    return total


def give_to_pods(folder: Path) -> None:
    """Let the pods' user own the files that a test has put on the volume."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, UID, UID)


def no_pods(lab: Lab, run: Run) -> bool:
    """Return whether no pod of a command, such as `fetch`, is left in the run's namespace."""
    return lab.api.list(PODS.format(run.namespace), names.TASK_LABEL) == []


def cli(
    lab: Lab, run: Run, tmp_path: Path, *words: str, kubeconfig: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start `./disttrain`. A stand-in for pulumi gives it the stack's outputs and nothing else."""
    outputs = {
        "kubeconfig": str(kubeconfig or lab.cluster.kubeconfig),
        "namespace": run.namespace,
        "owner": run.owner,
        "image": PYTHON_IMAGE,
        "runPath": "/data/runs/first",
        "workload": run.name,
        "claim": run.more.get("claim", "none"),
        "podPlacement": PLACEMENT,
    }
    pulumi = tmp_path / "bin" / "pulumi"
    pulumi.parent.mkdir(exist_ok=True)
    text = str(outputs).replace("'", '"')
    pulumi.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    pulumi.chmod(0o755)
    environment = lab.cluster.environment()
    environment["PATH"] = f"{pulumi.parent}:{environment['PATH']}"
    return subprocess.Popen(
        [sys.executable, "-m", "cli", *words],
        cwd=PROJECT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def configure(lab: Lab, run: Run, run_name: str) -> None:
    """Make the ConfigMap with the configuration of a run, as `pulumi up` does."""
    labels = {names.COMPONENT_LABEL: names.TRAINING, names.OWNER_LABEL: run.owner}
    metadata = {"name": f"run-{run_name}", "namespace": run.namespace, "labels": labels}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    path = f"/api/v1/namespaces/{run.namespace}/configmaps"
    lab.api.create(path, {**body, "data": {"run.yaml": f"run_name: {run_name}\n"}})
