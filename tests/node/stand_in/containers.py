"""The stand-in's container runtime, if the tests have given it one: a real containerd.

k3s starts a containerd of its own. From registries.yaml k3s writes where containerd looks for the
images of each registry. If the embedded registry is on, containerd asks k3s itself first for each
registry in that file, except for registries on the machine itself. It uses only the standard
library.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

REGISTRIES = Path("/etc/rancher/k3s/registries.yaml")
ROOT = Path("/var/lib/rancher/k3s/agent/containerd")
HOSTS = Path("/var/lib/rancher/k3s/agent/etc/containerd/certs.d")
SOCKET = Path("/run/k3s/containerd/containerd.sock")
CONTENT = ROOT / "io.containerd.content.v1.content" / "blobs"
LOCAL_PORT = 6444  # containerd reaches the node's own registry there; k3s has 6443, with TLS
START_SECONDS = 60
CONFIG = f"""\
version = 2
root = "{ROOT}"
state = "{SOCKET.parent}"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{ROOT}"
"""


def mirrors() -> dict[str, Any]:
    """Return the `mirrors` in registries.yaml.

    The project writes that file as JSON, below comments.
    """
    if not REGISTRIES.exists():
        return {}
    lines = [line for line in REGISTRIES.read_text().splitlines() if not line.startswith("#")]
    return json.loads("\n".join(lines)).get("mirrors") or {}


def is_local(host: str) -> bool:
    """Return whether k3s regards a registry as one on the machine itself."""
    name = host.rpartition(":")[0] or host
    return name in ("localhost", "::1") or name.startswith("127.")


def shared_registries(*, embedded: bool) -> list[str]:
    """Return the registries whose images the node shares; without any, it does not share or ask."""
    return [host for host in mirrors() if not is_local(host)] if embedded else []


def start(cluster: Path, address: str, *, embedded: bool) -> None:
    """Start containerd, and the embedded registry if the cluster has it on.

    Both end with this process, even if it executes another program meanwhile.

    Args:
        cluster: the folder with the programs; without containerd in it nothing is started.
        address: the node's own address.
        embedded: whether the server was started with `embedded-registry`.
    """
    if not (cluster / "containerd").exists():
        return
    shared = shared_registries(embedded=embedded)
    write_hosts(shared)
    ROOT.mkdir(parents=True, exist_ok=True)
    SOCKET.parent.mkdir(parents=True, exist_ok=True)
    configuration = ROOT.parent / "containerd.toml"
    configuration.write_text(CONFIG)
    in_background("containerd", cluster / "containerd", "--config", configuration)
    await_answer(cluster)
    if shared:
        in_background("sharing", sys.executable, cluster / "sharing.py", cluster, address, *shared)


def write_hosts(shared: list[str]) -> None:
    """Write for each registry which addresses containerd asks before the registry itself."""
    subprocess.run(["rm", "-rf", HOSTS], check=True)
    for host, entry in mirrors().items():
        own = [f"http://127.0.0.1:{LOCAL_PORT}"] if host in shared else []
        asked = [*own, *((entry or {}).get("endpoint") or [])]
        tables = [f'[host."{url}"]\n  capabilities = ["pull", "resolve"]' for url in asked]
        (HOSTS / host).mkdir(parents=True)
        text = "\n".join([f'server = "https://{host}"', *tables, ""])
        (HOSTS / host / "hosts.toml").write_text(text)


def in_background(name: str, *command: object) -> None:
    """Start a program that ends with this one."""
    log = ROOT.parent / f"{name}.log"
    words = ["setpriv", "--pdeathsig", "KILL", *map(str, command)]
    with log.open("a") as output:
        subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def await_answer(cluster: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while subprocess.run(
        [cluster / "ctr", "--address", SOCKET, "version"], capture_output=True, check=False
    ).returncode:
        if time.monotonic() > end:
            sys.exit('level=fatal msg="containerd did not start"')
        time.sleep(0.1)
