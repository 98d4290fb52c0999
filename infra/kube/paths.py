"""Paths of kinds at the API server; `{}` is the namespace."""

API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
CLAIMS = "/api/v1/namespaces/{}/persistentvolumeclaims"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMESPACES = "/api/v1/namespaces"
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/{}/pods"
VOLUMES = "/api/v1/persistentvolumes"
WEBHOOKS = tuple(
    f"/apis/admissionregistration.k8s.io/v1/{plural}"
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
)
