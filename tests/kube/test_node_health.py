"""The pods that watch machines, on a real node, where the rules for pods hold.

Stand-ins: the kernel's log is a file, and `nvidia-smi` a script, in the one test that needs faults.
"""

import json
from collections.abc import Iterator
from typing import Any, cast

import pulumi
import pytest

from cli.status.look import look
from infra.deliveries.kind import Pull
from infra.in_cluster.health_cordon import ANNOTATION, Mark
from infra.in_cluster.node_health import CONDITION
from infra.labels import labels
from infra.names import NODE_HEALTH, TRAINING
from infra.platform.node_health import (
    HEALTH,
    PROGRAM,
    SCRATCH,
    NodeHealthArgs,
    daemon_set,
    rights,
)
from infra.platform.pod_policy import PodPolicyArgs, binding, policy
from tests.kube.lab import Json, Lab, wait_for
from tests.kube.python_image import PYTHON_IMAGE
from tests.kube.test_pod_policy import BINDINGS, POLICIES, refusal
from tests.unit.in_cluster.test_health_findings import CLEAN, LOST
from tests.unit.pods import broken, good

FOLDER = "/stand-in"
BROKEN_SMI = '#!/usr/local/bin/python\nraise SystemExit("NVIDIA-SMI has failed")\n'
# Ends with 83 when it is asked to, as a training that has saved.
TRAINS = """\
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(83))
open("/tmp/ready", "w").close()
time.sleep(3600)
"""


class Watched:
    """A namespace whose pods watch the one node."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.namespace = lab, lab.namespace()
        (self.node,) = [node["metadata"]["name"] for node in lab.api.list("/api/v1/nodes")]

    def start(self, cordons: bool, with_stand_ins: bool = False) -> None:
        owner = cast(pulumi.Output[str], "me")
        args = NodeHealthArgs(
            self.namespace, PYTHON_IMAGE, Pull("Never"), "dev", owner, cordons, "", False
        )
        files = PROGRAM.config_map({"name": HEALTH.name, "namespace": self.namespace})
        watch = daemon_set(args)
        if with_stand_ins:
            self._replace_sources(watch)
        for manifest in (files, *(manifest for _, manifest in rights(args)), watch):
            self.make(manifest)

    def _replace_sources(self, watch: Json) -> None:
        spec = watch["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        container["command"] += ["--kernel-log", f"{SCRATCH}/kernel.log"]
        container["env"].append({"name": "PATH", "value": f"{FOLDER}:/usr/local/bin:/usr/bin"})
        container["volumeMounts"].append({"name": "stand-in", "mountPath": FOLDER})
        config_map = {"name": "stand-in", "defaultMode": 0o555}
        spec["volumes"].append({"name": "stand-in", "configMap": config_map})
        metadata = {"name": "stand-in", "namespace": self.namespace}
        data = {"nvidia-smi": BROKEN_SMI}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        self.make(body)

    def make(self, manifest: Json) -> None:
        namespace = manifest["metadata"].get("namespace", "")
        collection = self.lab.api.path(manifest["apiVersion"], manifest["kind"], namespace)
        self.lab.api.create(collection, manifest)

    def pods(self, component: str) -> list[Json]:
        selector = f"app.kubernetes.io/component={component}"
        return self.lab.api.list(f"/api/v1/namespaces/{self.namespace}/pods", selector)

    def told(self) -> Json:
        """What the watch says; empty as long as it says nothing."""
        for pod in self.pods(NODE_HEALTH):
            for condition in pod.get("status", {}).get("conditions", []):
                if condition["type"] == CONDITION:
                    return condition
        return {}

    def log(self, *lines: str) -> None:
        """Append to the file in the place of the kernel's log."""
        (pod,) = self.pods(NODE_HEALTH)
        text = "".join(f"{line}\n" for line in lines)
        program = f"open('{SCRATCH}/kernel.log', 'a').write({text!r})"
        name = pod["metadata"]["name"]
        self.lab.kubectl("-n", self.namespace, "exec", name, "--", "python", "-c", program)

    def train(self) -> None:
        """A training pod; a finalizer keeps its end to be looked at."""
        pod = good()
        pod["metadata"] |= {"name": "trains", "namespace": self.namespace}
        pod["metadata"]["labels"] |= labels(TRAINING)
        pod["metadata"]["finalizers"] = ["disttrain.dev/test"]
        (container,) = pod["spec"]["containers"]
        container |= {"image": PYTHON_IMAGE, "imagePullPolicy": "Never", "env": []}
        container |= {"command": ["python", "-c", TRAINS]}
        container["resources"] = {"requests": {"cpu": "10m", "memory": "32Mi"}}
        probe = {"exec": {"command": ["python", "-c", "open('/tmp/ready')"]}, "timeoutSeconds": 30}
        container["readinessProbe"] = probe
        self.make({"apiVersion": "v1", "kind": "Pod", **pod})
        wait_for("the training pod to run", lambda: self.is_ready(*self.pods(TRAINING)))

    def is_ready(self, pod: Json) -> bool:
        conditions = pod["status"].get("conditions", [])
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def exit_code(self) -> int | None:
        """How the training pod's container has ended."""
        (pod,) = self.pods(TRAINING)
        (status,) = pod["status"]["containerStatuses"]
        return status["state"].get("terminated", {}).get("exitCode")

    def see_node(self) -> tuple[bool, Mark]:
        """Whether it is cordoned, and what the mark says."""
        node: Any = self.lab.api.get(f"/api/v1/nodes/{self.node}")
        text = node["metadata"].get("annotations", {}).get(ANNOTATION)
        return bool(node["spec"].get("unschedulable")), Mark.from_text(text)

    def end(self) -> None:
        self.lab.kubectl(
            "-n", self.namespace, "delete", "daemonset", HEALTH.name, "--ignore-not-found"
        )
        for pod in self.pods(TRAINING):
            no_finalizer = json.dumps({"metadata": {"finalizers": None}})
            name = f"pod/{pod['metadata']['name']}"
            self.lab.kubectl("-n", self.namespace, "patch", name, "-p", no_finalizer)
        self.lab.kubectl("uncordon", self.node)
        self.lab.kubectl("annotate", "node", self.node, f"{ANNOTATION}-")
        for kind in ("clusterrole", "clusterrolebinding"):
            name = f"{self.namespace}-node-health"
            self.lab.kubectl("delete", kind, name, "--ignore-not-found")


