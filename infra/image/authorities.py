"""Certificate authorities for the image's build: the setting `caBundle` beside the usual ones.

pip and uv trust either their own list or one file and nothing else. A proxy that intercepts only
some hosts needs both, so the file that the build gets holds both.
"""

import importlib.util
import ssl
from collections.abc import Iterable
from pathlib import Path

# Debian and its relatives, Red Hat and its relatives, Alpine and macOS
SYSTEM_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)


def combined(*texts: str) -> str:
    """The certificates (PEM) of all texts in one, whether or not a text ends with a line break."""
    return "".join(f"{text.rstrip()}\n" for text in texts if text.strip())


def system_authorities() -> str:
    """The certificates (PEM) that this machine trusts.

    Returns:
        The text of the system's file, or of the list that comes with Python's packages where the
        system has none; empty where neither is there.
    """
    # Not `cafile`, which is what SSL_CERT_FILE says, and so perhaps one certificate alone.
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
