"""Makes the image of Volcano's webhooks, with the shell script that makes their certificate.

The program and the script are Volcano's own. Volcano's image is based on Alpine Linux. This one has
this machine's bash, openssl and the other programs that the script calls, and the sandbox's
kubectl.
"""

import io
import tarfile
from pathlib import Path

from sandbox.image_archive import layer_archive
from sandbox.toolchain import bin_dir, tool_folder
from sandbox.tools.controllers import VOLCANO_MANIFESTS
from tests.kube.python_image import libraries_of

SCRIPT = "gen-admission-secret.sh"
CALLED = ("bash", "openssl", "cat", "base64", "tr")
OPENSSL_SETTINGS = "/usr/lib/ssl/openssl.cnf"


def webhook_image(program: Path, image: str, user: str) -> bytes:
    """Return an archive for `ctr images import`; `image_archive` describes the arguments."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w", dereference=True) as tar:
        wanted = {Path("/usr/bin") / name for name in CALLED}
        for path in [*wanted]:
            wanted |= libraries_of(path)
        for path in sorted(wanted):
            tar.add(path, str(path))
        tar.add("/usr/bin/bash", "/bin/sh")
        tar.add(OPENSSL_SETTINGS)
        tar.add(bin_dir() / "kubectl", "/usr/local/bin/kubectl")
        tar.add(program, f"/{program.name}", filter=_runnable)
        tar.add(tool_folder(VOLCANO_MANIFESTS) / SCRIPT, f"/{SCRIPT}", filter=_runnable)
        folder = tarfile.TarInfo("/tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(folder)
    settings = {
        "Entrypoint": [f"/{program.name}"],
        "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"],
        "User": user,
        "WorkingDir": "/",
    }
    return layer_archive(layer.getvalue(), image, settings)


def _runnable(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mode = 0o755
    return entry
