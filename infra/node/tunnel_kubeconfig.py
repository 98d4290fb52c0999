"""Makes a kubeconfig that reaches the API server through port 22 alone.

The kubeconfig holds the whole program that opens the tunnel, as the text that Python is started
with. So it names no path, and works on every machine with `python3` and OpenSSH and in every
folder: in Pulumi's state, on a colleague's machine and after this checkout is gone.
"""

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.node import ssh_files, tunnel

COMMAND = "python3"
_OWN_IMPORTS = re.compile(r"^from infra\..*\n", re.MULTILINE)
_FUTURE = "from __future__ import annotations\n"


def tunnelled(kubeconfig: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """The kubeconfig of k3s, turned to the tunnel's end; the authority is kept.

    Args:
        kubeconfig: as k3s writes it, with one cluster and one user, server at 127.0.0.1:6443.
        spec: how to get to the host, see `ssh_command`.
    """
    (cluster,), (user,) = kubeconfig["clusters"], kubeconfig["users"]
    port = tunnel.local_port(spec["host"], spec["port"], spec["user"])
    server = {**cluster["cluster"], "server": f"https://127.0.0.1:{port}"}
    credentials = {
        name: base64.b64decode(user["user"][f"client-{key}-data"]).decode()
        for name, key in (("clientCertificateData", "certificate"), ("clientKeyData", "key"))
    }
    plugin = {
        "apiVersion": tunnel.API_VERSION,
        "command": COMMAND,
        # -I: no folder of the user's is searched for modules, and no variable of Python counts
        "args": ["-I", "-c", tunnel_program()],
        "env": [
            {"name": tunnel.VARIABLE, "value": json.dumps({**spec, "credentials": credentials})}
        ],
        "interactiveMode": "Never",
        "provideClusterInfo": False,
    }
    return {
        **kubeconfig,
        "clusters": [{**cluster, "cluster": server}],
        "users": [{**user, "user": {"exec": plugin}}],
    }


def tunnel_program() -> str:
    """infra/node/ssh_files.py and infra/node/tunnel.py as one program of the standard library."""
    texts = [Path(str(module.__file__)).read_text() for module in (ssh_files, tunnel)]
    body = "".join(_OWN_IMPORTS.sub("", text).replace(_FUTURE, "") for text in texts)
    return _FUTURE + body
