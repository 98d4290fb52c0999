"""The stand-in's `k3s agent`: joins a cluster as k3s does, and acts as the kubelet of its node.

It runs as `agent.py VERSION`. It trusts the server by the hash in the token, shows the token and
its machine's password, gets a certificate, and registers its Node with the labels and taints of its
configuration. If a step fails, it tries again for ever, as k3s does. It tells systemd that it is up
when its Node is registered. It uses only the standard library.
"""

import base64
import hashlib
import http.client
import json
import secrets
import ssl
import sys
import time
from collections.abc import Set
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cluster import (  # pyright: ignore # beside this file on the test host
    Node,
    notify,
    own_address,
    register,
    renew,
)
from containers import start  # pyright: ignore # beside this file on the test host

CONFIG = Path("/etc/rancher/k3s")
PASSWORD = Path("/etc/rancher/node/password")
DATA = Path("/var/lib/rancher/k3s/agent")
KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{name: local, cluster: {server: SERVER, certificate-authority: DATA/server-ca.crt}}]
contexts: [{name: Default, context: {cluster: local, user: user}}]
current-context: Default
users:
- name: user
  user: {client-certificate: DATA/client.crt, client-key: DATA/client.key}
"""
DATA_OF_TESTS = Path("/lab/cluster")
RETRY_SECONDS = 0.5
RENEW_SECONDS = 2
# Those keys of k3s' configuration that the project writes. With an unknown key an agent ends. A
# server would only log that it ignores the key. Here it ends too, because writing such a key would
# be a mistake of the project.
FOR_ALL = {"server", "token-file", "node-name", "node-label", "node-taint", "flannel-iface"}
FOR_SERVERS = {"write-kubeconfig-mode", "cluster-cidr", "service-cidr", "disable", "tls-san"}
FOR_SERVERS |= {"agent-token-file", "embedded-registry", "cluster-init"}


class RefusedError(Exception):
    """The server refuses this machine, or it is not the server of the token."""


def configuration(known: Set[str] = FOR_ALL | FOR_SERVERS) -> dict[str, Any]:
    """Return the values in config.yaml and config.yaml.d.

    It reads only the YAML that the project writes: JSON values and lists. A list in a later file
    replaces that in an earlier file, as with k3s.

    Args:
        known: the allowed keys; with any other key the program ends.
    """
    found: dict[str, Any] = {}
    for file in (CONFIG / "config.yaml", *sorted((CONFIG / "config.yaml.d").glob("*.yaml"))):
        key = ""
        for line in file.read_text().splitlines():
            if line.startswith("- "):
                found[key].append(json.loads(line[2:]))
                continue
            key, _, value = line.partition(":")
            found[key] = parsed(value.strip())
    if unknown := sorted(set(found) - known):
        sys.exit(f'level=fatal msg="flag provided but not defined: -{unknown[0]}"')
    return found


def parsed(value: str) -> Any:
    """Return the value of a JSON text; an empty text gives an empty list.

    Any other text, such as a YAML list of words, is returned as it is.
    """
    try:
        return json.loads(value) if value else []
    except ValueError:
        return value


def node_of(config: dict[str, Any], name: str, version: str) -> Node:
    """Return the node that this machine's kubelet registers.

    `name` is its name if none is configured.
    """
    return Node(
        config.get("node-name", name),
        version,
        labels=dict(label.split("=") for label in config.get("node-label", [])),
        taints=config.get("node-taint", []),
        address=own_address(config.get("flannel-iface", "")),
    )


def password() -> str:
    """This machine's password. It is made once, and the server asks for it at each start."""
    if not PASSWORD.exists():
        PASSWORD.parent.mkdir(parents=True, exist_ok=True)
        PASSWORD.touch(mode=0o600)
        PASSWORD.write_text(secrets.token_hex(16))
    return PASSWORD.read_text().strip()


def get(server: str, tls: ssl.SSLContext, path: str, headers: dict[str, str]) -> bytes:
    """Return the answer of the server's supervisor.

    Raise RefusedError with its text if it refuses.
    """
    there = urlsplit(server)
    assert there.hostname
    connection = http.client.HTTPSConnection(there.hostname, there.port, timeout=30, context=tls)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        content = answer.read()
    except http.client.HTTPException as error:
        raise OSError(repr(error)) from error
    finally:
        connection.close()
    if answer.status != 200:
        raise RefusedError(content.decode())
    return content


def trust(server: str, token: str) -> ssl.SSLContext:
    """TLS settings that trust only the server of this token.

    Raises:
        RefusedError: the server's authority does not have the hash in the token.
    """
    digest = token.removeprefix("K10").partition("::")[0]
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    authority = get(server, unverified, "/cacerts", {})
    if hashlib.sha256(authority).hexdigest() != digest:
        raise RefusedError("token CA hash does not match the Cluster CA certificate hash")
    return ssl.create_default_context(cadata=authority.decode())


def login(user: str, token: str) -> dict[str, str]:
    """Return the HTTP header with which a machine shows its token."""
    text = base64.b64encode(f"{user}:{token}".encode()).decode()
    return {"Authorization": f"Basic {text}"}


def join(config: dict[str, Any], token: str) -> ssl.SSLContext:
    """Get a certificate for the agents' token, and return TLS settings with it.

    The certificate, the authority and a kubeconfig are written into `DATA`.
    """
    tls = trust(config["server"], token)
    headers = {
        **login("node", token),
        "k3s-Node-Name": config["node-name"],
        "k3s-Node-Password": password(),
    }
    pair = json.loads(get(config["server"], tls, "/v1-k3s/serving-kubelet", headers))
    DATA.mkdir(parents=True, exist_ok=True)
    for name, text in pair.items():
        (DATA / name).touch(mode=0o600)
        (DATA / name).write_text(text)
    (DATA / "server-ca.crt").write_bytes(get(config["server"], tls, "/cacerts", {}))
    kubeconfig = KUBECONFIG.replace("SERVER", config["server"]).replace("DATA", str(DATA))
    (DATA / "kubelet.kubeconfig").write_text(kubeconfig)
    tls.load_cert_chain(DATA / "client.crt", DATA / "client.key")
    return tls


def of_cluster(config: dict[str, Any], token: str) -> dict[str, Any]:
    """Return the servers' settings. Every machine asks for them with the agents' token."""
    trusting = trust(config["server"], token)
    return json.loads(get(config["server"], trusting, "/v1-k3s/config", login("node", token)))


def main(version: str) -> None:
    config = configuration(FOR_ALL)
    there = urlsplit(config["server"])
    assert there.hostname
    node = node_of(config, "", version)
    tls, is_up = None, False
    while True:
        try:
            if tls is None:
                token = Path(config["token-file"]).read_text().strip()
                joined = join(config, token)
                shares = bool(of_cluster(config, token)["embedded-registry"])
                start(DATA_OF_TESTS, node.address, embedded=shares)
                tls = joined
            api = http.client.HTTPSConnection(there.hostname, there.port, timeout=30, context=tls)
            if not is_up:
                register(api, node)
            renew(api, node.name)
            if not is_up:
                notify()
                is_up = True
        except (OSError, RefusedError) as error:
            print(f'level=error msg="{error}"', flush=True)
            time.sleep(RETRY_SECONDS)
        else:
            time.sleep(RENEW_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1])
