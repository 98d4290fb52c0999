"""What others have in the namespaces of a platform that is destroyed, on a real API server.

Kubernetes deletes a namespace with all that is in it. So nothing is deleted where others have
anything in such a namespace.
"""

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.controllers import CONTROLLERS
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings
from infra.kube.controllers import open_controller
from infra.kube.errors import ApiError, TaskError
from infra.kube.job import Job
from infra.kube.names import COMPONENT_LABEL, MAY_GO_ANNOTATION, OWNER_LABEL, TASK_LABEL
from infra.kube.namespaces import claim_names, claim_namespace, namespace_guard, use_namespace
from infra.kube.namespaces.own_namespace import OwnNamespace
from infra.kube.objects import Json, part
from infra.kube.paths import DEFINITIONS
from infra.kube.runs import destroy_guard
from infra.platform.controllers import controller_field
from infra.platform.gpu_operator import OWN_NAMESPACE, RELEASE
from tests.kube.accounts import user_of
from tests.kube.installed import make_deployment
from tests.kube.lab import PROBE_IMAGE, PROJECT, Lab, Run, wait_for

POLICIES = "clusterpolicies.nvidia.com"
CHART = PROJECT / "tests" / "operator" / "chart"
OF_RELEASE = {
    "meta.helm.sh/release-name": RELEASE,
    "meta.helm.sh/release-namespace": OWN_NAMESPACE.name,
}


def make(api: Api, namespace: str, kind: str, name: str, **about: Any) -> str:
    """Make a core object with nothing in it, and return its path."""
    collection = api.path("v1", kind, namespace)
    metadata = {"name": name, **about}
    api.create(collection, {"apiVersion": "v1", "kind": kind, "metadata": metadata})
    return f"{collection}/{name}"


def make_pod(api: Api, namespace: str, **labels: str) -> None:
    container = {"name": "main", "image": PROBE_IMAGE, "imagePullPolicy": "Never"}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "of-a-command", "labels": labels},
        "spec": {"containers": [container]},
    }
    api.create(f"/api/v1/namespaces/{namespace}/pods", body)


def job_of(lab: Lab, namespace: str, owner: str, *places: OwnNamespace, **more: Any) -> Job:
    """Return the job of a task that deletes these namespaces of the platform."""
    fields = {"own_namespaces": [place.fields() for place in places], **more}
    return Job(lab.access(), namespace, owner, "dev", fields)


def test_others_objects_keep_a_platform_from_going(lab: Lab) -> None:
    """`destroy` is refused while others have objects in the platform's namespace, and names them.

    What the stack's run has made, pods of anybody's commands, and objects that people have marked
    as free to go do not keep the platform.
    """
    run = Run(lab, lab.namespace(), "dev")
    about = {"metadata": {"labels": {OWNER_LABEL: run.owner}}}
    lab.api.patch(f"/api/v1/namespaces/{run.namespace}", about)
    run.up()
    make_pod(lab.api, run.namespace, **{TASK_LABEL: "sample", OWNER_LABEL: "somebody"})
    job = job_of(lab, run.namespace, run.owner, OwnNamespace(run.namespace, "the platform"))
    destroy_guard.delete(job, lab.api)
    claim: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "theirs"}}
    claims = f"/api/v1/namespaces/{run.namespace}/persistentvolumeclaims"
    lab.api.create(claims, {**body, "spec": claim})
    secret = make(lab.api, run.namespace, "Secret", "logins")
    said = (
        rf"^the platform cannot be taken away: namespace {run.namespace} is deleted with it, and "
        r"others have objects there \(PersistentVolumeClaim theirs, Secret logins\), which would"
    )
    with pytest.raises(TaskError, match=said):
        destroy_guard.delete(job, lab.api)
    for path in (f"{claims}/theirs", secret):
        lab.api.patch(path, {"metadata": {"annotations": {MAY_GO_ANNOTATION: "true"}}})
    destroy_guard.delete(job, lab.api)


def test_what_another_stack_has_just_deleted_keeps_nothing(lab: Lab) -> None:
    """An object of another stack that is being deleted does not keep a platform, nor do its parts.

    `pulumi destroy` of a run does not wait until Kubernetes has deleted parts such as the revisions
    of a StatefulSet. These have the labels of the run's pods.
    """
    namespace, owner = lab.namespace(), str(uuid.uuid4())
    lab.api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {OWNER_LABEL: owner}}})
    job = job_of(lab, namespace, owner, OwnNamespace(namespace, "the platform"))
    theirs = {"labels": {OWNER_LABEL: str(uuid.uuid4())}}
    whole = make(lab.api, namespace, "ConfigMap", "whole", finalizers=["tests/held"], **theirs)
    uid = part(lab.api.get(whole) or {}, "metadata")["uid"]
    by = {"apiVersion": "v1", "kind": "ConfigMap", "name": "whole", "uid": uid}
    make(lab.api, namespace, "ConfigMap", "revision", ownerReferences=[by], **theirs)
    with pytest.raises(TaskError, match=r"\(ConfigMap revision, ConfigMap whole\)"):
        destroy_guard.delete(job, lab.api)
    lab.api.delete(whole, {})
    destroy_guard.delete(job, lab.api)
    lab.api.patch(whole, {"metadata": {"finalizers": None}})


