"""Runs a controller beside a cluster's own programs, as a process and not as a pod.

So no image of the controller is needed. Its resource definitions, roles and webhooks are those of
the controller's own module. Only the way from the API server to the webhooks differs: they are
called by address, because no Service leads to a process of the node.
"""

import base64
import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from sandbox import api
from sandbox.cluster import Cluster
from sandbox.components import API_PORT
from sandbox.controllers.kind import Controller, Place
from sandbox.kubeconfig import write_kubeconfig
from sandbox.layout import Layout
from sandbox.node import Node
from sandbox.pki import CA, Certificate, sign
from sandbox.processes import Component
from sandbox.say import phase
from sandbox.toolchain import tool_folder

DEFINITIONS = ("CustomResourceDefinition",)
WEBHOOK_FOLDER = "k8s-webhook-server/serving-certs"  # below TMPDIR: controller-runtime's default
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def start_controller(cluster: Cluster, controller: Controller) -> None:
    """Make a controller's kinds known to a cluster that is up, and start the controller.

    Nothing happens if it runs already. The first start builds the controller.

    Raises:
        RuntimeError: the build failed, the cluster is down, another version of the controller runs
            there, or the controller has ended.
        TimeoutError: the controller does not answer.
    """
    refuse_another_version(cluster, controller)
    tool_folder(controller.tool)
    node = cluster.node(1)
    place = _place(cluster, controller)
    if not node.ended([program.name for program in controller.programs]):
        return
    with phase(f"{controller.title} {controller.tool.version}"):
        objects = _objects(cluster, controller)
        definitions = _definitions(controller, objects)
        _apply(cluster, [_converted(item, controller, cluster.layout) for item in definitions])
        # A controller that does not find its kinds when it starts may end.
        node.wait(f"{controller.title}'s definitions", lambda: _not_served(cluster, definitions))
        _apply(cluster, [*_rights(controller, objects), *controller.objects])
        _write_files(cluster.layout, controller, place)
        _mount(node, place.certificates, controller.certificates)
        start_programs(cluster, controller)
        _apply(cluster, _webhooks(cluster, controller, objects))
        node.wait(f"{controller.title}'s kinds", lambda: _refusal(cluster, controller.probe))


def refuse_another_version(cluster: Cluster, controller: Controller) -> None:
    """Refuse a second version of a controller in a cluster: the definitions have the same names.

    Raises:
        RuntimeError: another version runs in the cluster, or the cluster is down.
    """
    node, tool = cluster.node(1), controller.tool
    if node.link is None:
        raise RuntimeError(_down(cluster))
    found = running_version(node.program(controller.name) or "", tool.name)
    if found not in (None, tool.version):
        raise RuntimeError(
            f"{controller.title} {tool.version} cannot be started or ended: version {found} of it "
            f"runs in cluster {cluster.name}, which has one version at a time. End that one, with "
            "all objects of its kinds, by `python3 -m sandbox remove NAME`, such as trainer-2.1"
        )


def running_version(program: str, tool_name: str) -> str | None:
    """The version that the path of a program in the cache names; None if it names none."""
    found = re.fullmatch(rf"{re.escape(tool_name)}-(.+)-[0-9a-f]{{12}}", Path(program).parent.name)
    return found[1] if found else None


def start_programs(cluster: Cluster, controller: Controller) -> None:
    """Start a controller's programs and wait until they answer. The cluster must know its kinds.

    Raises:
        RuntimeError: the cluster is down, or a program has ended.
        TimeoutError: a program does not answer.
    """
    node, place = cluster.node(1), _place(cluster, controller)
    components = [Component(each.name, each.command(place)) for each in controller.programs]
    variables = {
        "KUBECONFIG": str(place.kubeconfig),
        "TMPDIR": str(_temporary(cluster.layout, controller)),
        **controller.variables,
    }
    node.start(components, variables)
    node.wait(controller.title, lambda: _not_ready(place.address, controller))


