"""Makes a kubeconfig whose API server does not exist, for tests."""

from pathlib import Path

import yaml

from tests.ports import free_port


def kubeconfig(folder: Path, **more: str) -> Path:
    """Write a kubeconfig of a server that does not exist, and return its path.

    `more` are further keys of its cluster.
    """
    server = f"https://127.0.0.1:{free_port()}"
    config = {
        "clusters": [{"name": "c", "cluster": {"server": server, **more}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return file
