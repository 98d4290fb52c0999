"""Pods as plain manifests: the parts that all of disttrain's pods share, and the training pod."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from infra.labels import REVISION_LABEL, labels
from infra.monitoring.objects import scrape_annotations
from infra.names import (
    DATA_MOUNT,
    GPU_RESOURCE,
    HOST_NETWORK_ANNOTATION,
    MASTER_PORT,
    PROGRAM_MOUNT,
    PROXY_CONFIG,
    READY_FILE,
    RUN_CONFIG_PATH,
    TRAINER_CONTAINER,
    TRAINER_UID,
    TRAINING,
)
from infra.settings.pods import LEAST_REQUESTS
from infra.unexpanded import unexpanded
from infra.workloads.neighbours import neighbours
from infra.workloads.own_image import USER_NAME, in_own_image
from infra.workloads.topology_request import topology_request
from infra.workloads.trust import trust
from infra.workloads.variables import environment, with_own_variables

if TYPE_CHECKING:
    from infra.objects import Manifest
    from infra.workloads.run import Run

METRICS_PORT_VARIABLE = "DISTTRAIN_METRICS_PORT"  # trainer/monitoring/endpoint.py reads it
TRANSPORTS_VARIABLE = "DISTTRAIN_TRANSPORTS"  # trainer/transport/asked.py reads it
ADDRESS_VARIABLE = "DISTTRAIN_POD_IP"  # trainer/launch/noted_address.py reads it
KEY_VARIABLE = "DISTTRAIN_RUN_KEY"  # trainer/launch/signed_lines.py reads it
REVISION_VARIABLE = "DISTTRAIN_REVISION"  # trainer/launch/pod_failures.py reads it
BPE_VARIABLE = "DISTTRAIN_GPT2_RANKS"  # trainer/data/gpt2_tokenizer.py reads it


@dataclass(frozen=True)
class PodParts:
    """What the training pods and the data set's pod have in common.

    Args:
        image: the full name of the trainer image.
        pull_policy: when the kubelet pulls the image.
        pull_secrets: the names of Secrets with the registry's credentials.
        config_map: the name of the ConfigMap that contains `run.yaml`.
        claim: the name of the claim that is mounted.
        group_writes: whether the kubelet has to give the volume to the group of the pods.
        ca_config_map: the name of the ConfigMap with certificates to trust; empty if there is none.
        bpe_file: the path in the pods of GPT-2's BPE merge table; empty if tiktoken downloads it.
        limits: the limits of CPU and memory of each of these pods. A namespace's quota may require
            limits.
        command_limits: the same limits for the pods that commands start.
        user: the user and the group that all of these pods run as.
    """

    image: str
    pull_policy: str
    pull_secrets: tuple[str, ...]
    config_map: str
    claim: str
    group_writes: bool
    ca_config_map: str
    bpe_file: str
    limits: Mapping[str, str]
    command_limits: Mapping[str, str]
    user: int


def pod_spec(parts: PodParts, arguments: Sequence[str]) -> Manifest:
    """The spec of a pod with one container.

    The container runs `python -m trainer <arguments> --config <path>`.
    """
    variables = {"HOME": "/tmp"}
    if parts.user != TRAINER_UID:
        # The image has no name for this user, and torch.compile asks for it.
        variables["LOGNAME"] = USER_NAME
    if parts.bpe_file:
        variables[BPE_VARIABLE] = parts.bpe_file
    pod: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": parts.user,
            "runAsGroup": parts.user,
            "seccompProfile": {"type": "RuntimeDefault"},
            **volume_group(parts),
        },
        "containers": [
            {
                "name": TRAINER_CONTAINER,
                "image": parts.image,
                "imagePullPolicy": parts.pull_policy,
                "args": [*arguments, "--config", RUN_CONFIG_PATH],
                "env": environment(variables),
                # The Secret contains the addresses of proxies that need a password.
                "envFrom": [
                    {"configMapRef": {"name": PROXY_CONFIG}},
                    {"secretRef": {"name": PROXY_CONFIG}},
                ],
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
                "resources": least_resources(parts),
                # `pulumi up` shows this message when the container fails.
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [
                    {"name": "data", "mountPath": DATA_MOUNT},
                    {
                        "name": "config",
                        "mountPath": str(PurePosixPath(RUN_CONFIG_PATH).parent),
                        "readOnly": True,
                    },
                ],
            }
        ],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": parts.claim}},
            {"name": "config", "configMap": {"name": parts.config_map}},
        ],
    }
    pod |= pull_secrets(parts)
    return trust(pod, parts.ca_config_map) if parts.ca_config_map else pod


def training_pod(run: Run) -> Manifest:
    """The pod template of a run, without the labels for its revision and its owner."""
    pod = pod_spec(run.parts, ["entrypoint"])
    (container,) = pod["containers"]
    container["name"] = run.kind.container
    network, placement = run.network, run.placement
    pod["terminationGracePeriodSeconds"] = run.grace_seconds
    shm = {"medium": "Memory", "sizeLimit": run.resources.shm_size}
    pod["volumes"].append({"name": "shm", "emptyDir": shm})
    container["volumeMounts"].append({"name": "shm", "mountPath": "/dev/shm"})
    if run.program_volume is not None:
        pod["volumes"].append(run.program_volume)
        mount = {"name": run.program_volume["name"], "mountPath": PROGRAM_MOUNT, "readOnly": True}
        container["volumeMounts"].append(mount)
    container["env"] = with_own_variables(container["env"], environment(_variables(run)))
    # The default `apiVersion` is written out. Otherwise an `up` that was killed after it had made
    # this object could not be finished: the API server takes a missing default for another value.
    pod_name = {"apiVersion": "v1", "fieldPath": "metadata.name"}
    container["env"].append({"name": "POD_NAME", "valueFrom": {"fieldRef": pod_name}})
    if run.world.pods > 1:
        pod_ip = {"apiVersion": "v1", "fieldPath": "status.podIP"}
        container["env"].append({"name": ADDRESS_VARIABLE, "valueFrom": {"fieldRef": pod_ip}})
    revision = {"apiVersion": "v1", "fieldPath": f"metadata.labels['{REVISION_LABEL}']"}
    container["env"].append({"name": REVISION_VARIABLE, "valueFrom": {"fieldRef": revision}})
    key = {"secretKeyRef": {"name": run.key_secret, "key": "key"}}
    container["env"].append({"name": KEY_VARIABLE, "valueFrom": key})
    if run.pod_secrets:
        container["envFrom"].append({"secretRef": {"name": run.pod_secrets}})
    # The file exists once every rank of the pod has taken a step.
    container["readinessProbe"] = {
        "exec": {"command": ["test", "-e", READY_FILE]},
        "periodSeconds": 1,
        "timeoutSeconds": 5,
    }
    container["resources"] = _resources(run)
    if network.host_network:
        pod |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    pod |= placement.nodes
    asked = dict[str, str]()
    if placement.is_queues_choice:
        asked = topology_request(placement.neighbours, run.world.pods, placement.annotations)
    else:
        pod |= neighbours(placement.neighbours, run.world.pods, run.selector)
    if placement.runtime_class:
        pod["runtimeClassName"] = placement.runtime_class
    if run.program_image:
        pod = in_own_image(pod, run.program_image, least_resources(run.parts))
    scraped = scrape_annotations(run.metrics_port)
    annotations = {**scraped, **network.annotations, **asked, **placement.pod_annotations}
    if network.host_network:
        annotations[HOST_NETWORK_ANNOTATION] = network.name
    return {
        "metadata": {
            "labels": {**placement.pod_labels, **labels(TRAINING), **run.selector},
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": pod,
    }


def pull_secrets(parts: PodParts) -> Manifest:
    """The field of a pod's spec that gives the kubelet the registry's credentials."""
    names = [{"name": name} for name in parts.pull_secrets]
    return {"imagePullSecrets": names} if names else {}


def volume_group(parts: PodParts) -> Manifest:
    """Fields of a pod's security context that let it write to a volume that belongs to root."""
    if not parts.group_writes:
        return {}
    # Without the policy, the kubelet would change the group of all files at each start of a pod.
    return {"fsGroup": parts.user, "fsGroupChangePolicy": "OnRootMismatch"}


