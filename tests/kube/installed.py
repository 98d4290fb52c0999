"""Makes what a platform's JobSet leaves in a cluster, for tests of its removal.

That is only JobSet's definition and its namespace; its controller does not run.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import yaml

from infra.controllers import CONTROLLERS
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError
from infra.kube.job import Job
from infra.kube.names import OWNER_LABEL, STACK_LABEL
from infra.kube.objects import Json
from infra.kube.paths import DEFINITIONS, WEBHOOKS
from infra.platform.controllers import controller_field
from sandbox.toolchain import tool_folder
from sandbox.tools.controllers import JOBSET_CHART
from tests.kube.lab import PROBE_IMAGE, Lab, wait_for

KIND = CONTROLLERS["jobset"]
(DEFINITION,) = KIND.definitions
PATH = f"{DEFINITIONS}/{DEFINITION}"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/jobsets"
WEBHOOK = f"{WEBHOOKS[1]}/jobset-of-tests"


@dataclass
class Installed:
    """What a platform's JobSet has left in the cluster, and the platform's owner and namespace."""

    lab: Lab
    owner: str
    namespace: str  # of the platform

    def __post_init__(self) -> None:
        self.api = Api(self.lab.access())

    def job(self, owner: str = "", **fields: Any) -> Job:
        """Return the job of a task about JobSet, by default for the stack that has installed it."""
        given = {
            "controller": controller_field(KIND),
            "controllers": [controller_field(KIND)],
            **fields,
        }
        return Job(self.lab.access(), self.namespace, owner or self.owner, "dev", given)

    def make(self, name: str, owner: str = "", **about: Any) -> str:
        """Make a JobSet, and return its path."""
        labels = {OWNER_LABEL: owner} if owner else {}
        path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{self.namespace}/jobsets"
        body = {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": name, "labels": labels, **about},
            "spec": {"replicatedJobs": []},
        }
        self.api.create(path, body)
        return f"{path}/{name}"

    def cut_off(self) -> None:
        """Make a webhook for JobSets whose Service has no pod, so that it never answers."""
        to = {"service": {"namespace": KIND.namespace, "name": "nobody", "path": "/"}}
        rule = {
            "apiGroups": ["jobset.x-k8s.io"],
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE", "DELETE"],
            "resources": ["jobsets"],
        }
        hook = {
            "name": "held.jobset.x-k8s.io",
            "clientConfig": to,
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 1,
        }
        collection, _, name = WEBHOOK.rpartition("/")
        kind = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
        }
        self.api.create(collection, {**kind, "metadata": {"name": name}, "webhooks": [hook]})


def _jobsets(lab: Lab) -> list[Json] | None:
    """Return all JobSets, or None if the API server does not know the kind (any more)."""
    try:
        return lab.api.list(JOBSETS)
    except ApiError:
        return None


def _is_gone(lab: Lab, path: str) -> bool:
    """Return whether the object at a path is gone.

    The function also removes the finalizers of all JobSets. These finalizers would keep the
    namespace and the definition from being deleted.
    """
    for item in _jobsets(lab) or []:
        about = item["metadata"]
        held = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{about['namespace']}/jobsets"
        with suppress(ApiError):  # the kind may be gone meanwhile
            lab.api.patch(f"{held}/{about['name']}", {"metadata": {"finalizers": None}})
    return lab.api.get(path) is None


@contextmanager
def install(lab: Lab) -> Iterator[Installed]:
    """Make JobSet's definition, and its namespace with the labels of a stack, for the block."""
    made = Installed(lab, str(uuid.uuid4()), lab.namespace())
    definition = yaml.safe_load(
        (tool_folder(JOBSET_CHART) / "jobset" / "crds" / "jobset.x-k8s.io_jobsets.yaml").read_text()
    )
    labels = {OWNER_LABEL: made.owner, STACK_LABEL: "dev"}
    place = {"name": KIND.namespace, "labels": labels}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": place}
    try:
        lab.api.create("/api/v1/namespaces", body)
        lab.api.create(DEFINITIONS, definition)
        wait_for("JobSet's kind", lambda: _jobsets(lab) is not None)
        yield made
    finally:
        # The API server serves a kind for some time after its definition is gone.
        paths = (WEBHOOK, PATH, f"/api/v1/namespaces/{KIND.namespace}")
        for path in paths:
            lab.api.delete(path, {})
        for path in paths:
            wait_for(f"the end of {path}", lambda path=path: _is_gone(lab, path))


def make_deployment(api: Api, namespace: str, name: str = "tests", **about: Any) -> str:
    """Make a Deployment whose one pod does nothing, and return its path.

    `about` has further fields of its metadata.
    """
    labels = {"app": name}
    container = {
        "name": "main",
        "image": PROBE_IMAGE,
        "imagePullPolicy": "Never",
        "args": ["serve", ":8080"],
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    template = {"metadata": {"labels": labels}, "spec": spec}
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, **about},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    api.create(path, body)
    return f"{path}/{name}"
