"""A pod that breaks no rule for pods, for each rule some pods that break only that rule, and the
function that says which rules a pod breaks.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from infra.platform.pod_rules import RULES, PodRule

Pod = dict[str, Any]

GOOD: Pod = {
    "metadata": {"labels": {"disttrain.dev/owner": "me"}},
    "spec": {
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "trainer",
                "image": "registry.example:5000/trainer:1",
                "env": [
                    {"name": "EMPTY_TOKEN", "value": ""},
                    {"name": "TOKENS_PER_STEP", "value": "5"},
                    {
                        "name": "API_KEY",
                        "valueFrom": {"secretKeyRef": {"name": "keys", "key": "api"}},
                    },
                ],
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]},
                },
                "resources": {
                    "requests": {"cpu": "1", "memory": "1Gi"},
                    "limits": {"nvidia.com/gpu": "2"},
                },
                "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
            }
        ],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    },
}


def _container(pod: Pod) -> dict[str, Any]:
    return pod["spec"]["containers"][0]


def _set(value: dict[str, Any], key: str, new: object) -> None:
    value[key] = new


def _init_container(pod: Pod) -> None:
    """Add an init container whose image has no tag, because the rules hold for init containers
    too.
    """
    pod["spec"]["initContainers"] = [{**_container(pod), "name": "first", "image": "busybox"}]


def _root_init_container(pod: Pod) -> None:
    """Add an init container that is root, although the pod says that it is not. What a container
    says counts more.
    """
    root = {**_container(pod)["securityContext"], "runAsNonRoot": False, "runAsUser": 0}
    pod["spec"]["initContainers"] = [{**_container(pod), "name": "first", "securityContext": root}]


def _root_that_writes_to_the_volume(pod: Pod) -> None:
    """Make the pod run as root and mount a claim. A pod may be root to read the kernel's log, but
    then it must not have a volume of the run.
    """
    pod["metadata"]["annotations"] = {"disttrain.dev/kernel-log": "Xids"}
    pod["spec"]["securityContext"] |= {"runAsNonRoot": False, "runAsUser": 0}
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    pod["spec"]["volumes"].append(claim)


BREAKS: dict[str, tuple[str, Callable[[Pod], object]]] = {
    "no tag": ("image-is-pinned", lambda p: _set(_container(p), "image", "host:5000/trainer")),
    "latest": ("image-is-pinned", lambda p: _set(_container(p), "image", "trainer:latest")),
    "init container": ("image-is-pinned", _init_container),
    "no requests": ("requests-are-set", lambda p: _container(p)["resources"].pop("requests")),
    "no memory": (
        "requests-are-set",
        lambda p: _container(p)["resources"]["requests"].pop("memory"),
    ),
    "no shm": ("shared-memory-is-mounted", lambda p: _container(p).pop("volumeMounts")),
    "privileged": (
        "no-privileges",
        # Kubernetes itself refuses a privileged container that may not gain privileges.
        lambda p: _container(p)["securityContext"].update(
            privileged=True, allowPrivilegeEscalation=True
        ),
    ),
    "escalation": (
        "no-privileges",
        lambda p: _container(p)["securityContext"].pop("allowPrivilegeEscalation"),
    ),
    "capability": (
        "few-capabilities",
        lambda p: _container(p)["securityContext"]["capabilities"]["add"].append("SYS_ADMIN"),
    ),
    "nothing dropped": (
        "few-capabilities",
        lambda p: _container(p)["securityContext"].pop("capabilities"),
    ),
    "root": ("not-root", lambda p: p["spec"]["securityContext"].pop("runAsNonRoot")),
    "root with a claim": ("not-root", _root_that_writes_to_the_volume),
    "root init container": ("not-root", _root_init_container),
    "kernel log without a reason": (
        "few-capabilities",
        lambda p: _container(p)["securityContext"]["capabilities"]["add"].append("SYSLOG"),
    ),
    "no filter": (
        "system-calls-are-filtered",
        lambda p: p["spec"]["securityContext"].pop("seccompProfile"),
    ),
    "a container without filter": (
        "system-calls-are-filtered",
        lambda p: _container(p)["securityContext"].update(seccompProfile={"type": "Unconfined"}),
    ),
    "host processes": ("no-host-processes", lambda p: _set(p["spec"], "hostPID", True)),
    "host memory": ("no-host-processes", lambda p: _set(p["spec"], "hostIPC", True)),
    "host network": ("no-host-network", lambda p: _set(p["spec"], "hostNetwork", True)),
    "host folder": (
        "no-folders-of-the-node",
        lambda p: p["spec"]["volumes"].append({"name": "all", "hostPath": {"path": "/"}}),
    ),
    "token": (
        "no-token-of-the-cluster",
        lambda p: p["spec"].pop("automountServiceAccountToken"),
    ),
    "plain password": (
        "no-plain-secrets",
        lambda p: _container(p)["env"].append({"name": "DB_PASSWORD", "value": "x"}),
    ),
    "plain key": (
        "no-plain-secrets",
        lambda p: _container(p)["env"].append({"name": "wandb_api_key", "value": "x"}),
    ),
    "nobody's": ("owner-is-named", lambda p: p["metadata"]["labels"].clear()),
}


def good() -> Pod:
    """Return a new pod that breaks no rule."""
    return copy.deepcopy(GOOD)


def broken(case: str) -> Pod:
    """Return the good pod with the change of this case, which is a key of `BREAKS`."""
    pod = good()
    BREAKS[case][1](pod)
    return pod


def broken_rules(pod: Mapping[str, Any]) -> list[PodRule]:
    """Return the rules that a pod or a pod template breaks."""
    return [rule for rule in RULES if not rule.holds(pod)]