def stop_controller(cluster: Cluster, controller: Controller) -> None:
    """End a controller, and remove what it has in the cluster, objects of its kinds included.

    Raises:
        RuntimeError: the cluster is down, or another version of the controller runs there.
        TimeoutError: the controller does not end.
    """
    refuse_another_version(cluster, controller)
    objects = _objects(cluster, controller)
    # The webhooks go first: without the controller they refuse every change of its objects.
    _delete(cluster, _webhooks(cluster, controller, objects))
    _delete(cluster, _definitions(controller, objects))
    _delete(cluster, [*_rights(controller, objects), *controller.objects])
    node = cluster.node(1)
    for program in controller.programs:
        node.end(program.name)
    _unmount(node, controller.certificates)


@contextmanager
def running(cluster: Cluster, controllers: Sequence[Controller]) -> Iterator[None]:
    """Start the controllers in this order, and end them in the opposite order after the block.

    Raises:
        RuntimeError, TimeoutError: see `start_controller` and `stop_controller`.
    """
    for controller in controllers:
        refuse_another_version(cluster, controller)  # before `finally` could end that version
    try:
        for controller in controllers:
            start_controller(cluster, controller)
        yield
    finally:
        for controller in reversed(controllers):
            stop_controller(cluster, controller)


def _place(cluster: Cluster, controller: Controller) -> Place:
    link = cluster.node(1).link
    if link is None:
        raise RuntimeError(_down(cluster))
    return Place(
        programs=tool_folder(controller.tool),
        address=str(link.node),
        certificates=_temporary(cluster.layout, controller) / WEBHOOK_FOLDER,
        config=cluster.layout.run / f"{controller.name}.json",
        kubeconfig=cluster.layout.run / f"{_client(controller)}.kubeconfig",
    )


def _down(cluster: Cluster) -> str:
    return f"cluster {cluster.name} is down: run `up` first"


def _client(controller: Controller) -> str:
    """The name of the certificate by which the API server knows the controller."""
    return f"{controller.name}-client"


def _temporary(layout: Layout, controller: Controller) -> Path:
    return layout.run / f"{controller.name}-temporary"


def _objects(cluster: Cluster, controller: Controller) -> list[dict[str, Any]]:
    """The objects of the module's own manifests; kubectl turns their YAML into JSON."""
    programs = tool_folder(controller.tool)
    places = [programs / name for name in controller.manifests]
    text = "\n---\n".join(
        place.read_text() if place.is_file() else cluster.run_kubectl("kustomize", str(place))
        for place in places
    )
    listed = cluster.run_kubectl(
        "create", "--dry-run=client", "--validate=false", "-o", "json", "-f-", given=text
    )
    decoder, found = json.JSONDecoder(), list[dict[str, Any]]()
    while listed := listed.lstrip():
        item, end = cast(tuple[dict[str, Any], int], decoder.raw_decode(listed))
        found += item["items"] if item["kind"] == "List" else [item]
        listed = listed[end:]
    return found


def _of_kinds(objects: list[dict[str, Any]], kinds: tuple[str, ...]) -> list[dict[str, Any]]:
    return [item for item in objects if item["kind"] in kinds]


