"""Lets the pods of `nodeHealth` watch a real node, and reads what they find there.

A test may ask for stand-ins: then the kernel's log is a file, and `nvidia-smi` is a script.
"""

import json
from collections.abc import Mapping
from typing import Any, cast

import pulumi

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
from infra.settings.pods_demands import PodDemands
from tests.kube.lab import Json, Lab, wait_for
from tests.kube.python_image import PYTHON_IMAGE
from tests.unit.pods import good

FOLDER = "/stand-in"
# Ends with status 83 at SIGTERM, as a training does that has saved.
TRAINS = """\
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(83))
open("/tmp/ready", "w").close()
time.sleep(3600)
"""


class Watched:
    """A namespace in which the pods of `nodeHealth` watch the cluster's one node."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.namespace = lab, lab.namespace()
        (self.node,) = [node["metadata"]["name"] for node in lab.api.list("/api/v1/nodes")]

    def start(self, cordons: bool, stand_ins: Mapping[str, str] | None = None) -> None:
        """Start the pods that watch the node.

        Args:
            cordons: whether they may cordon the node.
            stand_ins: texts of programs that replace the machine's, by their names; a file then
                replaces the kernel's log. None: the pods see the machine as it is.
        """
        owner = cast(pulumi.Output[str], "me")
        args = NodeHealthArgs(
            self.namespace,
            PYTHON_IMAGE,
            Pull("Never"),
            "dev",
            owner,
            PodDemands(),
            cordons,
            "",
            False,
        )
        files = PROGRAM.config_map({"name": HEALTH.name, "namespace": self.namespace})
        watch = daemon_set(args)
        if stand_ins is not None:
            self._replace_sources(watch, stand_ins)
        for manifest in (files, *(manifest for _, manifest in rights(args)), watch):
            self.make(manifest)

    def _replace_sources(self, watch: Json, programs: Mapping[str, str]) -> None:
        spec = watch["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        container["command"] += ["--kernel-log", f"{SCRATCH}/kernel.log"]
        container["env"].append({"name": "PATH", "value": f"{FOLDER}:/usr/local/bin:/usr/bin"})
        container["volumeMounts"].append({"name": "stand-in", "mountPath": FOLDER})
        config_map = {"name": "stand-in", "defaultMode": 0o555}
        spec["volumes"].append({"name": "stand-in", "configMap": config_map})
        metadata = {"name": "stand-in", "namespace": self.namespace}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        body |= {"data": dict(programs)}
        self.make(body)

    def make(self, manifest: Json) -> None:
        namespace = manifest["metadata"].get("namespace", "")
        collection = self.lab.api.path(manifest["apiVersion"], manifest["kind"], namespace)
        self.lab.api.create(collection, manifest)

    def pods(self, component: str) -> list[Json]:
        selector = f"app.kubernetes.io/component={component}"
        return self.lab.api.list(f"/api/v1/namespaces/{self.namespace}/pods", selector)

    def told(self) -> Json:
        """Return the condition that the watch has written to its pod; empty if there is none."""
        for pod in self.pods(NODE_HEALTH):
            for condition in pod.get("status", {}).get("conditions", []):
                if condition["type"] == CONDITION:
                    return condition
        return {}

    def log(self, *lines: str) -> None:
        """Append lines to the file that replaces the kernel's log."""
        (pod,) = self.pods(NODE_HEALTH)
        text = "".join(f"{line}\n" for line in lines)
        program = f"open('{SCRATCH}/kernel.log', 'a').write({text!r})"
        name = pod["metadata"]["name"]
        self.lab.kubectl("-n", self.namespace, "exec", name, "--", "python", "-c", program)

    def train(self) -> None:
        """Start a training pod, and wait until it runs.

        A finalizer keeps the pod's object after its end, so that the test can read its exit code.
        """
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
        """Return the exit code of the training pod's container; None while it runs."""
        (pod,) = self.pods(TRAINING)
        (status,) = pod["status"]["containerStatuses"]
        return status["state"].get("terminated", {}).get("exitCode")

    def see_node(self) -> tuple[bool, Mark]:
        """Return whether the node is cordoned, and the mark in its annotation."""
        node: Any = self.lab.api.get(f"/api/v1/nodes/{self.node}")
        text = node["metadata"].get("annotations", {}).get(ANNOTATION)
        return bool(node["spec"].get("unschedulable")), Mark.from_text(text)

    def end(self) -> None:
        """End the watch and the training, and take every change of the node back."""
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
