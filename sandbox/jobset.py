"""Runs JobSet's controller beside a cluster's own programs, as a process and not as a pod.

So no image of it is needed. Its definitions, rights and webhooks are those of the controller's own
module; only the way from the API server to the webhooks differs (https://jobset.sigs.k8s.io).
"""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from sandbox import api
from sandbox.cluster import Cluster
from sandbox.components import API_PORT
from sandbox.kubeconfig import write_kubeconfig
from sandbox.layout import Layout
from sandbox.network import Link
from sandbox.pki import CA, Certificate, sign
from sandbox.processes import Component
from sandbox.say import phase
from sandbox.toolchain import JOBSET_CONTROLLER, tool_folder

NAME = "jobset"
WEBHOOK_PORT = 9443
HEALTH_PORT = 9440
USER = "jobset-controller"
CLIENT, SERVER = "jobset-client", "jobset-server"  # files of its certificates
DEFINITIONS = ("CustomResourceDefinition",)
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
ROLE = "jobset-manager-role"
PROBE: Mapping[str, Any] = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "probe", "namespace": "default"},
    "spec": {"replicatedJobs": []},
}


def start_jobset(cluster: Cluster) -> None:
    """Make the kind JobSet known to a cluster that is up, and start the controller.

    Does nothing where it runs already. Builds the controller the first time.

    Raises:
        RuntimeError: the build failed, the cluster is down, or the controller has ended.
        TimeoutError: the controller does not answer.
    """
    program = tool_folder(JOBSET_CONTROLLER)
    node, layout = cluster.node(1), cluster.layout
    link = node.link
    if link is None:
        raise RuntimeError(f"cluster {cluster.name} is down: run `up` first")
    if not node.ended([NAME]):
        return
    with phase(f"JobSet's controller {JOBSET_CONTROLLER.version}"):
        objects = _objects(cluster, program / "config" / "default")
        _apply(cluster, [item for item in objects if item["kind"] in DEFINITIONS])
        _apply(cluster, _rights(objects))
        config = _configure(layout, link)
        command = (str(program / NAME), f"--config={config}")
        node.start([Component(NAME, command)], {"KUBECONFIG": str(_kubeconfig(layout))})
        node.wait("JobSet's controller", lambda: _not_ready(link))
        webhooks = [item for item in objects if item["kind"] in WEBHOOKS]
        _apply(cluster, [_by_address(item, layout) for item in webhooks])
        node.wait("JobSet's webhooks", lambda: _refusal(cluster))


def stop_jobset(cluster: Cluster) -> None:
    """End the controller and remove what it had in the cluster, JobSets included.

    Raises:
        RuntimeError: the cluster is down.
        TimeoutError: the controller does not end.
    """
    objects = _objects(cluster, tool_folder(JOBSET_CONTROLLER) / "config" / "default")
    rights = _rights(objects)
    # The webhooks first: without the controller they refuse every change of a JobSet.
    _delete(cluster, [item for item in objects if item["kind"] in WEBHOOKS])
    _delete(cluster, [item for item in objects if item["kind"] in DEFINITIONS])
    _delete(cluster, rights)
    cluster.node(1).end(NAME)


def _objects(cluster: Cluster, folder: Path) -> list[dict[str, Any]]:
    """What the module's own kustomization makes; kubectl turns its YAML into JSON."""
    text = cluster.run_kubectl("kustomize", str(folder))
    listed = cluster.run_kubectl(
        "create", "--dry-run=client", "--validate=false", "-o", "json", "-f-", given=text
    )
    decoder, found = json.JSONDecoder(), list[dict[str, Any]]()
    while listed := listed.lstrip():
        item, end = cast(tuple[dict[str, Any], int], decoder.raw_decode(listed))
        found += item["items"] if item["kind"] == "List" else [item]
        listed = listed[end:]
    return found


def _rights(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The controller's own role, given to the user of its certificate."""
    (role,) = (item for item in objects if item["metadata"]["name"] == ROLE)
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": USER},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"apiGroup": group, "kind": "User", "name": USER}],
    }
    return [role, binding]


def _configure(layout: Layout, link: Link) -> Path:
    """Write certificates, kubeconfig and configuration; returns the last one's path."""
    server = Certificate(SERVER, SERVER, "serverAuth", alternative_names=("IP:127.0.0.1",))
    for certificate in (Certificate(CLIENT, USER), server):
        sign(layout.pki, certificate)
    write_kubeconfig(
        _kubeconfig(layout),
        server=f"https://{link.node}:{API_PORT}",
        name=layout.name,
        pki=layout.pki,
        certificate=CLIENT,
    )
    folder = layout.run / SERVER
    folder.mkdir(exist_ok=True)
    for ending in ("crt", "key"):
        (folder / f"tls.{ending}").write_bytes((layout.pki / f"{SERVER}.{ending}").read_bytes())
    path = layout.run / "jobset.json"
    path.write_text(json.dumps(_configuration(folder, link), indent=1) + "\n")
    return path


def _configuration(certificates: Path, link: Link) -> Mapping[str, Any]:
    return {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": WEBHOOK_PORT, "certDir": str(certificates)},
        "metrics": {"bindAddress": "0"},  # none
        "health": {"healthProbeBindAddress": f"{link.node}:{HEALTH_PORT}"},
    }


def _kubeconfig(layout: Layout) -> Path:
    return layout.run / f"{CLIENT}.kubeconfig"


def _by_address(item: dict[str, Any], layout: Layout) -> dict[str, Any]:
    """Webhooks at the address of the process instead of a Service of pods."""
    authority = base64.b64encode((layout.pki / f"{CA}.crt").read_bytes()).decode()
    for webhook in item["webhooks"]:
        path = webhook["clientConfig"]["service"]["path"]
        url = f"https://127.0.0.1:{WEBHOOK_PORT}{path}"
        webhook["clientConfig"] = {"url": url, "caBundle": authority}
    return item


def _not_ready(link: Link) -> str | None:
    place = f"http://{link.node}:{HEALTH_PORT}/readyz"
    try:
        status, _ = api.http_get(str(link.node), HEALTH_PORT, "/readyz")
    except OSError as reason:
        return f"{place}: {reason}"
    return None if status == 200 else f"{place}: status {status}"


def _refusal(cluster: Cluster) -> str | None:
    """Why the API server and the webhooks do not take a JobSet yet; nothing is made."""
    try:
        cluster.run_kubectl("create", "--dry-run=server", "-f-", given=json.dumps(PROBE))
    except RuntimeError as reason:
        return str(reason)
    return None


def _apply(cluster: Cluster, items: list[dict[str, Any]]) -> None:
    # On the server's side, because the definition is too long for an annotation.
    cluster.run_kubectl("apply", "--server-side", "--force-conflicts", "-f-", given=_list(items))


def _delete(cluster: Cluster, items: list[dict[str, Any]]) -> None:
    cluster.run_kubectl("delete", "--ignore-not-found", "-f-", given=_list(items))


def _list(items: list[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
