"""Makes a pod trust the user's own certificate authorities, beside those of the image.

Python's ssl and requests use exactly one file of trusted authorities. So an init container writes
one file with the authorities of its image and the user's own ones.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from infra.settings.pod_environment import CA_VARIABLES

if TYPE_CHECKING:
    from infra.objects import Manifest

OWN_FILE = "/etc/disttrain-ca/ca.crt"  # from the ConfigMap
ALL_FILE = "/etc/disttrain-trust/ca.crt"  # written by the init container
# The files of Debian's and Red Hat's families of distributions, then that of the Python package
# certifi: an image may have any of them. The script writes a line break after each file, because a
# file may end without one.
SCRIPT = f"""\
set -e
packaged=$(python3 -c 'import certifi; print(certifi.where())' 2>/dev/null || true)
for file in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt \\
    "$packaged" {OWN_FILE}; do
  if [ -n "$file" ] && [ -r "$file" ]; then cat "$file"; echo; fi
done >{ALL_FILE}
"""


def trust(pod: Manifest, config_map: str) -> Manifest:
    """A pod's spec whose container trusts the certificates of a ConfigMap.

    Args:
        pod: a pod's spec with one container.
        config_map: the name of the ConfigMap, whose key `ca.crt` contains the certificates (PEM).
    """
    (container,) = pod["containers"]
    own = _mount("ca", OWN_FILE, read_only=True)
    first = {
        "name": "trust",
        "image": container["image"],
        "imagePullPolicy": container["imagePullPolicy"],
        "command": ["sh", "-c", SCRIPT],
        "securityContext": container["securityContext"],
        "resources": container["resources"],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [own, _mount("trust", ALL_FILE, read_only=False)],
    }
    container = {
        **container,
        "env": [*container["env"], *({"name": name, "value": ALL_FILE} for name in CA_VARIABLES)],
        "volumeMounts": [*container["volumeMounts"], _mount("trust", ALL_FILE, read_only=True)],
    }
    volumes = [
        {"name": "ca", "configMap": {"name": config_map}},
        {"name": "trust", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
    ]
    return {
        **pod,
        "initContainers": [*pod.get("initContainers", []), first],
        "containers": [container],
        "volumes": [*pod["volumes"], *volumes],
    }


def _mount(volume: str, file: str, *, read_only: bool) -> dict[str, Any]:
    folder = str(PurePosixPath(file).parent)
    return {"name": volume, "mountPath": folder, "readOnly": read_only}
