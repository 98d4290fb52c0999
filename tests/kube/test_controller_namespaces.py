"""What others have in the namespace of a controller that is removed, on a real API server.

Kubernetes deletes a namespace with all that is in it. So the controller stays where others have
anything in its namespace.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from infra.kube.api_server.api import Api
from infra.kube.controllers import controller_remains, open_controller
from infra.kube.errors import TaskError
from infra.kube.names import MAY_GO_ANNOTATION, OWNER_LABEL
from infra.kube.namespaces.strangers import objects_of_others
from infra.kube.objects import Json, part
from infra.kube.paths import API_SERVICES, DEFINITIONS
from infra.kube.runs import destroy_guard
from infra.platform.controllers import controller_for_tasks
from tests.kube.accounts import user_of
from tests.kube.installed import KIND, PATH, Installed, make_deployment
from tests.kube.lab import Lab, wait_for

PLACE = f"/api/v1/namespaces/{KIND.namespace}"
RELEASE = {
    "meta.helm.sh/release-name": KIND.name,
    "meta.helm.sh/release-namespace": KIND.namespace,
}


def make(api: Api, kind: str, name: str, **about: object) -> str:
    """Make a core object with nothing in it in JobSet's namespace, and return its path."""
    path = api.path("v1", kind, KIND.namespace)
    body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, **about}}
    api.create(path, body)
    return f"{path}/{name}"


def make_release(installed: Installed) -> None:
    """Make all objects that a running controller has in its namespace.

    These are the objects of its Helm release, its own objects, and those that Kubernetes adds.
    """
    api = installed.api
    make(api, "Secret", "certificate", annotations=RELEASE)
    make(api, "Secret", "sh.helm.release.v1.jobset.v1", labels={"owner": "helm", "name": KIND.name})
    make(api, "ConfigMap", "of-this-stack", labels={OWNER_LABEL: installed.owner})
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{KIND.namespace}/leases"
    lease: Json = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    api.create(leases, {**lease, "metadata": {"name": "leader"}})
    service = {"selector": {"app": "jobset"}, "ports": [{"port": 443}]}
    about = {"name": "webhook", "annotations": RELEASE}
    body: Json = {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": service}
    api.create(f"{PLACE}/services", body)
    deployment = make_deployment(api, KIND.namespace, "jobset", annotations=RELEASE)
    wait_for("its pod", lambda: part(api.get(deployment) or {}, "status").get("availableReplicas"))
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{KIND.namespace}/endpointslices"
    for path in (slices, f"{PLACE}/endpoints", f"{PLACE}/events"):
        wait_for(f"Kubernetes' {path}", lambda path=path: api.list(path))
    for path in (f"{PLACE}/configmaps/kube-root-ca.crt", f"{PLACE}/serviceaccounts/default"):
        wait_for(f"Kubernetes' {path}", lambda path=path: api.get(path))


def make_kind_of_others(api: Api) -> tuple[str, Json]:
    """Make a kind that this program does not know.

    Return the path of its definition, and the manifest of an object of the kind.
    """
    group = f"g{uuid.uuid4().hex[:8]}.example.org"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {
        "group": group,
        "scope": "Namespaced",
        "names": {"kind": "Toy", "plural": "toys", "singular": "toy"},
        "versions": [version],
    }
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"toys.{group}"},
        "spec": spec,
    }
    api.create(DEFINITIONS, body)
    toy = {"apiVersion": f"{group}/v1", "kind": "Toy", "metadata": {"name": "bear"}}
    return f"{DEFINITIONS}/toys.{group}", toy


