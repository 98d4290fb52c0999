"""The rules for every pod of a platform, each as a sentence, as Python code and in CEL.

`policy/` checks them in Python before `pulumi up` makes anything. With the setting `podPolicy` the
API server checks them too, for everyone who makes a pod in the platform's namespace. It uses CEL
(https://kubernetes.io/docs/reference/using-api/cel/). A test checks that both give the same answer.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from infra.labels import OWNER_LABEL
from infra.names import GPU_RESOURCE, HOST_NETWORK_ANNOTATION, KERNEL_LOG_ANNOTATION

Pod = Mapping[str, Any]
"""A mapping with `metadata` and `spec`, as a pod or a pod template has them."""

SECRET_NAME = "(?i)(password|passwd|secret|token|api_?key|access_?key)$"
KEPT_CAPABILITIES = ("IPC_LOCK", "SYS_RESOURCE")  # RDMA has to pin memory.
KERNEL_LOG_CAPABILITY = "SYSLOG"  # It only has an effect for root.
FILTER = "RuntimeDefault"
VARIABLES = {
    "reads_kernel_log": f"'{KERNEL_LOG_ANNOTATION}' in object.metadata.?annotations.orValue({{}})",
    "containers": "object.spec.containers + object.spec.?initContainers.orValue([])",
}


@dataclass(frozen=True)
class PodRule:
    """A rule.

    Args:
        id: name of the rule. A name never gets another meaning.
        about: a sentence that says what has to hold, and why.
        cel: CEL expression that is true for a pod that keeps the rule. `object` is the pod, and the
            expressions in VARIABLES are defined.
        holds: the same check in Python.
    """

    id: str
    about: str
    cel: str
    holds: Callable[[Pod], bool]


def below(value: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """The mapping below these keys; an empty mapping if there is none.

    The mapping is not copied: in a preview, reading a value that is not known yet would raise an
    error.
    """
    found = value
    for key in keys:
        found = found.get(key) or dict[str, Any]()
    return found


def keys_of(value: Mapping[str, Any]) -> set[str]:
    """The keys of a mapping. `key in value` would read a value that may not be known yet."""
    return {str(key) for key in value}


def items(value: Mapping[str, Any], key: str) -> Sequence[dict[str, Any]]:
    """The list at this key; an empty list if there is none."""
    return cast(Sequence[dict[str, Any]], value.get(key) or ())


def _containers(pod: Pod) -> list[dict[str, Any]]:
    spec = below(pod, "spec")
    return [*items(spec, "containers"), *items(spec, "initContainers")]


def _volumes(pod: Pod) -> Sequence[dict[str, Any]]:
    return items(below(pod, "spec"), "volumes")


def _each(check: Callable[[dict[str, Any]], bool]) -> Callable[[Pod], bool]:
    return lambda pod: all(check(container) for container in _containers(pod))


def _is_pinned(container: Mapping[str, Any]) -> bool:
    image = str(container.get("image") or "")
    tagged = re.search(r":[^/:]+$", image) is not None and not image.endswith(":latest")
    return "@" in image or tagged


def _has_requests(container: Mapping[str, Any]) -> bool:
    return {"cpu", "memory"} <= keys_of(below(container, "resources", "requests"))


def _has_room_for_nccl(container: Mapping[str, Any]) -> bool:
    gpus = int(below(container, "resources", "limits").get(GPU_RESOURCE) or 0)
    mounts = {mount.get("mountPath") for mount in items(container, "volumeMounts")}
    return gpus < 2 or "/dev/shm" in mounts


def _is_unprivileged(container: Mapping[str, Any]) -> bool:
    context = below(container, "securityContext")
    return not context.get("privileged") and context.get("allowPrivilegeEscalation") is False


def _reads_kernel_log(pod: Pod) -> bool:
    return KERNEL_LOG_ANNOTATION in keys_of(below(pod, "metadata", "annotations"))


def _keeps_few_capabilities(pod: Pod) -> bool:
    kept = {*KEPT_CAPABILITIES, *([KERNEL_LOG_CAPABILITY] if _reads_kernel_log(pod) else [])}

    def keeps(container: Mapping[str, Any]) -> bool:
        capabilities = below(container, "securityContext", "capabilities")
        added = set(cast(Sequence[str], capabilities.get("add") or ()))
        dropped = cast(Sequence[str], capabilities.get("drop") or ())
        return "ALL" in dropped and added <= kept

    return all(keeps(container) for container in _containers(pod))


def _is_not_root(pod: Pod) -> bool:
    # What a container says counts more than what its pod says.
    of_containers = [
        below(container, "securityContext").get("runAsNonRoot") for container in _containers(pod)
    ]
    of_pod = below(pod, "spec", "securityContext").get("runAsNonRoot")
    if of_pod is True and False not in of_containers:
        return True
    mounts_claim = any("persistentVolumeClaim" in keys_of(volume) for volume in _volumes(pod))
    return _reads_kernel_log(pod) and not mounts_claim


def _is_filtered(pod: Pod) -> bool:
    of_pod, *of_containers = (
        below(each, "securityContext", "seccompProfile").get("type")
        for each in (below(pod, "spec"), *_containers(pod))
    )
    return of_pod == FILTER and all(each in (None, FILTER) for each in of_containers)


def _shows_no_secret(container: Mapping[str, Any]) -> bool:
    return not any(
        entry.get("value") and re.search(SECRET_NAME, str(entry["name"]))
        for entry in items(container, "env")
    )


RULES: tuple[PodRule, ...] = (
    PodRule(
        "image-is-pinned",
        "An image has a tag other than latest, or a digest: a restart must not bring other code.",
        "variables.containers.all(c, c.?image.orValue('').contains('@') || "
        "(c.?image.orValue('').matches(':[^/:]+$') && "
        "!c.?image.orValue('').endsWith(':latest')))",
        _each(_is_pinned),
    ),
    PodRule(
        "requests-are-set",
        "A container requests CPU and memory: without them the pod is evicted first.",
        "variables.containers.all(c, "
        "'cpu' in c.?resources.?requests.orValue({}) && "
        "'memory' in c.?resources.?requests.orValue({}))",
        _each(_has_requests),
    ),
    PodRule(
        "shared-memory-is-mounted",
        "A container with several GPUs mounts /dev/shm: NCCL needs more than the 64 MiB that a "
        "container has without it.",
        f"variables.containers.all(c, !('{GPU_RESOURCE}' in c.?resources.?limits.orValue({{}})) || "
        f"int(string(c.resources.limits['{GPU_RESOURCE}'])) < 2 || "
        "c.?volumeMounts.orValue([]).exists(m, m.mountPath == '/dev/shm'))",
        _each(_has_room_for_nccl),
    ),
    PodRule(
        "no-privileges",
        "A container is not privileged and cannot become so: it would own the node.",
        "variables.containers.all(c, !c.?securityContext.?privileged.orValue(false) && "
        "!c.?securityContext.?allowPrivilegeEscalation.orValue(true))",
        _each(_is_unprivileged),
    ),
    PodRule(
        "few-capabilities",
        f"A container drops all capabilities and adds none but {', '.join(KEPT_CAPABILITIES)}; a "
        f"pod with the annotation {KERNEL_LOG_ANNOTATION} may add {KERNEL_LOG_CAPABILITY}.",
        "variables.containers.all(c, "
        "'ALL' in c.?securityContext.?capabilities.?drop.orValue([]) && "
        "c.?securityContext.?capabilities.?add.orValue([]).all(a, "
        f"a in {list(KEPT_CAPABILITIES)} || "
        f"(variables.reads_kernel_log && a == '{KERNEL_LOG_CAPABILITY}')))",
        _keeps_few_capabilities,
    ),
    PodRule(
        "not-root",
        "A pod runs as a user other than root: files on the volume would belong to root. One "
        f"without a claim and with the annotation {KERNEL_LOG_ANNOTATION} may be root.",
        "(object.spec.?securityContext.?runAsNonRoot.orValue(false) && "
        "variables.containers.all(c, c.?securityContext.?runAsNonRoot.orValue(true))) || "
        "(variables.reads_kernel_log && "
        "object.spec.?volumes.orValue([]).all(v, !has(v.persistentVolumeClaim)))",
        _is_not_root,
    ),
    PodRule(
        "system-calls-are-filtered",
        f"A pod has the seccomp profile {FILTER}.",
        f"object.spec.?securityContext.?seccompProfile.?type.orValue('') == '{FILTER}' && "
        "variables.containers.all(c, "
        f"c.?securityContext.?seccompProfile.?type.orValue('{FILTER}') == '{FILTER}')",
        _is_filtered,
    ),
    PodRule(
        "no-host-processes",
        "A pod does not see the processes of its node.",
        "!object.spec.?hostPID.orValue(false) && !object.spec.?hostIPC.orValue(false)",
        lambda pod: not (below(pod, "spec").get("hostPID") or below(pod, "spec").get("hostIPC")),
    ),
    PodRule(
        "no-host-network",
        "A pod has a network of its own, unless its network profile says so by the annotation "
        f"{HOST_NETWORK_ANNOTATION}.",
        "!object.spec.?hostNetwork.orValue(false) || "
        f"'{HOST_NETWORK_ANNOTATION}' in object.metadata.?annotations.orValue({{}})",
        lambda pod: (
            not below(pod, "spec").get("hostNetwork")
            or HOST_NETWORK_ANNOTATION in keys_of(below(pod, "metadata", "annotations"))
        ),
    ),
    PodRule(
        "no-folders-of-the-node",
        "A pod mounts no folder of its node by hostPath: data are on the claim.",
        "object.spec.?volumes.orValue([]).all(v, !has(v.hostPath))",
        lambda pod: not any("hostPath" in volume for volume in _volumes(pod)),
    ),
    PodRule(
        "no-token-of-the-cluster",
        "A pod mounts no service account's token: training does not talk to the API server.",
        "!object.spec.?automountServiceAccountToken.orValue(true)",
        lambda pod: below(pod, "spec").get("automountServiceAccountToken") is False,
    ),
    PodRule(
        "no-plain-secrets",
        "A variable with the name of a secret takes its value from a Secret: everybody who may see "
        "pods sees plain values.",
        "variables.containers.all(c, c.?env.orValue([]).all(e, e.?value.orValue('') == '' || "
        f"!e.name.matches('{SECRET_NAME}')))",
        _each(_shows_no_secret),
    ),
    PodRule(
        "owner-is-named",
        f"A pod carries the label {OWNER_LABEL}: without it nobody knows which stack removes it.",
        f"'{OWNER_LABEL}' in object.metadata.?labels.orValue({{}})",
        lambda pod: OWNER_LABEL in keys_of(below(pod, "metadata", "labels")),
    ),
)
