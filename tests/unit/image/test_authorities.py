"""A build trusts the certificates of the setting `caBundle` and those that it trusts anyway."""

import os
import ssl
from pathlib import Path

import pytest

from infra.image import authorities
from infra.image.authorities import combined, system_authorities
from infra.image.build_context import Build, builder_environment, stage
from tests.unit.image.projects import write_project

OWN = "-----BEGIN CERTIFICATE-----\nown\n-----END CERTIFICATE-----"
USUAL = "-----BEGIN CERTIFICATE-----\nusual\n-----END CERTIFICATE-----\n"


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine trust the certificates of only one file; pip has no settings."""
    file = tmp_path / "system.pem"
    file.write_text(USUAL)
    for name in os.environ:
        if name.startswith(("PIP_", "UV_")) or name.endswith(("CA_BUNDLE", "SSL_CERT_FILE")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(authorities, "SYSTEM_FILES", (str(file),))
    paths = ssl.DefaultVerifyPaths("", "", "", str(tmp_path / "none"), "", "")
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)
    monkeypatch.setattr("infra.image.build_context.pip_files", lambda *_: [])


def secret(folder: Path, build: Build) -> str | None:
    """Return what the build step gets as its file of certificates; None if it gets none."""
    stage(write_project(folder / "project"), folder, build)
    file = folder / "secrets" / "ca_bundle"
    return file.read_text() if file.exists() else None


def build(own: str) -> Build:
    """Return a build with these certificates of `caBundle`."""
    return Build("h/i:1", "base:1", None, "linux/amd64", own)


@pytest.mark.usefixtures("system")
def test_own_certificates_add_to_the_systems(tmp_path: Path) -> None:
    """A build with `caBundle` trusts the system's certificates too. Otherwise hosts with public
    certificates would not be trusted.
    """
    assert secret(tmp_path / "with", build(OWN)) == f"{USUAL}{OWN}\n"
    assert secret(tmp_path / "without", build("")) is None


@pytest.mark.usefixtures("system")
def test_own_certificates_add_to_those_of_pips_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build with `caBundle` also trusts the certificates that pip's settings name in place of the
    system's.
    """
    (tmp_path / "pip.pem").write_text(USUAL.replace("usual", "pip's"))
    monkeypatch.setenv("PIP_CERT", str(tmp_path / "pip.pem"))
    found = secret(tmp_path / "build", build(OWN))
    assert found == f"{USUAL.replace('usual', 'pip' + chr(39) + 's')}{OWN}\n"


def test_the_builder_trusts_the_same_for_the_base_image(tmp_path: Path) -> None:
    """The builder itself, which gets the base image, trusts the same certificates."""
    assert builder_environment(build(OWN), tmp_path)["SSL_CERT_FILE"] == str(
        tmp_path / "secrets" / "ca_bundle"
    )
    assert "SSL_CERT_FILE" not in builder_environment(build(""), tmp_path)


def test_certificates_without_a_last_line_break_stay_apart() -> None:
    """Certificates that are joined stay on lines of their own, even if a file has no newline at its
    end.
    """
    assert combined(OWN, "", OWN) == f"{OWN}\n{OWN}\n"


def test_system_authorities_are_real_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's certificates are read even if SSL_CERT_FILE names a file with a single
    certificate.
    """
    (tmp_path / "one.pem").write_text(OWN)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "one.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=system_authorities())
    assert len(context.get_ca_certs()) > 50
