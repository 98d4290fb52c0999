"""What the doctor expects of a host and a cluster, from a stack's settings or from options."""

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from infra.names import CLAIM

DATA_ROOT = "/var/lib/disttrain"
NAMESPACE = "disttrain"
HTTPS_PROBE = "https://github.com/"
HTTP_PROBE = "http://github.com/"
GIB = 1024 * 1024  # the number of KiB in a GiB
FIRST_NODE, OTHER = "first-node", "other"  # of `nfs`


@dataclass(frozen=True)
class Expectations:
    """Plain values, so that they go as JSON to another process.

    `provision` is true where this program installs k3s on the host. `gpus` counts distinct physical
    GPUs and is 0 on CPU; `ranks` is the world size, spread evenly over `pods`; `shm_kib` is the sum
    over all pods of a node. `several` is true where other machines have GPUs and pods too, so that
    `gpus` need not be on one. With `embedded_registry` machines give each other the image, by the
    embedded registry of k3s. `service` is k3s' own on the host. With `shared_data` the data folder
    is the same one on every machine. `nfs` says whose server the nodes mount the data from: that of
    the first machine (FIRST_NODE), one of others (OTHER), or none (empty).
    `node_interface` is the network interface that k3s is to use,
    empty for that of the default route; `interface_address` is the address that it has to have, if
    that is said. `tolerated_taints` are keys of taints that do not keep our pods away, `*` stands
    for all. `node_selector` has the labels, as `key=value`, that a node of our pods must have.
    `image_builder` is `auto` or a name, empty if no image has to be built; `image_build_on` is
    `here` or `node`; `image_deps` is the hash under which this machine's cache keeps the result.
    The addresses of the proxies may hold passwords and are not shown.
    """

    provision: bool = True
    k3s_version: str = ""
    data_root: str = DATA_ROOT
    namespace: str = NAMESPACE
    claim: str = CLAIM
    gpus: int = 1
    ranks: int = 1
    pods: int = 1
    several: bool = False
    service: str = "k3s"
    shared_data: bool = False
    nfs: str = ""
    embedded_registry: bool = False
    tolerated_taints: tuple[str, ...] = ("nvidia.com/gpu",)
    node_selector: tuple[str, ...] = ()
    operator: bool = True
    operator_driver: bool = False
    operator_toolkit: bool = True
    time_slices: int = 1
    mig: bool = False
    cuda: str = "11.8"
    shm_kib: int = GIB
    node_address: str = ""
    node_interface: str = ""
    interface_address: str = ""
    pod_cidr: str = "10.42.0.0/16"
    service_cidr: str = "10.43.0.0/16"
    no_proxy: str = ""
    image: str = ""
    image_builder: str = ""
    image_build_on: str = "here"
    image_deps: str = ""
    ca_bundle: str = ""
    internet: bool = True
    http_probe: str = HTTP_PROBE
    https_probe: str = HTTPS_PROBE
    http_proxy: str = field(default="", repr=False)
    https_proxy: str = field(default="", repr=False)

    @property
    def has_proxy(self) -> bool:
        """Whether any proxy is set."""
        return bool(self.http_proxy or self.https_proxy)

    def to_json(self) -> str:
        """JSON; the same values give the same text."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_mapping(cls, values: dict[str, Any]) -> "Expectations":
        """Make it from the values that `to_json` has written.

        Raises:
            TypeError: a key does not exist.
        """
        made = cls(**values)
        return replace(
            made,
            tolerated_taints=tuple(made.tolerated_taints),
            node_selector=tuple(made.node_selector),
        )