def test_namespace_that_others_made_is_refused(lab: Lab) -> None:
    """`destroy` is refused if a namespace of the platform was made by others.

    Otherwise Pulumi's engine would delete it by its name, for example in another cluster than that
    of the last `up`.
    """
    namespace = lab.namespace("somebody")
    make(lab.api, namespace, "Secret", "logins")
    job = job_of(lab, namespace, str(uuid.uuid4()), OwnNamespace(namespace, "the platform"))
    with pytest.raises(TaskError, match=r"belongs to another stack .*\. Nothing"):
        destroy_guard.delete(job, lab.api)
    namespace_guard.delete(job, lab.api)


@pytest.fixture
def operator(lab: Lab) -> Iterator[str]:
    """Yield the owner of a GPU Operator, whose namespace has what its chart and its program make
    there.
    """
    owner, api = str(uuid.uuid4()), lab.api
    definition = yaml.safe_load((CHART / "crds" / "nvidia.com_clusterpolicies.yaml").read_text())
    policies = "/apis/nvidia.com/v1/clusterpolicies"
    place = {"name": OWN_NAMESPACE.name, "labels": {OWNER_LABEL: owner}}
    try:
        api.create(
            "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": place}
        )
        api.create(DEFINITIONS, definition)
        wait_for("the kind", lambda: _lists(api, policies))
        policy: Json = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy"}
        policy["metadata"] = {"name": "cluster-policy", "annotations": OF_RELEASE}
        made = api.create(policies, policy)
        by = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "name": "cluster-policy"}
        parts = {**by, "uid": part(made, "metadata")["uid"], "controller": True}
        make_deployment(api, OWN_NAMESPACE.name, "gpu-operator", annotations=OF_RELEASE)
        make_deployment(api, OWN_NAMESPACE.name, "device-plugin", ownerReferences=[parts])
        make(api, OWN_NAMESPACE.name, "Secret", "sh.helm.release.v1.gpu-operator.v1")
        record = {"labels": {"owner": "helm", "name": RELEASE}}
        secrets = f"{OWN_NAMESPACE.path}/secrets/sh.helm.release.v1.gpu-operator.v1"
        api.patch(secrets, {"metadata": record})
        yield owner
    finally:
        for path in (f"{DEFINITIONS}/{POLICIES}", OWN_NAMESPACE.path):
            api.delete(path, {})
        for path in (f"{DEFINITIONS}/{POLICIES}", OWN_NAMESPACE.path):
            wait_for(f"the end of {path}", lambda path=path: api.get(path) is None)


def _lists(api: Api, path: str) -> bool:
    try:
        api.list(path)
    except ApiError:
        return False
    return True


def test_others_objects_keep_the_gpu_operator(lab: Lab, operator: str) -> None:
    """The GPU Operator is not removed while others have objects in its namespace.

    The objects of its chart, and those that it makes itself, do not keep it.
    """
    job = job_of(lab, "default", operator, OWN_NAMESPACE)
    namespace_guard.delete(job, lab.api)
    make(lab.api, OWN_NAMESPACE.name, "ConfigMap", "theirs")
    said = r"^the GPU Operator cannot be taken away: .* \(ConfigMap theirs\), which would be"
    for task in (namespace_guard, destroy_guard):
        with pytest.raises(TaskError, match=said):
            task.delete(job, lab.api)


def test_what_pods_of_a_controller_leave_keeps_nothing(lab: Lab) -> None:
    """A Secret that a Job of Volcano makes with kubectl belongs to Volcano and does not keep it.

    Any other Secret in Volcano's namespace does.
    """
    kind, owner = CONTROLLERS["volcano"], str(uuid.uuid4())
    path = f"/api/v1/namespaces/{kind.namespace}"
    place = {"name": kind.namespace, "labels": {OWNER_LABEL: owner}}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": place}
    lab.api.create("/api/v1/namespaces", body)
    try:
        make(lab.api, kind.namespace, "Secret", "volcano-admission-secret")
        job = job_of(
            lab,
            "default",
            owner,
            controller=controller_field(kind),
            controllers=[controller_field(kind)],
        )
        for task in (destroy_guard, open_controller):
            task.delete(job, lab.api)
        make(lab.api, kind.namespace, "Secret", "logins")
        with pytest.raises(TaskError, match=r"others have objects there \(Secret logins\), which"):
            destroy_guard.delete(job, lab.api)
    finally:
        lab.api.delete(path, {})
        wait_for(f"the end of {path}", lambda: lab.api.get(path) is None)


