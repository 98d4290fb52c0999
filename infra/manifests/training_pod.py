"""The pod of a training, of either topology. Pure."""

from typing import Any

from infra.labels import REVISION_LABEL, content_hash, labels
from infra.manifests.names import (
    HEADLESS_SERVICE,
    MASTER_PORT,
    MULTI_POD_SET,
    READY_FILE,
)
from infra.manifests.pod import pod_spec, trust
from infra.manifests.ranks import with_ranks
from infra.proxy import ca_config_map_name
from infra.settings import Settings

TRAINING = "training"
NETWORK_INTERFACE = "eth0"  # of a pod on flannel or a bridge
# The network profile pod-tcp: plain TCP between pods, as on a node without InfiniBand.
POD_TCP = {"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": NETWORK_INTERFACE}


def training_template(settings: Settings, config_map: str) -> dict[str, Any]:
    """The pod template, without the label that holds its revision."""
    compute = settings.compute
    pod = pod_spec(settings.image.plan.reference, config_map, ["entrypoint"])
    if settings.proxy.ca_bundle:
        pod = trust(pod, ca_config_map_name(settings.proxy.ca_bundle))
    pod = with_ranks(pod, settings)
    pod["terminationGracePeriodSeconds"] = settings.limits.termination_grace_seconds
    pod["volumes"].append(
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": compute.shm_size}}
    )
    container = pod["containers"][0]
    container["volumeMounts"].append({"name": "shm", "mountPath": "/dev/shm"})
    container["env"] += [{"name": name, "value": v} for name, v in _variables(settings).items()]
    container["env"].append(
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    )
    container["readinessProbe"] = {
        "exec": {"command": ["test", "-e", READY_FILE]},
        "periodSeconds": 1,
        "timeoutSeconds": 5,
    }
    if compute.gpus_per_pod:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(compute.gpus_per_pod)}}
        if settings.gpu_operator and settings.gpu_operator.regime == "preinstalled":
            pod["runtimeClassName"] = "nvidia"  # k3s' own; in other regimes runc injects devices
    return {"metadata": {"labels": labels(TRAINING)}, "spec": pod}


def with_revision(template: dict[str, Any], revision: str) -> dict[str, Any]:
    """The template with its revision as a label, by which its pods are found."""
    metadata = template["metadata"]
    return {
        **template,
        "metadata": {**metadata, "labels": {**metadata["labels"], REVISION_LABEL: revision}},
    }


def training_revision(settings: Settings, config_map: str) -> str:
    """Changes with all that a training's pods are made of; a password in a proxy is left out."""
    proxies = (settings.proxy.http, settings.proxy.https)
    return content_hash(
        {
            "template": training_template(settings, config_map),
            "topology": [settings.compute.topology, settings.compute.pods],
            "proxy": [proxy and proxy.url_without_password for proxy in proxies],
            "no_proxy": settings.proxy.no_proxy,
            "volume": [str(settings.storage.data_root), settings.storage.size],
        }
    )


def _variables(settings: Settings) -> dict[str, str]:
    """Torchrun's variables for this topology, and those of the network profile."""
    compute = settings.compute
    torchrun = {
        "PET_NNODES": str(compute.pods),
        "PET_NPROC_PER_NODE": str(compute.ranks_per_pod),
        "PET_MASTER_PORT": str(MASTER_PORT),
    }
    if compute.topology == "single-pod":
        return {**torchrun, **POD_TCP}
    return {
        **torchrun,
        "PET_MASTER_ADDR": f"{MULTI_POD_SET}-0.{HEADLESS_SERVICE}",
        "GLOO_SOCKET_IFNAME": NETWORK_INTERFACE,
        **POD_TCP,
    }
