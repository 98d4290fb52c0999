"""The doctor judges only the kubeconfig's context in use and the files that this context names.

The real kubectl reads the kubeconfig; no API server answers.
"""

import base64
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.ask_host import SCRIPTS
from cli.doctor.cluster_checks import kubeconfig
from cli.facts import Facts, NotSeenError, parse_facts
from infra.node.expectations import Expectations
from sandbox.toolchain import bin_dir

SERVER = "https://127.0.0.1:1"
INSECURE: Mapping[str, Any] = {"server": SERVER, "insecure-skip-tls-verify": True}
PLAIN: Mapping[str, Any] = {"server": SERVER}


def certificate(folder: Path, name: str, days: int) -> tuple[Path, str]:
    """Make a certificate; return its file, and the time of its end as openssl writes it."""
    file = folder / f"{name}.crt"
    made = f"req -x509 -newkey rsa:2048 -noenc -days {days} -subj /CN={name}"
    words = [*made.split(), "-out", str(file), "-keyout", str(folder / f"{name}.key")]
    subprocess.run(["openssl", *words], check=True, capture_output=True)
    end = ["openssl", "x509", "-noout", "-enddate", "-in", str(file)]
    said = subprocess.run(end, check=True, capture_output=True, text=True).stdout
    return file, said.strip().removeprefix("notAfter=")


def facts_of(
    folder: Path, clusters: Mapping[str, Mapping[str, Any]], users: Mapping[str, Any]
) -> Facts:
    """Return the doctor's facts of a kubeconfig with a context for each cluster, of which `used` is
    in use.
    """
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": dict(it)} for name, it in clusters.items()],
        "users": [{"name": name, "user": user} for name, user in users.items()],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name}} for name in clusters
        ],
        "current-context": "old",
    }
    file = folder / "config"
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    done = subprocess.run(
        ["sh", str(SCRIPTS / "facts-cluster.sh")],
        env={
            **os.environ,
            "KUBECTL": f"'{bin_dir() / 'kubectl'}' --kubeconfig '{file}' --context used",
            "KUBECONFIG_FILE": str(file),
            "NAMESPACE": "ml",
            "PROBE_SECONDS": "5",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return parse_facts(done.stdout.splitlines())


def test_other_contexts_are_no_finding(tmp_path: Path) -> None:
    """The certificates and TLS settings of other contexts in the kubeconfig are not judged.
    Otherwise an ended certificate or a cluster without TLS checks would be found as a fault of the
    cluster in use.
    """
    old, ended = certificate(tmp_path, "old", 1)
    mine, until = certificate(tmp_path, "used", 300)
    assert ended != until
    inline = {
        name: {
            "client-certificate-data": base64.b64encode(file.read_bytes()).decode(),
            "client-key-data": base64.b64encode(file.with_suffix(".key").read_bytes()).decode(),
        }
        for name, file in (("old", old), ("used", mine))
    }
    found = facts_of(tmp_path, {"old": INSECURE, "used": PLAIN}, inline)
    assert found.one("kubeconfig_insecure") == "no"
    assert found.one("kubeconfig_ca") == "no"
    assert found.one("client_certificate_until") == until
    found = facts_of(tmp_path, {"old": PLAIN, "used": INSECURE}, inline)
    assert found.one("kubeconfig_insecure") == "yes"


def test_certificates_in_files_are_read(tmp_path: Path) -> None:
    """Certificates that the kubeconfig names by their files, as minikube writes it, are read too.
    Their paths are relative to the kubeconfig.
    """
    mine, until = certificate(tmp_path, "used", 300)
    user = {"client-certificate": mine.name, "client-key": mine.with_suffix(".key").name}
    cluster = {**PLAIN, "certificate-authority": mine.name}
    found = facts_of(tmp_path, {"used": cluster}, {"used": user})
    assert found.one("client_certificate_until") == until
    assert found.one("kubeconfig_ca") == "yes"


@pytest.mark.parametrize("named", ["data", "nothing"])
def test_kubeconfig_that_kubectl_refuses(tmp_path: Path, named: str) -> None:
    """If kubectl refuses the kubeconfig because a file is missing, the doctor reads from its text
    what it can: the authority, and the end of a certificate that is in the text.
    """
    mine, until = certificate(tmp_path, "used", 300)
    user = {"client-certificate-data": base64.b64encode(mine.read_bytes()).decode()}
    users = {"used": user if named == "data" else {}}
    found = facts_of(tmp_path, {"used": {**PLAIN, "certificate-authority": "gone.crt"}}, users)
    assert found.one("kubeconfig_ca") == "yes"
    assert found.get("client_certificate_until") == (until if named == "data" else "")


def test_mode_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If `stat` cannot tell the kubeconfig's mode, as on systems where it takes other options, the
    check repeats what `stat` says. Otherwise the check would end with a traceback.
    """
    other = tmp_path / "stat"
    other.write_text("#!/bin/sh\necho 'stat: illegal option -- c' >&2\nexit 1\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = facts_of(tmp_path, {"used": PLAIN}, {"used": {}})
    with pytest.raises(NotSeenError, match="illegal option -- c"):
        kubeconfig(found, Expectations())
