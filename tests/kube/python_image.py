"""Makes an image with this machine's own Python, for the pods of uploads and of `sample`.

The image stands in for the trainer image, which contains gigabytes of torch. Its module `trainer`
is the short program TRAINER.
"""

import io
import json
import re
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from sandbox.cluster import Cluster
from sandbox.image_archive import layer_archive

PYTHON_IMAGE = "localhost/disttrain/python:test"
HOST_PYTHON = "/usr/bin/python3"
LEFT_OUT = {"__pycache__", "test", "dist-packages", "site-packages", "idlelib", "tkinter"}
TRAINER = """\
import sys, time
if sys.argv[1] == "plot":
    sys.exit(print("<svg>", *sys.argv[2:], "</svg>"))
print("sample of", *sys.argv[1:], flush=True)
for number in range(int(sys.argv[-1])):
    print("line", number, flush=True)
    time.sleep(0.1)
"""


def python_image(image: str = PYTHON_IMAGE, programs: Sequence[str] = ()) -> bytes:
    """Return an OCI archive of the image, which also has the `programs` (paths on this machine)."""
    ask = "import json, os, sys; print(json.dumps([os.path.realpath(sys.executable), os.__file__]))"
    done = subprocess.run([HOST_PYTHON, "-c", ask], capture_output=True, text=True, check=True)
    program, os_module = (Path(path) for path in json.loads(done.stdout))
    library = os_module.parent
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w", dereference=True) as tar:
        wanted = {program, *libraries_of(program)}
        for path in programs:
            wanted |= libraries_of(Path(path))
        for extension in (library / "lib-dynload").glob("*.so"):
            wanted |= libraries_of(extension)
        for path in sorted(wanted):
            tar.add(path, str(path))
        tar.add(library, str(library), filter=_filter)
        for path in programs:
            tar.add(path, path)
        folder = tarfile.TarInfo("/tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(folder)
        for name in ("python", "python3"):
            tar.add(program, f"/usr/local/bin/{name}")
        entry = tarfile.TarInfo(f"{library}/trainer/__main__.py")
        entry.size, entry.mode = len(TRAINER), 0o644
        tar.addfile(entry, io.BytesIO(TRAINER.encode()))
    environment = [
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "PYTHONHOME=/usr",
        "PYTHONDONTWRITEBYTECODE=1",
    ]
    return layer_archive(layer.getvalue(), image, {"Env": environment})


def import_image(cluster: Cluster, archive: bytes) -> None:
    """Make an image known to the cluster's node."""
    command = ["ctr", "--address", str(cluster.containerd_address), "-n", "k8s.io"]
    subprocess.run([*command, "images", "import", "-"], input=archive, check=True)


def libraries_of(file: Path) -> set[Path]:
    """Return the paths of the shared libraries that a program or a library needs."""
    done = subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=True)
    return {Path(path) for path in re.findall(r"(/\S+) \(0x", done.stdout)}


def _filter(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if LEFT_OUT & set(Path(entry.name).parts) else entry
