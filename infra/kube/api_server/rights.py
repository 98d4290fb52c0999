"""Finds out which of the rights that a stack needs its user lacks. It changes nothing."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import yaml

from infra.kube.api_server.api import Api
from infra.kube.objects import Json, part, parts

REVIEWS = "/apis/authorization.k8s.io/v1"


@dataclass(frozen=True, order=True)
class Need:
    """The right to one verb on one kind of object.

    Args:
        group: the API group; empty: the core group.
        resource: the plural name of the kind, possibly with a subresource, as in `pods/log`.
        verb: the verb, such as `create`.
        namespace: the namespace; empty: the right is needed for the whole cluster.
    """

    group: str
    resource: str
    verb: str
    namespace: str


def missing_rights(api: Api, needs: Iterable[Need], namespace: str) -> list[Need]:
    """The needed rights that this user lacks. Raises ApiError and UnreachableError.

    For an administrator, one request is enough. For nearly everybody else two are enough, because
    one request returns a list of all rules for the namespace. A right that the list does not cover
    gets its own request, because an authorizer may allow more than it can list.
    """
    wanted = sorted(set(needs))
    if is_allowed(api, Need("*", "*", "*", "")):
        return []
    spec = {"spec": {"namespace": namespace}}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", **spec}
    answer = api.request("POST", f"{REVIEWS}/selfsubjectrulesreviews", review)
    rules = parts(part(answer, "status"), "resourceRules")
    left = [n for n in wanted if n.namespace != namespace or not covers(rules, n)]
    return [need for need in left if not is_allowed(api, need)]


def is_allowed(api: Api, need: Need) -> bool:
    """Whether this user has the right."""
    resource, _, subresource = need.resource.partition("/")
    attributes = {
        "group": need.group,
        "resource": resource,
        "subresource": subresource,
        "verb": need.verb,
        "namespace": need.namespace,
    }
    spec = {"resourceAttributes": {key: value for key, value in attributes.items() if value}}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    answer = api.request("POST", f"{REVIEWS}/selfsubjectaccessreviews", {**review, "spec": spec})
    return part(answer, "status").get("allowed") is True


def covers(rules: list[Json], need: Need) -> bool:
    """Whether a list of rules gives a right. Rules for objects of certain names do not.

    This function is pure.
    """

    def names(rule: Json, key: str, word: str) -> bool:
        listed = cast(list[str], rule.get(key) or [])
        return word in listed or "*" in listed

    return any(
        names(rule, "apiGroups", need.group)
        and names(rule, "resources", need.resource)
        and names(rule, "verbs", need.verb)
        and not rule.get("resourceNames")
        for rule in rules
    )


def as_roles(needs: Iterable[Need], name: str) -> str:
    """The rights as Roles and a ClusterRole, in YAML that an administrator can apply.

    This function is pure.
    """
    scopes: dict[str, dict[tuple[str, str], set[str]]] = {}
    for need in needs:
        kinds = scopes.setdefault(need.namespace, {})
        kinds.setdefault((need.group, need.resource), set()).add(need.verb)
    documents: list[Json] = []
    for namespace, kinds in sorted(scopes.items(), reverse=True):
        merged: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for (group, resource), verbs in sorted(kinds.items()):
            merged.setdefault((group, tuple(sorted(verbs))), []).append(resource)
        documents.append(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role" if namespace else "ClusterRole",
                "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
                "rules": [
                    {"apiGroups": [group], "resources": resources, "verbs": list(verbs)}
                    for (group, verbs), resources in merged.items()
                ],
            }
        )
    return "---\n".join(
        yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=96)
        for document in documents
    )
