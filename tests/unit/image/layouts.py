"""Makes a small image with one layer, in the same formats as the image with gigabytes of torch."""

import io
import platform
import tarfile
from collections.abc import Mapping
from pathlib import Path

from infra.image.oci import (
    CONFIG_TYPE,
    LAYER_TYPE,
    MANIFEST_TYPE,
    Image,
    as_json,
    blob,
    blob_path,
    descriptor,
)

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def tar_bytes(files: Mapping[str, bytes]) -> bytes:
    """Return a tar archive with these files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def tiny_image(content: bytes = b"torch", more: Mapping[str, str] | None = None) -> Image:
    """Return an image for this machine, whose layer has `opt/torch` with this content and `more`
    files.
    """
    files = {name: text.encode() for name, text in (more or {}).items()}
    layer = blob(tar_bytes({"opt/torch": content, **files}))
    machine = platform.machine()
    config = blob(
        as_json(
            {
                "architecture": ARCHITECTURES.get(machine, machine),
                "os": "linux",
                "config": {"User": "1000:1000", "Entrypoint": ["python", "-m", "trainer"]},
                "rootfs": {"type": "layers", "diff_ids": [layer.digest]},
            }
        )
    )
    manifest = blob(
        as_json(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST_TYPE,
                "config": descriptor(CONFIG_TYPE, config),
                "layers": [descriptor(LAYER_TYPE, layer)],
            }
        )
    )
    return Image(manifest, config, (layer,))


def write_layout(folder: Path, image: Image) -> Path:
    """Write the image as an OCI layout into the folder; return the folder."""
    for part in image.blobs:
        path = blob_path(folder, part.digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(part.read())
    (folder / "oci-layout").write_bytes(as_json({"imageLayoutVersion": "1.0.0"}))
    entry = descriptor(MANIFEST_TYPE, image.manifest)
    (folder / "index.json").write_bytes(as_json({"schemaVersion": 2, "manifests": [entry]}))
    return folder
