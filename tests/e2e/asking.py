"""Functions by which the end-to-end tests ask a stack and its run for their state."""

import json
import re
import subprocess

from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from sandbox.stack import Stack
from tests.e2e.lab import NAMESPACE, Lab, wait_for

AT_ONCE_SECONDS = 0.05  # a short pause, because a fast machine makes hundreds of steps in a second


def changes(output: str) -> dict[str, int]:
    """Return the counts below `Resources:` in pulumi's output, such as `{"unchanged": 12}`."""
    summary = output[output.rindex("Resources:") :]
    return {kind: int(n) for n, kind in re.findall(r"(\d+) (\w+)", summary.split("Duration")[0])}


def people_run(lab: Lab, stack: Stack, command: str) -> str:
    """Return the output of a shell command that a user would run in the project's folder.

    The command must succeed.
    """
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=stack.project,
        env=stack.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def evict(lab: Lab, pod: str) -> None:
    """Evict a pod, as a drain of its node does, with its usual grace period."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": NAMESPACE},
    }
    api = Api(Access(kubeconfig_path=str(lab.cluster.kubeconfig)))
    api.create(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction", body)


def states(lab: Lab, stack: Stack, nodes: int = 1) -> dict[str, str]:
    """Return the state that `./disttrain status` shows for each run, by the name of its stack."""
    found = json.loads(people_run(lab, stack, f"./disttrain status --stack {stack.name} --json"))
    assert found["unseen"] == ""
    assert found["platform"]["nodes"] == nodes
    return {run["stack"].rpartition("/")[2]: run["state"] for run in found["runs"]}


def training_pods(lab: Lab, stack: Stack, also_ended: bool = False) -> list[str]:
    """Return the stack's training pods as `pod/<name>`, by default those that have not ended."""
    selector = f"app.kubernetes.io/component=training,disttrain.dev/owner={stack.output('owner')}"
    alive = ("--field-selector=status.phase!=Failed,status.phase!=Succeeded",)
    which = () if also_ended else alive
    return lab.kubectl("get", "pod", "-l", selector, *which, "-o", "name").split()


def wait_for_first_checkpoint(lab: Lab, run_name: str) -> None:
    folder = lab.run_dir(run_name) / "checkpoints"
    wait_for("the first checkpoint", lambda: any(folder.glob("step-*")), 120, AT_ONCE_SECONDS)


def weights(lab: Lab, run_name: str, step: int) -> dict[str, str]:
    """Return the sha256 of each file of a checkpoint that has weights."""
    folder = lab.run_dir(run_name) / "checkpoints" / f"step-{step:08d}"
    files = json.loads((folder / "manifest.json").read_text())["files"]
    return {name: files[name]["sha256"] for name in files if name.startswith("model")}


def everything(lab: Lab) -> dict[str, str]:
    """Return the uids of all objects that the program makes, including cluster-wide ones."""
    found = lab.uids("namespace", "persistentvolume")
    ours = {name: uid for name, uid in found.items() if NAMESPACE in name}
    kinds = ("persistentvolumeclaim", "configmap", "job", "statefulset", "service")
    return ours | lab.uids(*kinds)