def test_objects_of_others_in_its_namespace_keep_a_controller(installed: Installed) -> None:
    """A controller is not removed while others have objects of any kind in its namespace.

    The message names each object that somebody has made, and not what Kubernetes made from it. The
    objects of the controller itself do not keep it.
    """
    api = installed.api
    make_release(installed)
    destroy_guard.delete(installed.job(), api)
    kept = [make(api, "Secret", "logins"), make(api, "ServiceAccount", "robot")]
    deployment = make_deployment(api, KIND.namespace, "theirs")
    wait_for("its pod", lambda: part(api.get(deployment) or {}, "status").get("availableReplicas"))
    definition, toy = make_kind_of_others(api)
    try:
        group = toy["apiVersion"]
        wait_for("the kind", lambda: (api.get(f"/apis/{group}") or {}).get("resources"))
        toys = f"/apis/{group}/namespaces/{KIND.namespace}/toys"
        api.create(toys, toy)
        named = r"\(Deployment theirs, Secret logins, ServiceAccount robot, Toy bear\)"
        for task in (destroy_guard, open_controller, controller_remains):
            with pytest.raises(TaskError, match=f"have objects there {named}, which would be"):
                task.delete(installed.job(), api)
        paths = [*kept, deployment, f"{toys}/bear", PATH]
        assert all(map(api.get, paths)), "nothing was deleted"
    finally:
        api.delete(definition, {})
        wait_for("its end", lambda: api.get(definition) is None)


def test_what_people_mark_goes_with_the_controller(installed: Installed) -> None:
    """An object of others with the annotation that it may go does not keep a controller.

    This is the way out where another program makes an object in every namespace again and again.
    """
    api = installed.api
    path = make(api, "ConfigMap", "of-a-policy")
    with pytest.raises(TaskError, match=f"annotate KIND NAME {MAY_GO_ANNOTATION}=true"):
        open_controller.delete(installed.job(), api)
    api.patch(path, {"metadata": {"annotations": {MAY_GO_ANNOTATION: "true"}}})
    for task in (destroy_guard, open_controller, controller_remains):
        task.delete(installed.job(), api)
    assert api.get(PATH) is None


def test_kinds_that_may_not_be_listed_are_named(
    lab: Lab, installed: Installed, tmp_path: Path
) -> None:
    """The search for objects of others names the kinds that the user may not list, and reads the
    rest.

    The user here has the role `view`, which may not list Secrets.
    """
    somebody = user_of(lab, KIND.namespace, tmp_path, "view")
    make(installed.api, "ConfigMap", "theirs")
    seen = objects_of_others(somebody, controller_for_tasks(KIND).own_namespace, installed.owner)
    assert "ConfigMap theirs" in seen.strangers
    (secrets,) = [each for each in seen.unseen if each.startswith("Secret (")]
    assert "forbidden" in secrets
    assert not [each for each in seen.unseen if each.startswith("ConfigMap")]


def test_api_that_does_not_answer_is_named_unless_it_is_of_the_stack(
    lab: Lab, installed: Installed
) -> None:
    """The search for objects of others names an API that does not answer and is not of this stack.

    Kubernetes itself cannot end a namespace while an API does not list its kinds. An API of this
    stack is removed with the stack, also where it belongs to another controller, so it is not
    named.
    """
    api = installed.api
    group = f"g{uuid.uuid4().hex[:8]}.example.org"
    name = f"v1.{group}"
    ours, theirs = lab.namespace(installed.owner), lab.namespace("somebody")
    for namespace, unseen in ((theirs, 1), (ours, 0), (KIND.namespace, 0)):
        service = {"namespace": namespace, "name": "nobody", "port": 443}
        spec = {
            "group": group,
            "version": "v1",
            "service": service,
            "insecureSkipTLSVerify": True,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        }
        body = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"}
        api.create(API_SERVICES, {**body, "metadata": {"name": name}, "spec": spec})
        try:
            wait_for("its group", lambda: group in str(api.request("GET", "/apis")))
            quick = Api(api.access, patience_seconds=0)
            found = objects_of_others(
                quick, controller_for_tasks(KIND).own_namespace, installed.owner
            )
            assert len([each for each in found.unseen if group in each]) == unseen
        finally:
            api.delete(f"{API_SERVICES}/{name}", {})
            wait_for("its end", lambda: group not in str(api.request("GET", "/apis")))