def of_commands(parts: PodParts) -> Manifest:
    """Fields of the spec of a pod that a command starts: pull secrets, user and group, and limits.

    `infra.kube.files.task_pod` builds the pod from these fields. Without others, its user and its
    group are TRAINER_UID.
    """
    limits, security = dict(parts.command_limits), volume_group(parts)
    if parts.user != TRAINER_UID:
        security |= {"runAsUser": parts.user, "runAsGroup": parts.user}
    return {
        **pull_secrets(parts),
        **({"securityContext": security} if security else {}),
        **({"resources": {"limits": limits}} if limits else {}),
    }


def least_resources(parts: PodParts) -> Manifest:
    """Requests and limits of containers that have little to do."""
    limits = dict(parts.limits)
    return {"requests": dict(LEAST_REQUESTS), **({"limits": limits} if limits else {})}


def _variables(run: Run) -> dict[str, str]:
    """The variables of the training container.

    The user's own variables come last. The settings refuse those that would break the run.
    """
    network = run.network
    several = dict(network.between_pods) if run.world.pods > 1 else dict[str, str]()
    asked = {TRANSPORTS_VARIABLE: ",".join(network.transports)} if network.transports else {}
    return {
        "PET_NNODES": str(run.world.pods),
        "PET_NPROC_PER_NODE": str(run.world.ranks_per_pod),
        "PET_MASTER_PORT": str(MASTER_PORT),
        METRICS_PORT_VARIABLE: str(run.metrics_port),
        **run.kind.rendezvous(run),
        **asked,
        **network.environment,
        **several,
        **{name: unexpanded(value) for name, value in run.environment.items()},
    }


def _resources(run: Run) -> Manifest:
    """Requests and limits of the training container.

    With its requests the pod is not in the class BestEffort, whose pods are evicted first.
    """
    ranks = run.world.ranks_per_pod
    limits = {**run.parts.limits, **run.network.resources}
    if run.world.gpus_per_pod:
        limits[GPU_RESOURCE] = str(run.world.gpus_per_pod)
    requests = {
        "cpu": times(run.resources.cpu_per_rank, ranks),
        "memory": times(run.resources.memory_per_rank, ranks),
    }
    return {"requests": requests, **({"limits": limits} if limits else {})}


def times(quantity: str, count: int) -> str:
    """A Kubernetes quantity, such as `500m` or `2Gi`, multiplied by `count`."""
    number = quantity.rstrip("mKMGTi")
    return f"{int(number) * count}{quantity[len(number) :]}"
