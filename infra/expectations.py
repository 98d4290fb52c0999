"""What a host and a cluster have to offer, as the settings of a stack or options say."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

DATA_ROOT = "/var/lib/disttrain"
NAMESPACE = "disttrain"
HTTPS_PROBE = "https://github.com/"
HTTP_PROBE = "http://github.com/"
GIB = 1024 * 1024  # in KiB


@dataclass(frozen=True)
class Expectations:
    """Plain values, so that they go as JSON to another process.

    `provision` is true where k3s is ours to install on the host; `gpus` counts distinct physical
    ones and is 0 on CPU, `ranks` is the world size, `shm_kib` is the sum over all pods of a node.
    The addresses of the proxies may hold passwords and are not shown.
    """

    provision: bool = True
    k3s_version: str = ""
    data_root: str = DATA_ROOT
    namespace: str = NAMESPACE
    gpus: int = 1
    ranks: int = 1
    operator: bool = True
    operator_driver: bool = False
    operator_toolkit: bool = True
    time_slices: int = 1
    mig: bool = False
    cuda: str = "11.8"
    shm_kib: int = GIB
    node_address: str = ""
    pod_cidr: str = "10.42.0.0/16"
    service_cidr: str = "10.43.0.0/16"
    no_proxy: str = ""
    image: str = ""
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
        """The same text for the same values."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_mapping(cls, values: dict[str, Any]) -> "Expectations":
        """The reverse of to_json. Raises TypeError for a key that does not exist."""
        return cls(**values)
