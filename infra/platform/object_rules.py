"""The rules for every Kubernetes object of a stack, which `policy/` checks in each preview.

The published manifests of a controller are installed as they are, and so are charts. For the
objects of such manifests, only the rule about the owner's label holds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from infra.labels import CONTROLLER_LABEL, OWNER_LABEL
from infra.platform.pod_rules import RULES, Pod, PodRule, below, items, keys_of

KUBERNETES = "kubernetes:"
CORE = "kubernetes:core/"  # Of these kinds only Pod has a pod's spec, and a stack makes none.
# WAYS and LISTS are the keys that lead to the pod templates in workloads of all kinds. The keys in
# LISTS hold lists.
WAYS = (
    "spec",
    "template",
    "pytorchReplicaSpecs",
    "mpiReplicaSpecs",
    "Launcher",
    "Worker",
    "leaderWorkerTemplate",
)
LISTS = ("replicatedJobs", "tasks")
TEMPLATES = ("template", "workerTemplate")
READING = {"get", "list", "watch"}
CORDONS_ANNOTATION = "disttrain.dev/cordons"  # Its value says why the role may change nodes.


@dataclass(frozen=True)
class ObjectRule:
    """A rule.

    Args:
        id: name of the rule. A name never gets another meaning.
        about: a sentence that says what has to hold, and why.
        problems: takes the resource's type in Pulumi and its inputs. It returns what is wrong with
            the resource; the list is empty if the resource keeps the rule.
    """

    id: str
    about: str
    problems: Callable[[str, Mapping[str, Any]], list[str]]


def _for_kind(kind: str, check: Callable[[Mapping[str, Any]], str]) -> Any:
    def problems(type_: str, props: Mapping[str, Any]) -> list[str]:
        is_asked = type_ == f"{KUBERNETES}{kind}" and not _is_published(props)
        problem = check(props) if is_asked else ""
        return [problem] if problem else []

    return problems


def _is_published(props: Mapping[str, Any]) -> bool:
    return CONTROLLER_LABEL in keys_of(below(props, "metadata", "labels"))


def _volume(props: Mapping[str, Any]) -> str:
    policy = below(props, "spec").get("persistentVolumeReclaimPolicy")
    return "" if policy == "Retain" else f"its reclaim policy is {policy}, and has to be Retain"


def _service(props: Mapping[str, Any]) -> str:
    kind = below(props, "spec").get("type") or "ClusterIP"
    return "" if kind == "ClusterIP" else f"it is a {kind}, which other machines can reach"


def _role(props: Mapping[str, Any]) -> str:
    cordons = CORDONS_ANNOTATION in keys_of(below(props, "metadata", "annotations"))
    verbs = {
        str(verb)
        for rule in items(props, "rules")
        for verb in rule["verbs"]
        if not (cordons and verb == "patch" and list(rule.get("resources", ())) == ["nodes"])
    }
    return f"it allows {', '.join(sorted(verbs - READING))}" if verbs - READING else ""


def _secrets_seen(props: Mapping[str, Any]) -> str:
    seen = {str(kind) for rule in items(props, "rules") for kind in rule.get("resources", ())}
    return "it shows Secrets" if seen & {"secrets", "*"} else ""


def _owner(type_: str, props: Mapping[str, Any]) -> list[str]:
    if not type_.startswith(KUBERNETES) or ":Release" in type_:
        return []
    return (
        []
        if OWNER_LABEL in keys_of(below(props, "metadata", "labels"))
        else [f"it has no label {OWNER_LABEL}"]
    )


def _of_pods(rule: PodRule) -> ObjectRule:
    def problems(type_: str, props: Mapping[str, Any]) -> list[str]:
        is_workload = type_.startswith(KUBERNETES) and not type_.startswith(CORE)
        if not is_workload or _is_published(props):
            return []
        if all(rule.holds(pod) for pod in _pod_templates(props)):
            return []
        return [f"its pods break it. {rule.about}"]

    return ObjectRule(rule.id, rule.about, problems)


def _pod_templates(part: Mapping[str, Any]) -> list[Pod]:
    """Find all pod templates in a part of an object, at any depth.

    Only the keys that lead to the templates are read, because a preview may not know other values
    yet.
    """
    found = [key for key in TEMPLATES if "containers" in keys_of(below(part, key, "spec"))]
    if found:
        return [part[key] for key in found]
    inside = [below(part, key) for key in WAYS if key in keys_of(part)]
    inside += [each for key in LISTS for each in items(part, key)]
    return [pod for each in inside for pod in _pod_templates(each)]


OBJECT_RULES: tuple[ObjectRule, ...] = (
    *(_of_pods(rule) for rule in RULES),
    ObjectRule(
        "volume-is-kept",
        "A volume has the reclaim policy Retain: `pulumi destroy` keeps the data.",
        _for_kind("core/v1:PersistentVolume", _volume),
    ),
    ObjectRule(
        "service-is-internal",
        "A Service has the type ClusterIP: ranks trust whoever reaches their ports.",
        _for_kind("core/v1:Service", _service),
    ),
    ObjectRule(
        "role-only-reads",
        "A ClusterRole allows to get, list and watch, and nothing else; one with the annotation "
        f"{CORDONS_ANNOTATION} may patch nodes.",
        _for_kind("rbac.authorization.k8s.io/v1:ClusterRole", _role),
    ),
    ObjectRule(
        "role-shows-no-secrets",
        "A ClusterRole does not show Secrets.",
        _for_kind("rbac.authorization.k8s.io/v1:ClusterRole", _secrets_seen),
    ),
    ObjectRule(
        "object-names-its-owner",
        f"An object carries the label {OWNER_LABEL}: without it nobody knows whose it is.",
        _owner,
    ),
)
