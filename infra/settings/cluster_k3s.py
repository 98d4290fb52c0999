"""How k3s gets to the machine on which this stack installs it."""

import json
import re
from dataclasses import dataclass
from typing import Literal, cast

from infra.settings.reader import Reader
from infra.settings.secret import Secret


@dataclass(frozen=True)
class K3sSettings:
    """How k3s gets to the host; `registries` is the text of registries.yaml."""

    version: str
    sha256: str
    installer_sha256: str
    mirror: str
    existing: Literal["refuse", "adopt"]
    force: bool
    registries: Secret | None


def read_k3s(reader: Reader) -> K3sSettings:
    """Read the section; problems are left with `reader`."""
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
    """`k3sRegistries` as YAML; JSON is YAML, too, and needs no library to be written."""
    reader.hide("k3sRegistries")
    content = reader.mapping("k3sRegistries")
    text = json.dumps(content, indent=2, sort_keys=True)
    if re.search(r'"(password|auth|identity_token)": "', text):
        reader.require_encrypted("k3sRegistries")
    return Secret(text) if content else None
