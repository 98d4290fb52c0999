"""Which rights a user lacks, asked of a real API server with its roles."""

from pathlib import Path

from infra.kube.api_server.rights import Need, missing_rights
from infra.rights import needs_of
from tests.kube.accounts import user_of
from tests.kube.lab import Lab

KINDS = {("v1", "ConfigMap", True), ("v1", "Secret", True), ("batch/v1", "Job", True)}
CLUSTER_KINDS = {*KINDS, ("v1", "PersistentVolume", False)}


def test_administrator_lacks_nothing(lab: Lab) -> None:
    assert missing_rights(lab.api, needs_of(CLUSTER_KINDS, "any"), "any") == []


def test_user_of_one_namespace_lacks_what_lies_beyond_it(lab: Lab, tmp_path: Path) -> None:
    """A user with all rights in one namespace is told to lack those of cluster-wide objects.

    A role for all kinds that is bound in one namespace gives no rights outside of it.
    """
    namespace = lab.namespace()
    somebody = user_of(lab, namespace, tmp_path, "cluster-admin")
    assert missing_rights(somebody, needs_of(KINDS, namespace), namespace) == []
    missing = missing_rights(somebody, needs_of(CLUSTER_KINDS, namespace), namespace)
    assert {(need.resource, need.namespace) for need in missing} == {("persistentvolumes", "")}
    other = lab.namespace()
    assert missing_rights(somebody, needs_of(KINDS, other), other)


def test_viewer_lacks_exactly_what_changes_something(lab: Lab, tmp_path: Path) -> None:
    namespace = lab.namespace()
    somebody = user_of(lab, namespace, tmp_path, "view")
    needs = needs_of(KINDS, namespace)
    missing = set(missing_rights(somebody, needs, namespace))
    assert Need("", "configmaps", "create", namespace) in missing
    assert Need("", "secrets", "get", namespace) in missing
    seen = needs - missing
    assert {need.verb for need in seen} == {"get", "list", "watch"}
    assert {need.resource for need in seen} >= {"configmaps", "jobs", "pods", "pods/log"}


def test_each_right_that_a_role_lacks_is_found_alone(lab: Lab, tmp_path: Path) -> None:
    """If a role lacks one verb on one kind and is enough otherwise, exactly this right is named."""
    namespace = lab.namespace()
    needs = sorted(needs_of(KINDS, namespace))
    lacking = Need("", "secrets", "delete", namespace)
    rules = [
        {"apiGroups": [need.group], "resources": [need.resource], "verbs": [need.verb]}
        for need in needs
        if need != lacking
    ]
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    name = f"{namespace}-nearly"
    lab.api.create(path, {**head, "metadata": {"name": name}, "rules": rules})
    try:
        somebody = user_of(lab, namespace, tmp_path, name)
        assert missing_rights(somebody, needs, namespace) == [lacking]
    finally:
        lab.api.delete(f"{path}/{name}", {})
