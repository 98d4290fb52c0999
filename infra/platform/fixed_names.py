"""The objects of a platform with names that objects of others may have too.

Such a name contains at most the name of the namespace. The other objects of a platform have a hash
in their names, or are in a namespace that the stack makes itself, or other tasks look for them.
"""

from infra.deliveries.kind import Pull
from infra.names import PROXY_CONFIG
from infra.platform.lost_nodes import LOST_NODES
from infra.platform.node_health import HEALTH
from infra.platform.pod_policy import policy_name
from infra.platform.viewers import viewer_role_name
from infra.settings import PlatformSettings

_RULES = "/apis/admissionregistration.k8s.io/v1"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


def fixed_names(settings: PlatformSettings, pull: Pull) -> list[str]:
    """The API server's paths of these objects. A test compares them with what a stack registers.

    Args:
        settings: the settings of the platform.
        pull: how nodes pull the trainer image. If it has a login, the login is a Secret.
    """
    namespace = settings.namespace
    paths: list[str] = []
    if settings.namespace_settings.exists:
        core = f"/api/v1/namespaces/{namespace}"
        paths += [f"{core}/configmaps/{PROXY_CONFIG}", f"{core}/secrets/{PROXY_CONFIG}"]
        if pull.docker_config:
            paths += [f"{core}/secrets/{name}" for name in pull.secrets]
    else:
        paths.append(f"{_RBAC}/clusterroles/{viewer_role_name(namespace)}")
    if settings.pod_policy != "none":
        for kind in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
            paths.append(f"{_RULES}/{kind}/{policy_name(namespace)}")
    watching = [LOST_NODES] if settings.replaces_lost_nodes else []
    watching += [HEALTH] if settings.node_health == "cordon" else []
    for program in watching:
        for kind in ("clusterroles", "clusterrolebindings"):
            paths.append(f"{_RBAC}/{kind}/{program.name_in_cluster(namespace)}")
    return paths
