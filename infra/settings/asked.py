"""What a stack asks of its image's delivery and of its storage, as values that the kinds look at.

A kind says what it cannot do while the settings are read, so that it is said with everything else
that is wrong.
"""

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class ClusterFacts:
    """What a kind may have to know of the cluster.

    Args:
        whose: a k3s that this stack installs, one that it has adopted, or a cluster that exists.
        k3s_version: of a k3s that this stack installs, such as `v1.34.2+k3s1`; empty where the
            setting is wrong.
        registries: the setting k3sRegistries as JSON text, which may hold passwords; empty: none.
    """

    whose: Literal["ours", "adopted", "existing"] = "existing"
    k3s_version: str = ""
    registries: str = field(default="", repr=False)


@dataclass(frozen=True)
class DeliveryAsked:
    """What a delivery is to do.

    Args:
        repository: name of the image without its tag; empty where the setting is wrong.
        build_on: `here` or `node`.
        further: names of the machines of `nodes`.
        cluster: what the nodes are nodes of.
        options: an instance of the kind's options dataclass; None where one of them is wrong.
    """

    repository: str
    build_on: str = "here"
    further: tuple[str, ...] = ()
    cluster: ClusterFacts = ClusterFacts()
    options: Any = None

    @property
    def host(self) -> str:
        """The registry in the image's name, with its port if it has one."""
        return self.repository.partition("/")[0]


@dataclass(frozen=True)
class StorageRequest:
    """What the settings say about storage.

    Args:
        namespace: Kubernetes namespace of the claim.
        folder: the setting `dataRoot`, a folder of the node.
        size: the setting `dataSize`, such as `50Gi`.
        options: an instance of the kind's options dataclass.
        address: of the first machine, as the other nodes reach it; empty: it is not known.
    """

    namespace: str
    folder: str
    size: str
    options: Any = None
    address: str = ""
