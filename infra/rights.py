"""What a user has to be allowed to do on the cluster for one stack: worked out from the stack."""

from collections.abc import Iterable
from typing import TypeAlias

from infra.kube.api_server.rights import Need
from infra.kube.queues.kueue import GROUP, VERSIONS, WORKLOAD_VERBS
from infra.monitoring.objects import RECEIVER_VERSION
from infra.objects import Manifest
from infra.settings import PlatformSettings
from infra.storages.kind import Storage
from infra.workloads.run import Run

# What Pulumi's provider does with an object: it applies it, waits for it and deletes it.
OBJECT = ("create", "delete", "get", "list", "patch", "update", "watch")
ADMINISTRATOR = Need("*", "*", "*", "")
Kind = tuple[str, str, bool]
"""API version, kind, and whether the object lies in the namespace."""

# What the programs of infra/kube and the commands do in the namespace, beside those objects.
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

# With the setting `queue` beside: the run is stopped and resumed by Kueue's Workload of it. Where
# Kueue puts a run into a queue by itself, infra/kube/queues/unqueued_look.py asks for them.
QUEUE_PROGRAMS: Programs = ((GROUP, "workloads", WORKLOAD_VERBS),)

# With the setting `queues`: what stands in the queue is seen before it is taken away.
QUEUES_PROGRAMS: Programs = ((GROUP, "workloads", ("get", "list")),)


def platform_kinds(settings: PlatformSettings, storage: Storage) -> set[Kind]:
    """The kinds of objects that `make_platform` registers; a test compares the two."""
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
        kinds |= {("v1", "Namespace", False)}  # of its own; the charts need an administrator
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
    """The kinds of objects that `make_run` registers; the same test compares them."""
    kinds: set[Kind] = {("v1", "ConfigMap", True), ("v1", "Secret", True)}
    kinds |= {("batch/v1", "Job", True)}  # of the data set
    return kinds | {_kind_of(manifest) for _, manifest in run.kind.render(run)}


def run_programs(run: Run) -> Programs:
    """What the programs do for this run beside its objects and beside `PROGRAMS`."""
    return (*(QUEUE_PROGRAMS if run.queue else ()), *run.kind.programs)


def needs_of(kinds: Iterable[Kind], namespace: str, programs: Programs = ()) -> set[Need]:
    """Each verb on each kind, and what the programs of this stack do beside.

    Args:
        kinds: of the objects that the stack makes.
        namespace: of the platform.
        programs: what those of its run and of its platform's queue do beside `PROGRAMS`.
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
    """The name of a kind's objects in paths and rules."""
    word = kind.lower()
    if word.endswith("y"):
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith("s") else f"{word}s"


def _kind_of(manifest: Manifest) -> Kind:
    return manifest["apiVersion"], manifest["kind"], bool(manifest["metadata"].get("namespace"))