@pytest.fixture
def watched(lab: Lab) -> Iterator[Watched]:
    made = Watched(lab)
    args = PodPolicyArgs(made.namespace, "dev", "me", "deny")
    lab.api.create(POLICIES, policy(args))
    lab.api.create(BINDINGS, binding(args))
    try:
        wait_for("the rules to hold", lambda: refusal(lab, made.namespace, broken("root")))
        yield made
    finally:
        made.end()
        lab.api.delete(f"{BINDINGS}/{made.namespace}-pods", {})
        lab.api.delete(f"{POLICIES}/{made.namespace}-pods", {})


def test_machine_is_watched_with_the_kernels_own_log(watched: Watched) -> None:
    """By a pod without a folder or a device of the node; it only tells, and may nothing else."""
    watched.start(cordons=False)
    told = wait_for("the first words of the watch", watched.told)
    assert "cannot be read" not in told.get("message", "")
    is_well = told["status"] == "True"  # what this machine's log has said before is not known
    wait_for("the pod to say so", lambda: watched.is_ready(*watched.pods(NODE_HEALTH)) == is_well)
    account = f"--as=system:serviceaccount:{watched.namespace}:{HEALTH.name}"
    for words, answer in (("patch pods --subresource=status", "yes"), ("patch nodes", "no")):
        verb, *rest = words.split()
        asked = f"auth can-i {verb} {' '.join(rest)} {account} -n {watched.namespace} -q=false"
        try:
            said = watched.lab.kubectl(*asked.split())
        except Exception as refused:  # `can-i` ends with 1 for a no
            said = str(getattr(refused, "stdout", ""))
        assert said.strip().startswith(answer), words


def test_unusable_machine_is_cordoned_and_its_training_saves(watched: Watched) -> None:
    """For a driver that fails, and again for a GPU that falls off the bus after `uncordon`."""
    lab = watched.lab
    watched.train()
    watched.start(cordons=True, with_stand_ins=True)
    wait_for("the node to be cordoned", lambda: watched.see_node()[0])
    assert "NVIDIA-SMI has failed" in watched.see_node()[1].because
    assert wait_for("the training to end", watched.exit_code) == 83

    (pod,) = watched.pods(NODE_HEALTH)
    found = {f.text: f.needs_attention for f in look(lab.api, "x").platform.findings}
    assert any("kubectl uncordon" in text for text in found)
    assert set(found.values()) == {True}

    wait_for("the watch to be unready", lambda: not watched.is_ready(*watched.pods(NODE_HEALTH)))

    watched.log(*CLEAN)
    lab.kubectl("uncordon", watched.node)
    wait_for("the word to be taken", lambda: watched.see_node()[1].accepted)
    wait_for("the log to be read", lambda: "kernel's log" not in watched.told()["message"])
    watched.log(LOST)
    wait_for("the node to be cordoned again", lambda: watched.see_node()[0])
    assert watched.see_node()[1].because.startswith("GPU 0000:3b:00 reported Xid 79")
    assert watched.pods(NODE_HEALTH)[0]["metadata"]["uid"] == pod["metadata"]["uid"]
