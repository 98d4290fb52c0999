"""Makes accounts of the cluster that have only the rights of a role."""

from pathlib import Path

import yaml

from infra.kube.api_server.api import Api
from infra.kube.api_server.rights import Need, is_allowed
from tests.kube.lab import Lab, wait_for


def viewer_of(lab: Lab, namespace: str, folder: Path, role: str, binding: str) -> Api:
    """Return the API as a user with the rights of a ClusterRole.

    `binding` is rolebinding for rights in one namespace, or clusterrolebinding for all namespaces.
    """
    lab.kubectl("create", "serviceaccount", "viewer", "-n", namespace)
    user = f"--serviceaccount={namespace}:viewer"
    lab.kubectl(
        "create", binding, f"viewer-{namespace}", f"--clusterrole={role}", user, "-n", namespace
    )
    token = lab.kubectl("create", "token", "viewer", "-n", namespace).strip()
    content = yaml.safe_load(lab.cluster.kubeconfig.read_text())
    content["users"][0]["user"] = {"token": token}
    file = folder / "kubeconfig"
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(content))
    return Api(lab.access(file))


def user_of(lab: Lab, namespace: str, folder: Path, role: str, binding: str = "rolebinding") -> Api:
    """Return what `viewer_of` returns, once the API server grants the rights.

    The role must have the right to read pods.
    """
    somebody = viewer_of(lab, namespace, folder, role, binding)
    wait_until_granted(somebody, namespace)
    return somebody


def wait_until_granted(somebody: Api, namespace: str) -> None:
    """Wait until a user may read the pods of a namespace.

    A new binding takes effect when the API server has seen it, a moment after it was made.
    """
    right = Need("", "pods", "get", namespace)
    wait_for(f"the rights in {namespace}", lambda: is_allowed(somebody, right))
