"""Lets further nodes join a cluster whose first node runs."""

from collections.abc import Callable, Sequence

from sandbox import components, configuration
from sandbox.network import Link
from sandbox.node import Node
from sandbox.peer_links import connect_node
from sandbox.pki import copy_authority, sign
from sandbox.venvs import PROJECT


def join_cluster(first: Node, further: Sequence[Node], apply: Callable[[object], None]) -> None:
    """Start all programs of these nodes; the caller waits until they are Ready.

    Args:
        first: the running node that has the control plane.
        further: the nodes to start. Nothing of an earlier start of theirs may be left.
        apply: a function that makes Kubernetes objects.

    Raises:
        RuntimeError: a part cannot be made or has ended; the text says which.
        TimeoutError: containerd of a node does not answer.
    """
    first_link, first_holder = first.link, first.holder
    assert first_link is not None, "the first node runs"
    assert first_holder is not None, "the first node runs"
    links: dict[Node, Link] = {}
    for node in further:
        holder, links[node] = node.make()
        connect_node(first_holder, first_link, holder, links[node], node.layout.number)
        _configure(first, node, links[node], first_link)
        node.layout.address_file.write_text(str(links[node].node))
        node.start([_components(node, links[node])["containerd"]])
    _start_mirror(first, first_link)
    for node in further:
        apply(components.further_node(node.layout))
        node.prepare_containerd()
        of_node = _components(node, links[node])
        node.start([of_node["kubelet"], of_node["kube-proxy"]])


def _components(node: Node, link: Link) -> dict[str, components.Component]:
    return components.node_components(node.layout, link, node.bin_dir)


def _configure(first: Node, node: Node, link: Link, first_link: Link) -> None:
    layout = node.layout
    with copy_authority(first.layout.pki, layout.pki):
        for certificate in components.node_certificates(layout, link):
            sign(layout.pki, certificate)
    cni_folder = components.find_cni_folder()
    assert cni_folder is not None, "the preflight has seen it"
    configuration.write_node_configuration(layout, link, first_link, node.pause_image, cni_folder)


def _start_mirror(first: Node, first_link: Link) -> None:
    """Start the image mirror, unless it runs already."""
    if first.ended([components.MIRROR]):
        mirror = components.image_mirror(first.layout, first_link)
        first.start([mirror], {"PYTHONPATH": str(PROJECT), "PYTHONDONTWRITEBYTECODE": "1"})
