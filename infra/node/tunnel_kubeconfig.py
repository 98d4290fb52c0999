"""Makes a kubeconfig that reaches the API server through the SSH port only.

The kubeconfig contains the whole text of the program that opens the tunnel, as an argument of
Python. So it does not depend on a path or on this checkout. It works in every folder of every
machine with `python3` and OpenSSH, for instance from Pulumi's state or on a colleague's machine.
"""

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from infra.node import ssh_files, tunnel

COMMAND = "python3"
HTTPS_PORT = 443  # of an address without a port
_OWN_IMPORTS = re.compile(r"^from infra\..*\n", re.MULTILINE)
_FUTURE = "from __future__ import annotations\n"


def tunnelled(kubeconfig: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Change the kubeconfig of k3s so that it uses the tunnel.

    The cluster's certificate authority stays the same. The tunnel leads to the port of the
    kubeconfig's server, as an adopted k3s may listen on another one than 6443.

    Args:
        kubeconfig: the kubeconfig as k3s writes it, with one cluster and one user.
        spec: how to reach the host, see `ssh_command`.
    """
    (cluster,), (user,) = kubeconfig["clusters"], kubeconfig["users"]
    port = tunnel.local_port(spec)
    server = {**cluster["cluster"], "server": f"https://127.0.0.1:{port}"}
    api_port = urlsplit(str(cluster["cluster"]["server"])).port or HTTPS_PORT
    credentials = {
        name: base64.b64decode(user["user"][f"client-{key}-data"]).decode()
        for name, key in (("clientCertificateData", "certificate"), ("clientKeyData", "key"))
    }
    given = {**spec, "credentials": credentials, "api_port": api_port}
    plugin = {
        "apiVersion": tunnel.API_VERSION,
        "command": COMMAND,
        # With -I, Python searches no folder of the user for modules, and ignores its variables.
        "args": ["-I", "-c", tunnel_program()],
        "env": [{"name": tunnel.VARIABLE, "value": json.dumps(given)}],
        "interactiveMode": "Never",
        "provideClusterInfo": False,
    }
    return {
        **kubeconfig,
        "clusters": [{**cluster, "cluster": server}],
        "users": [{**user, "user": {"exec": plugin}}],
    }


def tunnel_program() -> str:
    """The texts of infra/node/ssh_files.py and infra/node/tunnel.py, joined into one program."""
    texts = [Path(str(module.__file__)).read_text() for module in (ssh_files, tunnel)]
    body = "".join(_OWN_IMPORTS.sub("", text).replace(_FUTURE, "") for text in texts)
    return _FUTURE + body
