"""What others have put into a namespace of this stack, which is deleted with all that is in it.

Every kind that the API server lists is looked at. What a Helm release or manifests, this stack and
Kubernetes itself have made is expected there, and so is what that has made in turn.
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

MOST_NAMED = 20
MAY_GO = "true"  # the value of the annotation
# What Kubernetes makes of others' objects without naming them as owners, or keeps for itself.
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
# In every namespace, by Kubernetes; the last two by Istio and OpenShift.
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
    """What a look at a namespace has found.

    Args:
        strangers: `Secret logins`, for each object of somebody else.
        unseen: what could not be looked at, with the reason.
    """

    strangers: list[str] = field(default_factory=list[str])
    unseen: list[str] = field(default_factory=list[str])


def refuse_strangers(api: Api, place: OwnNamespace, owner: str) -> None:
    """Look for others' objects in the namespace.

    Args:
        api: the cluster.
        place: the namespace; nothing is looked for in one that this stack has not made.
        owner: ours.

    Raises:
        TaskError: there are some, or it cannot be seen whether there are; says what to do.
    """
    item = api.get(place.path)
    if item is None or is_ending(item) or label(item, names.OWNER_LABEL) != owner:
        return
    if problem := refusal(place, look(api, place, owner)):
        raise TaskError(problem)


def look(api: Api, place: OwnNamespace, owner: str) -> Seen:
    """The objects of others in the namespace, each by what has made it in the end."""
    seen = Seen()
    tops = [
        _top(api, item)
        for item in _objects(api, place, owner, seen.unseen)
        if not is_expected(item, place, owner)
    ]
    seen.strangers = strangers(filter(None, tops), place, owner)
    return seen


def strangers(tops: Iterable[Json], place: OwnNamespace, owner: str) -> list[str]:
    """`Secret logins` for each object that is not expected in the namespace. Pure.

    Args:
        tops: objects, with their kinds, that have no owner among the objects of the cluster.
        place: the namespace.
        owner: ours.
    """
    return sorted({_named(item) for item in tops if not is_expected(item, place, owner)})


def is_expected(item: Json, place: OwnNamespace, owner: str) -> bool:
    """Whether an object goes with the namespace, and nobody misses it. Pure."""
    named = _named(item)
    return bool(
        label(item, names.OWNER_LABEL) == owner
        or is_of_release(item, place.release, place.name)
        or named in place.leaves
        or named in IN_EVERY_NAMESPACE
        or (item["apiVersion"].rpartition("/")[0], item["kind"]) in OF_KUBERNETES
        or is_ending(item)  # somebody has deleted it already
        or _is_record_of_helm(item, place.release)
        or (item["kind"] == "Pod" and label(item, names.TASK_LABEL))  # it ends with a command
        or annotation(item, names.MAY_GO_ANNOTATION) == MAY_GO
    )


def refusal(place: OwnNamespace, seen: Seen) -> str:
    """Why the namespace cannot be deleted; empty: it can. Pure."""
    name = place.name
    if seen.strangers:
        return (
            f"{place.subject} cannot be taken away: namespace {name} is deleted with it, and "
            f"others have objects there ({_listed(seen.strangers)}), which would be deleted too. "
            "It is left as it is. Move what is still needed to another namespace and delete it in "
            f"this one (`kubectl -n {name} get KIND NAME -o yaml` shows it), or mark what may be "
            f"deleted: kubectl -n {name} annotate KIND NAME {names.MAY_GO_ANNOTATION}={MAY_GO}. "
            "Then run the command again"
        )
    if seen.unseen:
        return (
            f"{place.subject} cannot be taken away: namespace {name} is deleted with it, and "
            f"it is not known whether others have objects of these kinds there: "
            f"{_listed(seen.unseen)}. It is left as it is. If a right is missing, let somebody "
            "who may list these kinds run the command. If an API does not answer, repair it or "
            "delete its APIService: without that, Kubernetes cannot delete a namespace either"
        )
    return ""


def _objects(api: Api, place: OwnNamespace, owner: str, unseen: list[str]) -> Iterator[Json]:
    """Each object in the namespace once, with its kind, without those of known kinds."""
    known = set[str]()
    for kind in namespaced_kinds(api, _own_api_versions(api, place, owner), unseen.append):
        if kind.definition in place.definitions:
            continue
        for item in _listed_objects(api, kind, place.name, unseen):
            uid = str(part(item, "metadata").get("uid") or "")
            if not uid or uid not in known:  # an Event is in two API groups
                yield {"apiVersion": kind.api_version, "kind": kind.kind, **item}
            known.add(uid)


def _listed_objects(
    api: Api, kind: NamespacedKind, namespace: str, unseen: list[str]
) -> list[Json]:
    try:
        return api.list(kind.path(namespace))
    except (ApiError, UnreachableError) as error:
        # The kind has gone in the meantime, or has no objects that are kept.
        if not isinstance(error, ApiError) or error.status not in (404, 405):
            unseen.append(f"{kind.kind} ({error})")
        return []


def _own_api_versions(api: Api, place: OwnNamespace, owner: str) -> set[str]:
    """API versions that pods of this stack's namespaces answer for, so that they end with it.

    Such pods may be dead, for example those of a Kueue that this stack has installed.
    """
    try:
        specs = [part(item, "spec") for item in api.list(API_SERVICES)]
    except ApiError:  # then a dead one is among what could not be seen
        return set()
    answering = {str(part(spec, "service").get("namespace") or "") for spec in specs} - {""}
    ours = {name for name in answering if name == place.name or _is_ours(api, name, owner)}
    return {
        f"{spec['group']}/{spec['version']}"
        for spec in specs
        if part(spec, "service").get("namespace") in ours
    }


def _is_ours(api: Api, namespace: str, owner: str) -> bool:
    try:
        return has_made(api, owner, namespace)
    except ApiError:  # who may not see it has not made it
        return False


def _top(api: Api, item: Json) -> Json | None:
    """As `first_owner`, but an object stays where one of several owners has gone, and one with the
    label of another stack goes where its one owner has gone or is ending: that stack has deleted
    it a moment ago.

    An object whose owner may not be read counts as nobody's part.
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


def _listed(found: list[str]) -> str:
    more = len(found) - MOST_NAMED
    return ", ".join(found[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
