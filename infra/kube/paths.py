"""Paths of the API server, by kind of object. `{}` in a path stands for the namespace."""

API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
CLAIMS = "/api/v1/namespaces/{}/persistentvolumeclaims"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CONFIG_MAPS = "/api/v1/namespaces/{}/configmaps"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JOBS = "/apis/batch/v1/namespaces/{}/jobs"
NAMESPACES = "/api/v1/namespaces"
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/{}/pods"
SECRETS = "/api/v1/namespaces/{}/secrets"
STATEFUL_SETS = "/apis/apps/v1/namespaces/{}/statefulsets"
VOLUMES = "/api/v1/persistentvolumes"
WEBHOOKS = tuple(
    f"/apis/admissionregistration.k8s.io/v1/{plural}"
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
)


def pod_path(namespace: str, name: str) -> str:
    """The API server's path of a pod."""
    return f"{PODS.format(namespace)}/{name}"


def log_path(pod: str) -> str:
    """The API server's path of a pod's log. `pod` is the path of the pod."""
    return f"{pod}/log"
