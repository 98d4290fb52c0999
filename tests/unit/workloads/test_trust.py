"""Certificate authorities in pods: those of `caBundle` are added to those of the image."""

import subprocess
from pathlib import Path
from typing import Any

from infra.workloads.trust import ALL_FILE, OWN_FILE, SCRIPT, trust

POD: dict[str, Any] = {
    "containers": [
        {
            "name": "trainer",
            "image": "localhost/a:1",
            "imagePullPolicy": "IfNotPresent",
            "env": [],
            "securityContext": {"allowPrivilegeEscalation": False},
            "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
            "volumeMounts": [],
        }
    ],
    "volumes": [],
}


def run_in_image(root: Path, own: str, system: str | None) -> str:
    """Return what the init container writes in an image with these files below `root`."""
    files = {OWN_FILE: own, "/etc/ssl/certs/ca-certificates.crt": system}
    script = SCRIPT.replace("python3", "no-python").replace(" /etc/", f" {root}/etc/")
    script = script.replace(f">{ALL_FILE}", f">{root}{ALL_FILE}")
    (root / ALL_FILE[1:]).parent.mkdir(parents=True)
    for name, text in files.items():
        (root / name[1:]).parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            (root / name[1:]).write_text(text)
    subprocess.run(["sh", "-c", script], check=True, capture_output=True)
    return (root / ALL_FILE[1:]).read_text()


def test_own_certificates_add_to_those_of_the_image(tmp_path: Path) -> None:
    """The pods trust the authorities of `caBundle` and those of the image. Otherwise pods with
    `caBundle` would not trust hosts with public certificates.
    """
    assert run_in_image(tmp_path / "both", "own", "usual\n").split() == ["usual", "own"]
    assert run_in_image(tmp_path / "small", "own\n", None).split() == ["own"]


def test_container_trusts_the_file_with_all_certificates() -> None:
    pod = trust(POD, "proxy-ca-1")
    (container,) = pod["containers"]
    assert container["env"] == [
        {"name": "SSL_CERT_FILE", "value": ALL_FILE},
        {"name": "REQUESTS_CA_BUNDLE", "value": ALL_FILE},
    ]
    (first,) = pod["initContainers"]
    assert first["image"] == container["image"]
    assert first["securityContext"] == container["securityContext"]
    assert {mount["name"]: mount["readOnly"] for mount in first["volumeMounts"]} == {
        "ca": True,
        "trust": False,
    }
    assert pod["volumes"][0] == {"name": "ca", "configMap": {"name": "proxy-ca-1"}}
    assert "initContainers" not in POD
