"""A stand-in for the API server of a cluster that has just lost a machine."""

import json
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

from cli.runs.in_use import CONFIGS
from cli.status.judge import RunStatus
from cli.status.silence import LEASES
from cli.status.snapshot import Snapshot, take_snapshot
from infra.kube.api_server.access import Access
from infra.kube.api_server.answer import Answer
from infra.kube.api_server.api import Api
from infra.kube.record import ALL
from tests.cli.records import NOW, RECORD
from tests.cli.status.leases import lease

PODS = "/api/v1/namespaces/disttrain/pods"
JOB = "/apis/batch/v1/namespaces/disttrain/jobs/train-singlepod"


def node(name: str) -> dict[str, Any]:
    """Return a node that Kubernetes still takes for ready."""
    ready = [{"type": "Ready", "status": "True"}]
    return {"metadata": {"name": name}, "status": {"conditions": ready}}


def pod(name: str, on: str) -> dict[str, Any]:
    """Return a pod of the run that runs on the node `on`."""
    return {
        "metadata": {"name": name, "creationTimestamp": "2026-11-22T06:58:00Z"},
        "spec": {"nodeName": on, "containers": [{"name": "trainer"}]},
        "status": {"phase": "Running"},
    }


class Server:
    """An API server that gets no logs of pods on the lost node n2.

    The time that a request waits for these logs passes on the server's own clock. `waited` has the
    name and the time limit of each request for a log.

    Args:
        reported: how many seconds before the beginning n2 reported last.
        reports_again: how many seconds after the beginning n2 reports again; None: never.
    """

    def __init__(self, reported: float, reports_again: float | None = None) -> None:
        self.seconds, self.reported, self.reports_again = 0.0, reported, reports_again
        self.pods = [pod("a", "n1"), pod("b", "n2"), pod("c", "n2")]
        job = {"metadata": {"name": "train-singlepod"}, "spec": {}, "status": {}}
        resources = {"resources": [{"name": "jobs", "kind": "Job", "namespaced": True}]}
        self.answers: dict[str, dict[str, Any]] = {
            "/api/v1/nodes": {"items": [node("n1"), node("n2")]},
            "/api/v1/pods": {"items": self.pods},
            ALL: {"items": [RECORD.to_object("disttrain")]},
            "/apis/batch/v1": resources,
            JOB: job,
            PODS: {"items": self.pods},
        }
        self.configs: list[dict[str, Any]] = []
        self.lines, self.begin = "starting\n", ""  # the last and the first lines of logs on n1
        self.waited: list[tuple[str, float | None]] = []

    def leases(self) -> list[dict[str, Any]]:
        """Return the nodes' Leases. The node n1 has always reported a second ago."""
        again = self.reports_again
        last = self.reported if again is None or self.seconds < again else -again
        return [lease("n1", 1 - self.seconds), lease("n2", last)]

    def request(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: object,
        content_type: str,
        seconds: float | None = None,
    ) -> Answer:
        del body, content_type
        assert method == "GET"
        return self.answer(path, query, seconds)

    def answer(self, path: str, query: dict[str, str], seconds: float | None) -> Answer:
        if query.get("labelSelector") == CONFIGS:
            text = json.dumps({"items": self.configs})
        elif path == LEASES:
            text = json.dumps({"items": self.leases()})
        elif path.endswith("/log"):
            name = path.split("/")[-2]
            self.waited.append((name, seconds))
            (on,) = (p["spec"]["nodeName"] for p in self.pods if p["metadata"]["name"] == name)
            if on != "n1":
                self.seconds += seconds or 30
                raise OSError("no answer")
            lines = self.begin if "limitBytes" in query else self.lines
            stamped = [f"2026-11-22T06:59:00Z {line}" for line in lines.splitlines()]
            text = "\n".join(stamped)
        else:
            text = json.dumps(self.answers.get(path))
        return Answer(
            200, format_datetime(NOW + timedelta(seconds=self.seconds), usegmt=True), text
        )


def snapshot_of(server: Server) -> Snapshot:
    """Return what one snapshot of `status` has."""
    api = Api(Access(kubeconfig="{}"), patience_seconds=0)
    api.use(server)
    return take_snapshot(api, "disttrain")


def run_of(server: Server) -> RunStatus:
    """Return the state of the only run."""
    (run,) = snapshot_of(server).runs
    return run
