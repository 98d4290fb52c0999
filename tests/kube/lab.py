"""The lab of the kube tests: a real cluster, tiny workloads, and `infra.kube` run as by `up`."""

import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from infra.kube import names
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from sandbox.cluster import Cluster

PROJECT = Path(__file__).parents[2]
PROBE_IMAGE = "localhost/disttrain/probe:test"
LIMIT_SECONDS = 300  # the longest wait for something that has to happen
SUSPEND = {"Job": {"spec": {"suspend": True}}, "StatefulSet": {"spec": {"replicas": 0}}}
RESUME = {"Job": {"spec": {"suspend": False}}, "StatefulSet": {"spec": {"replicas": 2}}}
Json = dict[str, Any]
T = TypeVar("T")


@dataclass
class Task:
    """A running `python -m infra.kube`, and the lines that it has printed so far."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=lambda: [])

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        self.lines.extend(iter(self.process.stdout.readline, ""))

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def wait_for_words(self, words: str) -> None:
        def seen() -> bool:
            assert self.process.poll() is None or words in self.output, self.output
            return words in self.output

        wait_for(f"{words!r} in the output", seen)

    def end(self) -> tuple[int, str]:
        """Wait until the task has ended, and return its exit status and all its output."""
        status = self.process.wait(LIMIT_SECONDS)
        self._reader.join(LIMIT_SECONDS)
        assert self.process.stdout
        self.process.stdout.close()
        return status, self.output


class Lab:
    """A cluster with one namespace for each test."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.api = Api(self.access())

    def access(self, kubeconfig: Path | None = None) -> Access:
        return Access(kubeconfig_path=str(kubeconfig or self.cluster.kubeconfig))

    def kubectl(self, *arguments: str) -> str:
        command = [*self.cluster.kubectl, "--request-timeout=60s", *arguments]
        return subprocess.run(
            command, env=self.cluster.environment(), capture_output=True, text=True, check=True
        ).stdout

    def namespace(self, owner: str = "") -> str:
        """Make a namespace, with a label of its owner if one is given, and return its name."""
        name = f"t-{uuid.uuid4().hex[:8]}"
        labels = {names.OWNER_LABEL: owner} if owner else {}
        body = {"metadata": {"name": name, "labels": labels}}
        self.api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", **body})
        return name

    def quota(self, namespace: str, name: str, hard: Mapping[str, str]) -> str:
        """Make a ResourceQuota with the limits `hard`, wait until it holds, and return its path.

        The API server goes by the limits in the status, which the controller of quotas writes.
        """
        path = f"/api/v1/namespaces/{namespace}/resourcequotas"
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}}
        self.api.create(path, {**quota, "spec": {"hard": {**hard}}})
        path = f"{path}/{name}"

        def holds() -> bool:
            status = (self.api.get(path) or {}).get("status") or {}
            return (status.get("hard") or {}).keys() == hard.keys()

        wait_for(f"quota {name} to hold", holds)
        return path

    def start(
        self, task: str, action: str, job: Mapping[str, object], wrapper: Sequence[str] = ()
    ) -> Task:
        """Start a task of `infra.kube` with a job as its standard input, as `pulumi up` does."""
        process = subprocess.Popen(
            [*wrapper, sys.executable, "-m", "infra.kube", task, action],
            cwd=PROJECT,
            env=self.cluster.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdin
        process.stdin.write(json.dumps({"kubeconfig_path": str(self.cluster.kubeconfig), **job}))
        process.stdin.close()
        return Task(process)

    def run(
        self, task: str, action: str, job: Mapping[str, object], wrapper: Sequence[str] = ()
    ) -> tuple[int, str]:
        """Run a task to its end, and return its exit status and output.

        `wrapper` has the first words of a command line that runs the task's command.
        """
        return self.start(task, action, job, wrapper).end()


class Run:
    """The run of one stack in a namespace, with a Job or a StatefulSet of pods that only wait."""

    def __init__(self, lab: Lab, namespace: str, stack: str, kind: str = "Job", **more: object):
        self.lab, self.namespace, self.stack, self.kind = lab, namespace, stack, kind
        self.owner = str(uuid.uuid4())
        self.api_version = {"Job": "batch/v1", "StatefulSet": "apps/v1"}[kind]
        self.name = f"train-{stack}"
        self.more = more
        self.pod: Json = {}  # further fields of its pods' spec

    @property
    def path(self) -> str:
        return self.lab.api.path(self.api_version, self.kind, self.namespace, self.name)

    def job(self, revision: str = "r1", **more: object) -> Json:
        """Return the input of a task about this run. `more` adds or replaces fields."""
        return {
            "namespace": self.namespace,
            "owner": self.owner,
            "stack": self.stack,
            "workload": {
                "api_version": self.api_version,
                "kind": self.kind,
                "name": self.name,
            },
            "revision": revision,
            "gpus": 0,
            "gpus_total": 0,
            "suspend": SUSPEND[self.kind],
            "resume": RESUME[self.kind],
            "when_busy": "replace",
            "request": "first",
            "grace_seconds": 20,
            "wait_timeout_seconds": 300,
            "platform_stack": "platform",
            "done": ["Complete"] if self.kind == "Job" else [],
            "failed": ["Failed"] if self.kind == "Job" else [],
            **self.more,
            **more,
        }

    def hand_over(self, revision: str = "r1", **more: object) -> tuple[int, str]:
        return self.lab.run("hand-over", "create", self.job(revision, **more))

    def await_job(self, revision: str = "r1", pods: int = 1, **more: object) -> Json:
        return self.job(revision, pods=pods, timeout_seconds=300, **more)

    def up(self, revision: str = "r1", **more: object) -> Json:
        """Hand over, make the workload, and wait for its pods, as `pulumi up` does.

        Return the workload.
        """
        status, output = self.hand_over(revision, **more)
        assert status == 0, output
        item = self.make(revision)
        pods = 1 if self.kind == "Job" else 2
        status, output = self.lab.run("await", "create", self.await_job(revision, pods=pods))
        assert status == 0, output
        return item

    def make(self, revision: str = "r1", **container: object) -> Json:
        """Make the workload, and return it. `container` adds or replaces fields of its one
        container.

        The pods only wait, unless `container` says otherwise.
        """
        collection = self.lab.api.path(self.api_version, self.kind, self.namespace)
        labels = {
            names.OWNER_LABEL: self.owner,
            names.REVISION_LABEL: revision,
            names.COMPONENT_LABEL: names.TRAINING,
        }
        pod: Json = {
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "trainer",
                    "image": PROBE_IMAGE,
                    "imagePullPolicy": "Never",
                    "args": ["serve", ":8080"],
                    **container,
                }
            ],
            **self.pod,
        }
        spec: Json = {"template": {"metadata": {"labels": labels}, "spec": pod}}
        if self.kind == "Job":
            pod["restartPolicy"] = "Never"
            spec |= {"backoffLimit": 0}
        else:
            match = {"matchLabels": {names.OWNER_LABEL: self.owner}}
            spec |= {"replicas": 2, "selector": match, "serviceName": self.name}
            spec |= {"podManagementPolicy": "Parallel"}
        metadata = {"name": self.name, "namespace": self.namespace, "labels": labels}
        body = {"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata}
        return self.lab.api.create(collection, {**body, "spec": spec})

    def get(self) -> Json | None:
        return self.lab.api.get(self.path)

    def live_pods(self) -> list[Json]:
        """Return the run's pods that have not ended. They hold GPUs, and may still write
        checkpoints.
        """
        return [pod for pod in self.pods() if pod["status"]["phase"] not in ("Succeeded", "Failed")]

    def pods(self) -> list[Json]:
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        return self.lab.api.list(path, names.training_selector(self.owner))

    def is_suspended(self) -> bool:
        spec = (self.get() or {})["spec"]
        return spec.get("suspend") is True or spec.get("replicas") == 0


def wait_for(what: str, ask: Callable[[], T], limit_seconds: float = LIMIT_SECONDS) -> T:
    """Return the first true answer of `ask`.

    The test fails and names `what` if there is no such answer in time.
    """
    deadline = time.monotonic() + limit_seconds
    while True:
        answer = ask()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"waited {limit_seconds:.0f} s for {what}"
        time.sleep(0.2)