def test_namespace_with_others_objects_is_not_left(lab: Lab) -> None:
    """`up` refuses to change `namespace` while others have objects in the former one.

    Otherwise `up` would delete the former namespace at its end, with all that others have there.
    """
    owner = uuid.uuid4().hex
    left, taken = lab.namespace(owner), lab.namespace(owner)
    mine = {"labels": {OWNER_LABEL: owner, COMPONENT_LABEL: "namespace"}}
    for name in (left, taken):
        lab.api.patch(f"/api/v1/namespaces/{name}", {"metadata": mine})
    secret = make(lab.api, left, "Secret", "logins")
    job = Job(lab.access(), taken, owner, "dev", {"names": [taken]})
    with pytest.raises(TaskError, match=rf"^the platform in namespace {left} cannot be taken away"):
        claim_namespace.create(job, lab.api)
    with pytest.raises(TaskError, match="with namespaceExisting: use: this stack has made it"):
        use_namespace.create(job, lab.api)
    lab.api.patch(secret, {"metadata": {"annotations": {MAY_GO_ANNOTATION: "true"}}})
    claim_namespace.create(job, lab.api)


def test_objects_of_others_are_not_taken_over(lab: Lab, tmp_path: Path) -> None:
    """`up` refuses when an object with one of its names exists and was made by others.

    Otherwise Pulumi's engine would apply its own object over theirs, and delete it with the stack.
    The preview says so too, if its user may look there.
    """
    namespace, owner = lab.namespace(), str(uuid.uuid4())
    ours = make(lab.api, namespace, "ConfigMap", "proxy-config", labels={OWNER_LABEL: owner})
    theirs = make(lab.api, namespace, "Secret", "proxy-config")
    nobodys = f"/api/v1/namespaces/{namespace}/secrets/missing"
    claim_names.create(job_of(lab, namespace, owner, paths=[ours, nobodys]), lab.api)
    use_namespace.create(job_of(lab, namespace, owner), lab.api)
    with pytest.raises(TaskError, match="secrets/proxy-config, which was not made by this stack"):
        claim_names.create(job_of(lab, namespace, owner, paths=[ours, theirs]), lab.api)
    names = (namespace, [ours, nobodys, theirs])
    (problem,) = claim_names.names_findings(lab.api, *names, owner).problems
    assert re.search(r"secrets/proxy-config, which was not made by this stack\. `pulumi", problem)
    assert "configmaps" not in problem
    assert claim_names.names_findings(lab.api, namespace, [ours, nobodys], owner) == Findings()
    (problem,) = claim_names.names_findings(lab.api, *names, "").problems
    assert "configmaps/proxy-config, which belongs to another stack" in problem
    unseen = claim_names.names_findings(user_of(lab, namespace, tmp_path, "view"), *names, owner)
    assert unseen.problems == []
    assert (
        "others have objects of these names: secrets/missing, secrets/proxy-config"
        in (unseen.notes[0])
    )
    job = job_of(lab, namespace, str(uuid.uuid4()), paths=[ours])
    with pytest.raises(TaskError, match="configmaps/proxy-config, which belongs to another stack"):
        claim_names.create(job, lab.api)
    with pytest.raises(TaskError, match="it holds the platform of a stack"):
        use_namespace.create(job, lab.api)


def test_preview_names_a_foreign_namespace(lab: Lab, tmp_path: Path) -> None:
    """The preview refuses a namespace that this stack has not made, as `up` does, before anything
    is made. A user who may not look there gets a note instead.
    """
    nobodys, owner = lab.namespace(), str(uuid.uuid4())
    findings = claim_namespace.namespace_findings
    (problem,) = findings(lab.api, nobodys, owner, "dev").problems
    assert f"namespace: {nobodys!r} exists on the cluster and was not made by this stack" in problem
    assert findings(lab.api, nobodys, "", "dev").problems == [problem]
    assert findings(lab.api, f"{nobodys}-missing", owner, "dev") == Findings()
    unseen = findings(user_of(lab, nobodys, tmp_path, "view"), "default", owner, "dev")
    assert unseen.problems == []
    assert "whether the namespace default belongs to others" in unseen.notes[0]
    lab.api.patch(f"/api/v1/namespaces/{nobodys}", {"metadata": {"labels": {OWNER_LABEL: owner}}})
    assert findings(lab.api, nobodys, owner, "dev") == Findings()
