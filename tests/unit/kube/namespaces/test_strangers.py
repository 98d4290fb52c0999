"""Which objects in a controller's namespace count as those of others. The tests in tests/kube look
for such objects in a real cluster.
"""

from typing import Any

import pytest

from infra.controllers import CONTROLLERS
from infra.kube.controllers.controller import parse_controller
from infra.kube.names import MAY_GO_ANNOTATION, OWNER_LABEL
from infra.kube.namespaces.namespaced_kinds import listable_kinds, versions_of
from infra.kube.namespaces.strangers import MOST_NAMED, Seen, is_expected, refusal, strangers
from infra.kube.objects import Json
from infra.platform.controllers import controller_field, controller_for_tasks

KUEUE = controller_for_tasks(CONTROLLERS["kueue"]).own_namespace
OWNER = "us"
RELEASE = {"meta.helm.sh/release-name": "kueue", "meta.helm.sh/release-namespace": "kueue-system"}


def item(kind: str, name: str, api_version: str = "v1", **about: Any) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **about}}


EXPECTED = {
    "of this stack": item("Role", "leader", labels={OWNER_LABEL: OWNER}),
    "of the chart": item("Secret", "kueue-webhook-server-cert", annotations=RELEASE),
    "Helm's record": item("Secret", "release.v1", labels={"owner": "helm", "name": "kueue"}),
    "the default account": item("ServiceAccount", "default"),
    "the cluster's authority": item("ConfigMap", "kube-root-ca.crt"),
    "a leader's lease": item("Lease", "c1f6bfd2", "coordination.k8s.io/v1"),
    "an event": item("Event", "pulled", "events.k8s.io/v1"),
    "addresses of a Service": item("Endpoints", "kueue"),
    "marked as not needed": item("ConfigMap", "notes", annotations={MAY_GO_ANNOTATION: "true"}),
    "deleted already": item("Secret", "old", deletionTimestamp="2026-01-01T00:00:00Z"),
}
FOREIGN = {
    "by hand": item("Secret", "logins"),
    "of another stack": item("ConfigMap", "theirs", labels={OWNER_LABEL: "them"}),
    "of another release": item(
        "Deployment", "web", annotations={**RELEASE, **{next(iter(RELEASE)): "web"}}
    ),
    "another release's record": item("Secret", "web.v1", labels={"owner": "helm", "name": "web"}),
    "another account": item("ServiceAccount", "robot"),
    "another kind of that name": item("Event", "party", "example.org/v1"),
    "with another mark": item("ConfigMap", "notes", annotations={MAY_GO_ANNOTATION: "false"}),
    "another controller's certificate": item("Secret", "volcano-admission-secret"),
}


@pytest.mark.parametrize("case", EXPECTED)
def test_what_goes_with_a_controller_is_no_strangers(case: str) -> None:
    assert is_expected(EXPECTED[case], KUEUE, OWNER)


@pytest.mark.parametrize("case", FOREIGN)
def test_what_somebody_else_has_made_is_named(case: str) -> None:
    found = FOREIGN[case]
    named = f"{found['kind']} {found['metadata']['name']}"
    assert strangers([*EXPECTED.values(), found, found], KUEUE, OWNER) == [named]


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("volcano", item("Secret", "volcano-admission-secret")),
        (
            "kube-prometheus-stack",
            item(
                "PersistentVolumeClaim",
                "prometheus-kube-prometheus-stack-prometheus-db-"
                "prometheus-kube-prometheus-stack-prometheus-0",
            ),
        ),
    ],
)
def test_what_its_own_pods_leave_is_known_from_the_job(name: str, left: Json) -> None:
    """Objects that a controller's own pods leave behind, such as the claim of Prometheus, do not
    count as those of others. The job of the controller names them.
    """
    assert is_expected(
        left, parse_controller(controller_field(CONTROLLERS[name])).own_namespace, OWNER
    )


def test_refusal_names_the_objects_and_both_ways_out() -> None:
    said = refusal(KUEUE, Seen([f"Secret s{number:02}" for number in range(MOST_NAMED + 2)]))
    assert said.startswith("controllers: 'kueue' cannot be taken away: namespace kueue-system is")
    assert "Secret s00, Secret s01, " in said
    assert "Secret s19, and 2 more), which would be deleted too" in said
    assert "kubectl -n kueue-system get KIND NAME -o yaml" in said
    assert "kubectl -n kueue-system annotate KIND NAME disttrain.dev/may-be-deleted=true" in said


def test_what_cannot_be_seen_is_not_deleted() -> None:
    said = refusal(KUEUE, Seen(unseen=["Secret (secrets is forbidden)"]))
    assert "is not known whether others have objects of these kinds there: Secret (sec" in said
    assert refusal(KUEUE, Seen()) == ""


def test_kinds_are_those_of_namespaces_that_can_be_listed() -> None:
    """Only kinds whose objects are in namespaces and can be listed are looked at. An API of others
    may name no verbs for a kind (null), which must not end `pulumi destroy` with a traceback.
    """

    def resource(name: str, *verbs: str, namespaced: bool = True) -> Json:
        return {"name": name, "kind": name.title(), "namespaced": namespaced, "verbs": [*verbs]}

    listed = {
        "resources": [
            resource("pods", "get", "list"),
            resource("pods/log", "get"),
            resource("bindings", "create"),
            resource("nodes", "list", namespaced=False),
            {"name": "odd", "kind": "Odd", "namespaced": True, "verbs": None},
        ]
    }
    (kind,) = listable_kinds("v1", listed)
    assert (kind.kind, kind.path("a")) == ("Pods", "/api/v1/namespaces/a/pods")
    (kind,) = listable_kinds("example.org/v2", {"resources": [resource("toys", "list")]})
    assert kind.path("a") == "/apis/example.org/v2/namespaces/a/toys"
    assert kind.definition == "toys.example.org"


def test_preferred_version_of_a_group_comes_first() -> None:
    versions = [{"groupVersion": f"example.org/v{number}"} for number in (1, 2, 3)]
    found = versions_of({"versions": versions, "preferredVersion": versions[1]})
    assert found == ["example.org/v2", "example.org/v1", "example.org/v3"]
