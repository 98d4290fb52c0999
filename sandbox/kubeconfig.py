"""Writes kubeconfig files that contain their certificates and that only root can read."""

import base64
import json
import os
from pathlib import Path


def write_kubeconfig(path: Path, *, server: str, name: str, pki: Path, certificate: str) -> None:
    """Write a kubeconfig with one context `name` that uses the client certificate `certificate`.

    Args:
        path: the file, which is made with mode 0600.
        server: URL of the API server.
        name: name of the cluster, the user and the context.
        pki: the folder that `make_pki` has made.
        certificate: the `file` of a `Certificate` in that folder.
    """

    def data(file: str) -> str:
        return base64.b64encode((pki / file).read_bytes()).decode()

    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {"server": server, "certificate-authority-data": data("ca.crt")},
            }
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "client-certificate-data": data(f"{certificate}.crt"),
                    "client-key-data": data(f"{certificate}.key"),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(config, file, indent=1)  # JSON is YAML
