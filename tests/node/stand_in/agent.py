"""`k3s agent` of the stand-in: joins as k3s does, and is the kubelet of its node.

`agent.py VERSION`. It trusts the server by the hash in the token, shows the token and the password
of its machine, gets a certificate, and registers its Node with the labels and taints of its
configuration. It tries again for ever, as k3s does, and tells systemd when its Node is there.
Standard library only.
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
# Of the keys that k3s knows, those that the project writes. With another one an agent ends, and a
# server only says in its log that it leaves it out, which would be our mistake all the same.
FOR_ALL = {"server", "token-file", "node-name", "node-label", "node-taint", "flannel-iface"}
FOR_SERVERS = {"write-kubeconfig-mode", "cluster-cidr", "service-cidr", "disable", "tls-san"}
FOR_SERVERS |= {"agent-token-file", "embedded-registry", "cluster-init"}


class RefusedError(Exception):
    """The server does not take this machine, or is not the one of the token."""


def configuration(known: Set[str] = FOR_ALL | FOR_SERVERS) -> dict[str, Any]:
    """Of config.yaml and config.yaml.d, as far as the project writes YAML: JSON values, lists.

    A list in a later file takes the place of one in an earlier file, as with k3s.

    Args:
        known: the keys that there may be.
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
    """JSON, or a list of plain words, which is compared as the text that it is."""
    try:
        return json.loads(value) if value else []
    except ValueError:
        return value


def node_of(config: dict[str, Any], name: str, version: str) -> Node:
    """What the kubelet of this machine registers; `name` where the configuration has none."""
    return Node(
        config.get("node-name", name),
        version,
        labels=dict(label.split("=") for label in config.get("node-label", [])),
        taints=config.get("node-taint", []),
        address=own_address(config.get("flannel-iface", "")),
    )


def password() -> str:
    """Of this machine: made once, and asked for by the server at each start."""
    if not PASSWORD.exists():
        PASSWORD.parent.mkdir(parents=True, exist_ok=True)
        PASSWORD.touch(mode=0o600)
        PASSWORD.write_text(secrets.token_hex(16))
    return PASSWORD.read_text().strip()


def get(server: str, tls: ssl.SSLContext, path: str, headers: dict[str, str]) -> bytes:
    """The answer of the server's supervisor; raises RefusedError with its words."""
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
    """TLS settings that trust the server of this token and no other one."""
    digest = token.removeprefix("K10").partition("::")[0]
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    authority = get(server, unverified, "/cacerts", {})
    if hashlib.sha256(authority).hexdigest() != digest:
        raise RefusedError("token CA hash does not match the Cluster CA certificate hash")
    return ssl.create_default_context(cadata=authority.decode())


def login(user: str, token: str) -> dict[str, str]:
    """The header by which a machine shows its token."""
    text = base64.b64encode(f"{user}:{token}".encode()).decode()
    return {"Authorization": f"Basic {text}"}


def join(config: dict[str, Any], token: str) -> ssl.SSLContext:
    """TLS settings with the certificate that the server has given for the agents' token."""
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
    """The settings of the servers, which every machine asks them for, with the agents' token."""
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
