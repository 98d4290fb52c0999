"""Collects the certificates of authorities that the image's build trusts.

pip and uv trust either their own list or the certificates of one file, but not both. Behind a proxy
that intercepts only some hosts, a build needs the usual certificates and those of the setting
`caBundle`. So the file that the build gets holds both.
"""

import importlib.util
import ssl
from collections.abc import Iterable
from pathlib import Path

# The files of Debian and its derivatives, of Red Hat and its derivatives, and of Alpine and macOS.
SYSTEM_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)


def combined(*texts: str) -> str:
    """Join the certificates (PEM) of all texts to one text."""
    return "".join(f"{text.rstrip()}\n" for text in texts if text.strip())


def trust(context: ssl.SSLContext, certificates: str) -> None:
    """Let a context trust certificates (PEM), beside those that it trusts already.

    Comments between the certificates may have any letters, of which Python's ssl takes only ASCII.

    Raises:
        ssl.SSLError: there is no certificate in the text, or one of them is damaged.
    """
    context.load_verify_locations(cadata=certificates.encode("ascii", "replace").decode())


def system_authorities() -> str:
    """Return the certificates (PEM) that this machine trusts.

    Returns:
        The text of the system's file. If the system has none, it is the list that Python's packages
        bring; empty if there is no list either.
    """
    # `cafile` is not used: SSL_CERT_FILE sets it, perhaps to a file with a single certificate.
    files = [ssl.get_default_verify_paths().openssl_cafile, *SYSTEM_FILES, *_packaged_files()]
    return _first_text(files)


def _packaged_files() -> list[str]:
    found: list[str] = []
    for package in ("certifi", "pip"):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations if spec else None) or ():
            root = Path(folder) if package == "certifi" else Path(folder) / "_vendor" / "certifi"
            found.append(str(root / "cacert.pem"))
    return found


def _first_text(files: Iterable[str]) -> str:
    for file in files:
        try:
            text = Path(file).read_text(errors="replace")
        except OSError:
            continue
        if "BEGIN CERTIFICATE" in text:
            return text
    return ""
