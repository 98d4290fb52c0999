"""What a stack asks of its image's delivery and of its storage, as values.

Each kind of delivery or storage checks these values while the settings are read. So what the kind
cannot do is reported together with all other problems of the settings.
"""

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class ClusterFacts:
    """What a kind may need to know about the cluster.

    Args:
        whose: `ours` for a k3s that this stack installs, `adopted` for a k3s that it found and
            uses, `existing` for a cluster that others run.
        k3s_version: the setting `k3sVersion`, such as `v1.34.2+k3s1`; empty if that setting is
            wrong, or if the cluster is `existing`.
        registries: the setting `k3sRegistries` as JSON text, which may hold passwords; empty if
            it is not set.
    """

    whose: Literal["ours", "adopted", "existing"] = "existing"
    k3s_version: str = ""
    registries: str = field(default="", repr=False)


@dataclass(frozen=True)
class DeliveryAsked:
    """What the settings ask of a delivery.

    Args:
        repository: name of the image without its tag; empty if the setting is wrong.
        build_on: the setting `imageBuildOn`: `here` or `node`.
        further: names of the machines in the setting `nodes`.
        cluster: the cluster whose nodes get the image.
        options: an instance of the kind's options dataclass; None if an option is wrong.
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
    """What the settings ask of a storage.

    Args:
        namespace: Kubernetes namespace of the claim.
        folder: the setting `dataRoot`, a folder of the node.
        size: the setting `dataSize`, such as `50Gi`.
        options: an instance of the kind's options dataclass.
        address: the address at which the other nodes reach the first machine; empty if unknown.
    """

    namespace: str
    folder: str
    size: str
    options: Any = None
    address: str = ""
