"""Checks that the chosen storage and delivery can do what the other settings ask for."""

from infra.names import ONE_NODE
from infra.registry import Refusal
from infra.settings.asked import ClusterFacts, DeliveryAsked, StorageRequest
from infra.settings.cluster import ClusterSettings, address_keys
from infra.settings.kinds import Chosen, DeliveryChoice, StorageChoice
from infra.settings.namespace import NamespaceSettings
from infra.settings.nodes import NodeSettings
from infra.settings.reader import Reader
from infra.settings.storage import StorageSettings


def check_delivery(
    reader: Reader,
    chosen: Chosen,
    kind: DeliveryChoice,
    cluster: ClusterSettings,
    nodes: tuple[NodeSettings, ...],
    repository: str,
    build_on: str,
) -> None:
    """Note what the delivery cannot do. Nothing is checked if the setting names no known kind.

    Args:
        reader: collects the problems that are found.
        chosen: the setting `imageDelivery`.
        kind: the kind that `imageDelivery` names.
        cluster: the cluster whose nodes get the image.
        nodes: the machines beside the first one.
        repository: name of the image without its tag; empty if the setting is wrong.
        build_on: the setting `imageBuildOn`: `here` or `node`.
    """
    if not reader.are_right("imageDelivery"):
        return
    names = tuple(node.name for node in nodes)
    asked = DeliveryAsked(repository, build_on, names, _facts(cluster), chosen.options)
    for refusal in kind.check(asked):
        reader.refuse(refusal)
    if names and kind.needs_node and not kind.serves_further:
        reader.refuse(
            _nodes(
                names,
                f"imageDelivery: {chosen.name} brings the image only to the first machine, and "
                "pods on these could not start",
                "Set imageDelivery: import, mirror or registry",
            )
        )


def check_storage(
    reader: Reader,
    chosen: Chosen,
    kind: StorageChoice,
    settings: StorageSettings,
    cluster: ClusterSettings,
    namespace: NamespaceSettings,
    nodes: tuple[NodeSettings, ...],
) -> None:
    """Note what the storage cannot do. Nothing is checked if a setting of the storage is wrong.

    Args:
        reader: collects the problems that are found.
        chosen: the setting `storage`.
        kind: the kind that `storage` names.
        settings: the data folder and the size of the volume.
        cluster: settings of the cluster, with the address of the first machine.
        namespace: the claim's namespace.
        nodes: the machines beside the first one.
    """
    if chosen.options is None or not reader.are_right(
        "storage", "dataRoot", "dataSize", "namespace", *address_keys(reader)
    ):
        return
    request = StorageRequest(
        namespace.name,
        str(settings.data_root),
        settings.size,
        chosen.options,
        cluster.node_address,
    )
    try:
        made = kind.make(request)
    except ValueError as error:
        reader.problem("storage", chosen.name, str(error), "Set what it can work with")
        return
    if nodes and made.folder_on_host and made.access_mode == ONE_NODE:
        reader.refuse(
            _nodes(
                tuple(node.name for node in nodes),
                f"the storage ({chosen.name}) is a folder of the first machine, and pods on these "
                "would not find their data",
                "Set storage: nfs or nfs-first-node, or, where the folder is the same one on every "
                "machine, storageOptions.shared: true",
            )
        )


def _nodes(names: tuple[str, ...], reason: str, hint: str) -> Refusal:
    return Refusal("nodes", [*names], reason, hint, with_keys=("cluster", "k3sExisting"))


def _facts(cluster: ClusterSettings) -> ClusterFacts:
    if cluster.kind == "existing":
        return ClusterFacts()
    registries = cluster.k3s.registries.text if cluster.k3s.registries else ""
    whose = "adopted" if cluster.k3s.existing == "adopt" else "ours"
    return ClusterFacts(whose, cluster.k3s.version, registries)
