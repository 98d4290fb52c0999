"""Makes the cluster's certificate authority and the certificates that it signs, with openssl.

The names and groups are those to which Kubernetes binds its default roles:
https://kubernetes.io/docs/setup/best-practices/certificates/
"""

import shutil
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

VALID_DAYS = 365  # every start of a cluster makes new certificates
CA = "ca"
SERVICE_ACCOUNT_KEY = "service-account.key"


@dataclass(frozen=True)
class Certificate:
    """A certificate to make: files `<file>.crt` and `<file>.key`, subject O=`group`, CN=`user`."""

    file: str
    user: str
    use: Literal["clientAuth", "serverAuth"] = "clientAuth"
    group: str | None = None
    alternative_names: tuple[str, ...] = ()  # in openssl's format: "IP:10.0.0.1", "DNS:name"


def make_pki(folder: Path, certificates: Sequence[Certificate]) -> None:
    """Make `folder` with the authority, the service accounts' signing key and all certificates.

    Keys are P-256 and readable by root alone.

    Raises:
        RuntimeError: openssl failed; the text is what it wrote.
    """
    folder.mkdir(mode=0o700, parents=True)
    # `openssl genpkey` writes a format from which the API server cannot read the public key.
    _openssl(folder, f"ecparam -name prime256v1 -genkey -noout -out {SERVICE_ACCOUNT_KEY}")
    _sign(folder, CA, f"CN = disttrain-sandbox {folder.parent.parent.name}", _CA_EXTENSIONS)
    for certificate in certificates:
        sign(folder, certificate)


@contextmanager
def copy_authority(source: Path, folder: Path) -> Generator[None]:
    """Make `folder` with the authority of `source`; its key is removed after the block."""
    folder.mkdir(mode=0o700, parents=True)
    shutil.copy2(source / f"{CA}.crt", folder)
    shutil.copy2(source / f"{CA}.key", folder)
    try:
        yield
    finally:
        (folder / f"{CA}.key").unlink()


def sign(folder: Path, certificate: Certificate) -> None:
    """Make one certificate and its key in a folder that holds `ca.crt` and `ca.key`.

    Raises:
        RuntimeError: openssl failed; the text is what it wrote.
    """
    subject = f"CN = {certificate.user}"
    if certificate.group:
        subject = f"O = {certificate.group}\n{subject}"
    extensions = f"{_LEAF_EXTENSIONS}\nextendedKeyUsage = {certificate.use}"
    if certificate.alternative_names:
        extensions += f"\nsubjectAltName = {','.join(certificate.alternative_names)}"
    _sign(folder, certificate.file, subject, extensions, signer=CA)


_CA_EXTENSIONS = """\
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash"""
_LEAF_EXTENSIONS = """\
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid"""


def _sign(
    folder: Path, file: str, subject: str, extensions: str, signer: str | None = None
) -> None:
    # With the system's configuration, openssl would make every certificate an authority.
    (folder / f"{file}.cnf").write_text(
        "[req]\nprompt = no\ndistinguished_name = subject\nx509_extensions = extensions\n"
        f"[subject]\n{subject}\n[extensions]\n{extensions}\n"
    )
    by = f"-CA {signer}.crt -CAkey {signer}.key" if signer else ""
    _openssl(
        folder,
        f"req -x509 -config {file}.cnf -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc "
        f"-days {VALID_DAYS} {by} -out {file}.crt -keyout {file}.key",
    )
    (folder / f"{file}.cnf").unlink()


def _openssl(folder: Path, arguments: str) -> None:
    done = subprocess.run(
        ["openssl", *arguments.split()], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"openssl {arguments} failed:\n{done.stderr.strip()}")
