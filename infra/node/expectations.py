"""Defines what the doctor expects of a host and a cluster. Settings or options say it."""

from dataclasses import dataclass, field, replace
from typing import Any

from infra.names import CLAIM

DATA_ROOT = "/var/lib/disttrain"
NAMESPACE = "disttrain"
HTTPS_PROBE = "https://github.com/"
HTTP_PROBE = "http://github.com/"
GIB = 1024 * 1024  # the number of KiB in one GiB
FIRST_NODE, OTHER = "first-node", "other"  # values of `nfs`


@dataclass(frozen=True)
class Expectations:
    """Plain values, so that they can be sent as JSON to another process.

    - `provision`: whether this program installs k3s on the host.
    - `gpus`: number of distinct physical GPUs; 0 for a training on the CPU.
    - `ranks`: the world size, spread evenly over the pods.
    - `pods`: number of pods of the training.
    - `several`: whether other machines have GPUs and pods too, so that `gpus` need not all be on
      one machine.
    - `service`: name of k3s' systemd service on the host.
    - `shared_data`: whether the data folder is the same one on every machine.
    - `nfs`: the NFS server from which the nodes mount the data: that of the first machine
      (FIRST_NODE), one that others run (OTHER), or none (empty).
    - `embedded_registry`: whether machines give each other the image, by the embedded registry of
      k3s.
    - `tolerated_taints`: keys of taints that do not keep our pods away; `*` stands for all.
    - `node_selector`: labels, as `key=value`, that the nodes of our pods must have.
    - `shm_kib`: shared memory in KiB that all pods of a node need together.
    - `api_host`: the host whose port 6443 this machine must reach; empty: it need reach none.
    - `node_interface`: the network interface that k3s uses; empty: that of the default route.
    - `interface_address`: the address that this interface has to have; empty: any.
    - `proxy_scope`: which parts of k3s use the proxies: `all` or `containerd`.
    - `image_builder`: `auto` or the name of a builder; empty if no image has to be built.
    - `image_build_on`: `here` or `node`.
    - `image_deps`: the hash under which this machine's cache keeps the built dependencies.
    - `http_proxy` and `https_proxy`: addresses of proxies, which may hold passwords and are not
      shown.
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
    api_host: str = ""
    node_address: str = ""
    node_interface: str = ""
    interface_address: str = ""
    pod_cidr: str = "10.42.0.0/16"
    service_cidr: str = "10.43.0.0/16"
    no_proxy: str = ""
    proxy_scope: str = "all"
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

    @classmethod
    def from_mapping(cls, values: dict[str, Any]) -> "Expectations":
        """Make an instance from the values in the JSON text of a Plan.

        Raises:
            TypeError: a key is not known.
        """
        made = cls(**values)
        return replace(
            made,
            tolerated_taints=tuple(made.tolerated_taints),
            node_selector=tuple(made.node_selector),
        )
