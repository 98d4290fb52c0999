"""Reads which k3s this stack installs, and where it is downloaded from."""

import json
import re
from dataclasses import dataclass
from typing import Literal, cast

from infra.settings.reader import Reader
from infra.settings.secret import Secret


@dataclass(frozen=True)
class K3sSettings:
    """Which k3s is installed, and from where; `registries` is the text of its registries.yaml."""

    version: str
    sha256: str
    installer_sha256: str
    mirror: str
    existing: Literal["refuse", "adopt"]
    force: bool
    registries: Secret | None


def read_k3s(reader: Reader) -> K3sSettings:
    """Read the settings of k3s. `reader` collects the problems."""
    sha256 = reader.checksum("k3sSha256")
    installer = reader.checksum("k3sInstallerSha256")
    mirror = reader.text(
        "k3sMirror",
        pattern=r"(https?://[^\s@]+)?",
        form="an http(s) address without user and password",
        example="https://mirror.example.com/k3s",
    )
    if mirror.startswith("http://") and not (sha256 and installer):
        reader.problem(
            "k3sMirror",
            mirror,
            "a download by http could be changed on its way",
            "Set an https address, or both k3sSha256 and k3sInstallerSha256",
        )
    return K3sSettings(
        version=reader.text(
            "k3sVersion",
            pattern=r"v\d+\.\d+\.\d+\+k3s\d+",
            form="a release of k3s",
            example="v1.34.2+k3s1",
        ),
        sha256=sha256,
        installer_sha256=installer,
        mirror=mirror.rstrip("/"),
        existing=cast(
            Literal["refuse", "adopt"], reader.choice("k3sExisting", ("refuse", "adopt"))
        ),
        force=reader.boolean("k3sForce"),
        registries=_read_registries(reader),
    )


def _read_registries(reader: Reader) -> Secret | None:
    """Read `k3sRegistries` as YAML. JSON is valid YAML, so the text is written as JSON."""
    reader.hide("k3sRegistries")
    content = reader.mapping("k3sRegistries")
    text = json.dumps(content, indent=2, sort_keys=True)
    if re.search(r'"(password|auth|identity_token)": "', text):
        reader.require_encrypted("k3sRegistries")
    return Secret(text) if content else None
