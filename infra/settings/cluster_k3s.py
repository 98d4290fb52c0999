"""Reads which k3s this stack installs, and where it is downloaded from."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from infra.settings.reader import Reader
from infra.settings.secret import Secret, is_url
from infra.settings.similar_names import did_you_mean
from trainer.config.problem import logins

_REGISTRIES_PARTS = ("mirrors", "configs", "auths")
_AUTH = ("username", "password", "auth", "identity_token")
_TLS = ("ca_file", "cert_file", "key_file", "insecure_skip_verify")
# The keys of a registry in each part, and those inside the keys of `configs`.
_KEYS_OF_HOST = {"mirrors": ("endpoint", "rewrite"), "configs": ("auth", "tls"), "auths": _AUTH}
_KEYS_OF_CONFIG = {"auth": _AUTH, "tls": _TLS}
_REGISTRIES_HINT = (
    "Write it as k3s' registries.yaml: {mirrors: {docker.io: {endpoint: [https://host]}}, configs: "
    "{host: {auth: {username: me, password: ...}}}}"
)


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
    elif mirror and not is_url(mirror):
        hint = "Write it like https://mirror.example.com/k3s"
        reader.problem("k3sMirror", mirror, "it has no host, or a port that is none", hint)
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
    key = "k3sRegistries"
    reader.hide(key)
    content = reader.mapping(key)
    for path, fault in registries_faults(content):
        reader.problem(f"{key}{path}", "...", fault, _REGISTRIES_HINT)
    text = json.dumps(content, indent=2, sort_keys=True)
    # `auth` is also the name of a part. A password of digits is a number in YAML.
    if re.search(r'"(password|auth|identity_token)": (?!null|\{)', text) or logins(content):
        reader.require_encrypted(key)
    return Secret(text) if content else None


def registries_faults(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what k3s would refuse in registries.yaml: the path in it, and the reason.

    This function is pure. k3s does not start with a part of another form, and ignores a part of
    another name.
    """
    for part, hosts in content.items():
        if part not in _REGISTRIES_PARTS:
            yield f".{part}", f"there is no such part{did_you_mean(part, _REGISTRIES_PARTS)}"
        elif not isinstance(hosts or {}, dict):
            yield f".{part}", "it is not an object"
        else:
            for host, about in cast(dict[str, object], hosts or {}).items():
                if not isinstance(about or {}, dict):
                    yield f".{part}[{host!r}]", "it is not an object"
                    continue
                path, keys = f".{part}[{host!r}]", cast(dict[str, object], about or {})
                yield from _faults_of_host(path, part, keys)


def _faults_of_host(path: str, part: str, keys: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong in the keys of one registry.

    A key that k3s does not know is refused only if it is like a known one. Later releases of k3s
    may know others.
    """
    if part == "mirrors" and not _is_list_of_texts(keys.get("endpoint")):
        yield f"{path}.endpoint", "it is not a list of addresses"
    inner = {
        name: cast(dict[str, object], value)
        for name, value in keys.items()
        if part == "configs" and name in _KEYS_OF_CONFIG and isinstance(value, dict)
    }
    sections = {"": (keys, _KEYS_OF_HOST[part])}
    sections |= {f".{name}": (value, _KEYS_OF_CONFIG[name]) for name, value in inner.items()}
    for section, (given, known) in sections.items():
        for name in given:
            if name not in known and (meant := did_you_mean(name, known)):
                yield f"{path}{section}.{name}", f"k3s has no such key{meant}"
    skip = inner.get("tls", {}).get("insecure_skip_verify", False)
    if not isinstance(skip, bool):
        yield f"{path}.tls.insecure_skip_verify", "it is not true or false"


def _is_list_of_texts(value: object) -> bool:
    """Whether it is a list of texts, or not set."""
    if value is None:
        return True
    return isinstance(value, list) and all(isinstance(e, str) for e in cast(list[object], value))
