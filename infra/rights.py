"""Computes the rights on the cluster that a user needs for one stack."""

from collections.abc import Iterable
from typing import TypeAlias

from infra.kube.api_server.rights import Need
from infra.kube.queues.kueue import GROUP, VERSIONS, WORKLOAD_VERBS
from infra.monitoring.objects import RECEIVER_VERSION
from infra.objects import Manifest
from infra.settings import PlatformSettings
from infra.storages.kind import Storage
from infra.workloads.run import Run

# The verbs that Pulumi's provider needs to apply an object, to wait for it and to delete it.
OBJECT = ("create", "delete", "get", "list", "patch", "update", "watch")
ADMINISTRATOR = Need("*", "*", "*", "")
Kind = tuple[str, str, bool]
"""The API version, the kind, and whether the object is in the namespace."""

# What the programs of infra/kube and ./disttrain need in the namespace, in addition to the stack's
# objects.
PROGRAMS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("", "namespaces", ("get",)),
    ("", "persistentvolumeclaims", ("get",)),
    ("", "configmaps", OBJECT),  # the runs' records
    ("", "pods", ("create", "delete", "get", "list", "watch")),
    ("", "pods/log", ("get",)),
    ("", "pods/exec", ("create", "get")),  # get: a WebSocket begins with a GET
    ("", "events", ("get", "list", "watch")),
    ("coordination.k8s.io", "leases", ("create", "get", "update")),  # the hand-over's lock
)

Programs: TypeAlias = tuple[tuple[str, str, tuple[str, ...]], ...]

# These rights are added with the setting `queue`, because such a run is stopped and resumed through
# its Workload of Kueue. If Kueue puts a run into a queue by itself, unqueued_findings.py (in
# infra/kube/queues) checks these rights.
QUEUE_PROGRAMS: Programs = ((GROUP, "workloads", WORKLOAD_VERBS),)

# These rights are added with the setting `queues`: before a queue is removed, a program checks what
# is in it.
QUEUES_PROGRAMS: Programs = ((GROUP, "workloads", ("get", "list")),)


def platform_kinds(settings: PlatformSettings, storage: Storage) -> set[Kind]:
    """The kinds of objects that `make_platform` registers. A test compares the two."""
    kinds: set[Kind] = {("v1", "ConfigMap", True), ("v1", "Secret", True)}
    kinds |= {_kind_of(manifest) for _, manifest in storage.objects}
    if not settings.namespace_settings.exists:
        kinds |= {("v1", "Namespace", False)}
        kinds |= {("rbac.authorization.k8s.io/v1", "ClusterRole", False)}
    if settings.pod_policy != "none":
        api_version = "admissionregistration.k8s.io/v1"
        kinds |= {(api_version, "ValidatingAdmissionPolicy", False)}
        kinds |= {(api_version, "ValidatingAdmissionPolicyBinding", False)}
    group = "rbac.authorization.k8s.io/v1"
    if settings.replaces_lost_nodes or settings.node_health != "off":
        kinds |= {("v1", "ServiceAccount", True)}
        kinds |= {(group, kind, True) for kind in ("Role", "RoleBinding")}
    if settings.replaces_lost_nodes or settings.node_health == "cordon":
        kinds |= {(group, kind, False) for kind in ("ClusterRole", "ClusterRoleBinding")}
    if settings.replaces_lost_nodes:
        kinds |= {("apps/v1", "Deployment", True)}
    if settings.node_health != "off":
        kinds |= {("apps/v1", "DaemonSet", True)}
    if settings.monitoring != "none":
        kinds |= {("monitoring.coreos.com/v1", "PodMonitor", True)}
        kinds |= {("monitoring.coreos.com/v1", "PrometheusRule", True)}
    if settings.alert_webhook:
        kinds |= {("v1", "Secret", True), (RECEIVER_VERSION, "AlertmanagerConfig", True)}
    if settings.controllers:
        kinds |= {("v1", "Namespace", False)}  # the controllers'; charts need an administrator
    if settings.queues:
        kueue = f"{GROUP}/{VERSIONS[0]}"
        kinds |= {(kueue, "LocalQueue", True)}
        kinds |= {(kueue, kind, False) for kind in ("ResourceFlavor", "ClusterQueue")}
        if settings.queues.levels:
            kinds |= {(kueue, "Topology", False)}
        if settings.queues.priorities:
            kinds |= {(kueue, "WorkloadPriorityClass", False)}
    return kinds


def run_kinds(run: Run) -> set[Kind]:
    """The kinds of objects that `make_run` registers. The same test compares the two."""
    kinds: set[Kind] = {("v1", "ConfigMap", True), ("v1", "Secret", True)}
    kinds |= {("batch/v1", "Job", True)}  # prepares the data set
    return kinds | {_kind_of(manifest) for _, manifest in run.kind.render(run)}


def run_programs(run: Run) -> Programs:
    """The rights that the programs need for this run, beyond its objects and `PROGRAMS`."""
    return (*(QUEUE_PROGRAMS if run.queue else ()), *run.kind.programs)


def needs_of(kinds: Iterable[Kind], namespace: str, programs: Programs = ()) -> set[Need]:
    """All rights that a stack needs: for the objects that it makes, and for its programs.

    Args:
        kinds: the kinds of the objects that the stack makes.
        namespace: the namespace of the platform.
        programs: the rights that the programs need for the stack's run and its platform's queue, in
            addition to `PROGRAMS`.
    """
    needs = {
        Need(group, resource, verb, namespace)
        for group, resource, verbs in (*PROGRAMS, *programs)
        for verb in verbs
    }
    for api_version, kind, in_namespace in kinds:
        group = api_version.rpartition("/")[0]
        for verb in OBJECT:
            needs.add(Need(group, plural(kind), verb, namespace if in_namespace else ""))
    return needs


def plural(kind: str) -> str:
    """The plural name of a kind, as in the API's paths and in the rules of roles."""
    word = kind.lower()
    if word.endswith("y"):
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith("s") else f"{word}s"


def _kind_of(manifest: Manifest) -> Kind:
    return manifest["apiVersion"], manifest["kind"], bool(manifest["metadata"].get("namespace"))
