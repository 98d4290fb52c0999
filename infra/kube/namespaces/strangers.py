"""Finds objects of others in a namespace of this stack, before the namespace is deleted.

Kubernetes deletes a namespace with all that is in it. So objects of every kind that the API server
lists are looked at. Objects of this stack, of its Helm releases and manifests, and of Kubernetes
itself are expected there, and also all objects that these have made in turn.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, TaskError, UnreachableError
from infra.kube.namespaces.namespaced_kinds import NamespacedKind, namespaced_kinds
from infra.kube.namespaces.own_namespace import OwnNamespace
from infra.kube.namespaces.owners import first_owner, has_made, is_of_release, next_owner
from infra.kube.objects import Json, annotation, is_ending, label, name_of, part, parts
from infra.kube.paths import API_SERVICES
from infra.kube.say import first_of

MOST_NAMED = 20
MAY_GO = "true"  # the value of MAY_GO_ANNOTATION
# Kinds of objects that Kubernetes makes for its own use, or for other objects without naming these
# as owners.
OF_KUBERNETES = frozenset(
    {
        ("", "Endpoints"),
        ("", "Event"),
        ("coordination.k8s.io", "Lease"),
        ("discovery.k8s.io", "EndpointSlice"),
        ("events.k8s.io", "Event"),
        ("metrics.k8s.io", "PodMetrics"),
    }
)
# Objects in every namespace. Kubernetes makes the first two, Istio and OpenShift the others.
IN_EVERY_NAMESPACE = frozenset(
    {
        "ServiceAccount default",
        "ConfigMap kube-root-ca.crt",
        "ConfigMap istio-ca-root-cert",
        "ConfigMap openshift-service-ca.crt",
    }
)


@dataclass
class Seen:
    """What was found in a namespace.

    Args:
        strangers: each object of somebody else, such as `Secret logins`.
        unseen: each kind or API version that could not be read, with the reason.
    """

    strangers: list[str] = field(default_factory=list[str])
    unseen: list[str] = field(default_factory=list[str])


def refuse_strangers(api: Api, namespace: OwnNamespace, owner: str) -> None:
    """Refuse to delete a namespace with objects of others.

    Args:
        api: the cluster.
        namespace: the namespace. Nothing is checked if this stack has not made it, or if it is
            being deleted already.
        owner: the owner id of this stack.

    Raises:
        TaskError: there are such objects, or these credentials may not look for them. The text
            says what to do.
    """
    item = api.get(namespace.path)
    if item is None or is_ending(item) or label(item, names.OWNER_LABEL) != owner:
        return
    if problem := refusal(namespace, objects_of_others(api, namespace, owner)):
        raise TaskError(problem)


def objects_of_others(api: Api, namespace: OwnNamespace, owner: str) -> Seen:
    """Find the objects of others in the namespace. An object with owners counts as its first owner.

    Args:
        api: the cluster.
        namespace: the namespace.
        owner: the owner id of this stack.
    """
    seen = Seen()
    tops = [
        _top(api, item)
        for item in _objects(api, namespace, owner, seen.unseen)
        if not is_expected(item, namespace, owner)
    ]
    seen.strangers = strangers(filter(None, tops), namespace, owner)
    return seen


def strangers(tops: Iterable[Json], namespace: OwnNamespace, owner: str) -> list[str]:
    """The names of the objects that are not expected in the namespace, as `Secret logins`.

    This function is pure.

    Args:
        tops: objects with their kinds, each the first in its chain of owners.
        namespace: the namespace.
        owner: the owner id of this stack.
    """
    return sorted({_named(item) for item in tops if not is_expected(item, namespace, owner)})


def is_expected(item: Json, namespace: OwnNamespace, owner: str) -> bool:
    """Whether an object may be deleted with the namespace. This function is pure."""
    named = _named(item)
    return bool(
        label(item, names.OWNER_LABEL) == owner
        or is_of_release(item, namespace.release, namespace.name)
        or named in namespace.leaves
        or named in IN_EVERY_NAMESPACE
        or (item["apiVersion"].rpartition("/")[0], item["kind"]) in OF_KUBERNETES
        or is_ending(item)  # It is being deleted already.
        or _is_record_of_helm(item, namespace.release)
        or (item["kind"] == "Pod" and label(item, names.TASK_LABEL))  # It ends with its command.
        or annotation(item, names.MAY_GO_ANNOTATION) == MAY_GO
    )


def refusal(namespace: OwnNamespace, seen: Seen) -> str:
    """Why the namespace cannot be deleted; empty: it can. This function is pure."""
    name = namespace.name
    if seen.strangers:
        return (
            f"{namespace.subject} cannot be taken away: namespace {name} is deleted with it, and "
            f"others have objects there ({first_of(seen.strangers, MOST_NAMED)}), which would be "
            "deleted too. It is left as it is. Move what is still needed to another namespace "
            f"and delete it in this one (`kubectl -n {name} get KIND NAME -o yaml` shows it), or "
            f"mark what may be deleted: kubectl -n {name} annotate KIND NAME "
            f"{names.MAY_GO_ANNOTATION}={MAY_GO}. Then run the command again"
        )
    if seen.unseen:
        return (
            f"{namespace.subject} cannot be taken away: namespace {name} is deleted with it, and "
            f"it is not known whether others have objects of these kinds there: "
            f"{first_of(seen.unseen, MOST_NAMED)}. It is left as it is. If a right is missing, let "
            "somebody who may list these kinds run the command. If an API does not answer, "
            "repair it or delete its APIService: without that, Kubernetes cannot delete a "
            "namespace either"
        )
    return ""


def _objects(api: Api, namespace: OwnNamespace, owner: str, unseen: list[str]) -> Iterator[Json]:
    """Yield each object in the namespace once, with `apiVersion` and `kind`.

    Objects of the kinds in `namespace.definitions` are left out.
    """
    known = set[str]()
    for kind in namespaced_kinds(api, _own_api_versions(api, namespace, owner), unseen.append):
        if kind.definition in namespace.definitions:
            continue
        for item in _listed_objects(api, kind, namespace.name, unseen):
            uid = str(part(item, "metadata").get("uid") or "")
            if not uid or uid not in known:  # Events are in two API groups.
                yield {"apiVersion": kind.api_version, "kind": kind.kind, **item}
            known.add(uid)


def _listed_objects(
    api: Api, kind: NamespacedKind, namespace: str, unseen: list[str]
) -> list[Json]:
    try:
        return api.list(kind.path(namespace))
    except (ApiError, UnreachableError) as error:
        # 404: the kind was removed meanwhile; 405: its objects cannot be listed.
        if not isinstance(error, ApiError) or error.status not in (404, 405):
            unseen.append(f"{kind.kind} ({error})")
        return []


def _own_api_versions(api: Api, namespace: OwnNamespace, owner: str) -> set[str]:
    """The API versions that are served by pods in namespaces of this stack.

    These API versions end with the stack. They are not asked, because their pods may be dead, for
    example those of a Kueue that this stack has installed.
    """
    try:
        specs = [part(item, "spec") for item in api.list(API_SERVICES)]
    except ApiError:  # An API version without an answer is then reported as unseen.
        return set()
    answering = {str(part(spec, "service").get("namespace") or "") for spec in specs} - {""}
    ours = {name for name in answering if name == namespace.name or _is_ours(api, name, owner)}
    return {
        f"{spec['group']}/{spec['version']}"
        for spec in specs
        if part(spec, "service").get("namespace") in ours
    }


def _is_ours(api: Api, namespace: str, owner: str) -> bool:
    try:
        return has_made(api, owner, namespace)
    except ApiError:  # Credentials that may not read the namespace have not made it.
        return False


def _top(api: Api, item: Json) -> Json | None:
    """The first owner of an object, as `first_owner` returns it, but with three differences.

    An object with several owners, one of which is gone, counts as without owners, because
    Kubernetes keeps it. An object with the label of a stack counts as deleted (None) if its only
    owner is gone or is being deleted, because that stack has just deleted it. If an owner may not
    be read, the object counts as without owners.
    """
    owners = len(parts(part(item, "metadata"), "ownerReferences"))
    try:
        if owners == 1 and label(item, names.OWNER_LABEL):
            by = next_owner(api, item)
            return None if by is None or is_ending(by) else item
        found = first_owner(api, item)
    except ApiError:
        return item
    return item if found is None and owners > 1 else found


def _is_record_of_helm(item: Json, release: str) -> bool:
    return bool(release) and (label(item, "owner"), label(item, "name")) == ("helm", release)


def _named(item: Json) -> str:
    return f"{item['kind']} {name_of(item)}"
