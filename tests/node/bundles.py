"""Makes the air-gapped bundles for test hosts that have no internet access."""

import hashlib
from pathlib import Path

from tests.node.lab import Lab

TEXT = b"To be, or not to be, that is the question:\n" * 40
WITHOUT = ("--without", "trainer-image", "--without", "wheels", "--without", "pulumi")
IMAGES = "/var/lib/rancher/k3s/agent/images"


def settings(lab: Lab) -> dict[str, str]:
    """Publish a small data set on the mirror, and return the settings of a bundle with it."""
    (lab.mirror.folder / "text.txt").write_bytes(TEXT)
    return {
        "accelerator": "cpu",
        "datasetUrl": lab.mirror.url.replace("/k3s", "/text.txt"),
        "datasetSha256": hashlib.sha256(TEXT).hexdigest(),
    }


def packed(lab: Lab, output: Path, **changes: str | bool) -> str:
    """Pack a bundle into the folder `output`, and return what the command has printed."""
    process = lab.pack(output, *WITHOUT, **{**settings(lab), **changes})
    said, _ = process.communicate()
    assert process.returncode == 0, said
    return said