def _definitions(controller: Controller, objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = _of_kinds(objects, DEFINITIONS)
    wanted = controller.definitions or tuple(item["metadata"]["name"] for item in found)
    return [item for item in found if item["metadata"]["name"] in wanted]


def _rights(controller: Controller, objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The controller's own roles, and bindings that give them to its certificate's user."""
    group = "rbac.authorization.k8s.io"
    found: list[dict[str, Any]] = []
    for role in _of_kinds(objects, ("ClusterRole",)):
        name = role["metadata"]["name"]
        if name in controller.roles:
            role["rules"] += controller.more_rules
            binding = {
                "apiVersion": f"{group}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"{controller.user}-{name}"},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
                "subjects": [{"apiGroup": group, "kind": "User", "name": controller.user}],
            }
            found += [role, binding]
    assert len(found) == 2 * len(controller.roles), f"{controller.name} lacks one of its roles"
    return found


def _write_files(layout: Layout, controller: Controller, place: Place) -> None:
    """Write the controller's certificates, its configuration and its kubeconfig."""
    client, server = _client(controller), f"{controller.name}-server"
    for certificate in (
        Certificate(client, controller.user),
        Certificate(server, server, "serverAuth", alternative_names=("IP:127.0.0.1",)),
    ):
        sign(layout.pki, certificate)
    place.certificates.mkdir(parents=True, exist_ok=True)
    for ending in ("crt", "key"):
        given = (layout.pki / f"{server}.{ending}").read_bytes()
        (place.certificates / f"tls.{ending}").write_bytes(given)
    if controller.configuration:
        text = json.dumps(controller.configuration(place), indent=1)
        place.config.write_text(text + "\n")
    write_kubeconfig(
        place.kubeconfig,
        server=f"https://{place.address}:{API_PORT}",
        name=layout.name,
        pki=layout.pki,
        certificate=client,
    )


def _mount(node: Node, certificates: Path, folder: str) -> None:
    """Let a controller find its certificates in the folder whose path is fixed in its program."""
    if folder:
        _unmount(node, folder)
        script = 'mkdir -p "$2" && mount --bind "$1" "$2"'
        _in_node(node, "sh", "-c", script, "sh", str(certificates), folder)


def _unmount(node: Node, folder: str) -> None:
    """Remove the mount, which may also be left of a controller that was killed."""
    if folder:
        _in_node(node, "sh", "-c", 'mountpoint -q "$1" && umount "$1" || true', "sh", folder)


def _in_node(node: Node, *command: str) -> None:
    holder = node.holder
    assert holder is not None, f"node {node.name} has ended"
    subprocess.run(holder.enter(*command), check=True)


def _webhooks(
    cluster: Cluster, controller: Controller, objects: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The webhooks, which lead to the address of the process instead of to a Service of pods.

    They get other names than in the manifests, because a controller that makes its certificates
    itself would put its own authority into the webhooks that it finds by name.
    """
    found = _of_kinds(objects, WEBHOOKS) if controller.webhook_port else []
    for item in found:
        item["metadata"]["name"] = f"{controller.user}-by-address"
        for webhook in item["webhooks"]:
            webhook["clientConfig"] = _address(webhook["clientConfig"], controller, cluster.layout)
    return found


def _converted(item: dict[str, Any], controller: Controller, layout: Layout) -> dict[str, Any]:
    """The definition. If a webhook converts its versions, it leads to the process's address."""
    webhook = item["spec"].get("conversion", {}).get("webhook")
    if webhook:
        webhook["clientConfig"] = _address(webhook["clientConfig"], controller, layout)
    return item


def _address(given: dict[str, Any], controller: Controller, layout: Layout) -> dict[str, Any]:
    authority = base64.b64encode((layout.pki / f"{CA}.crt").read_bytes()).decode()
    url = f"https://127.0.0.1:{controller.webhook_port}{given['service']['path']}"
    return {"url": url, "caBundle": authority}


def _not_ready(address: str, controller: Controller) -> str | None:
    for program in controller.programs:
        port, path = program.health_port, controller.health_path
        place = f"http://{address}:{port}{path}"
        try:
            status, _ = api.http_get(address, port, path)
        except OSError as reason:
            return f"{place}: {reason}"
        if status != 200:
            return f"{place}: status {status}"
    return None


def _not_served(cluster: Cluster, definitions: list[dict[str, Any]]) -> str | None:
    try:
        listed = cluster.run_kubectl("api-resources", "--cached=false", "-o", "name").split()
    except RuntimeError as reason:  # an API group has just come or gone
        return str(reason)
    missing = {item["metadata"]["name"] for item in definitions} - set(listed)
    return f"the API server does not serve {', '.join(sorted(missing))} yet" if missing else None


def _refusal(cluster: Cluster, probe: Mapping[str, Any]) -> str | None:
    """Why the API server or a webhook still refuses the probe; None if they take it.

    It is a dry run, so no object is made.
    """
    try:
        cluster.run_kubectl("create", "--dry-run=server", "-f-", given=json.dumps(probe))
    except RuntimeError as reason:
        return str(reason)
    return None


def _apply(cluster: Cluster, items: list[dict[str, Any]]) -> None:
    # It is a server-side apply, because the definitions are too long for kubectl's annotation.
    options = ("--server-side", "--force-conflicts")
    if items:
        cluster.run_kubectl("apply", *options, "-f-", given=_list(items))


def _delete(cluster: Cluster, items: list[dict[str, Any]]) -> None:
    if items:
        cluster.run_kubectl("delete", "--ignore-not-found", "-f-", given=_list(items))


def _list(items: list[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
