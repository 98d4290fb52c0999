"""The trainer downloads its data set through a real proxy that demands a password."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cli.servers import PASSWORD, USER, Page, make_certificate, proxy, web_server

PROJECT = Path(__file__).parents[2]
NAMES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")


def prepare(folder: Path, url: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m trainer prepare`, which a pod's Job runs, with these variables; return the
    outcome.
    """
    mapping = yaml.safe_load((PROJECT / "trainer/presets/shakespeare-char-cpu.yaml").read_text())
    mapping["run_name"], mapping["data_root"] = "proxied", str(folder / "data")
    digest = hashlib.sha256(Page.text).hexdigest()
    mapping["dataset"] = {"name": "proxied", "url": url, "sha256": digest, "tokenizer": "char"}
    (folder / "run.yaml").write_text(yaml.safe_dump(mapping))
    inherited = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    return subprocess.run(
        [sys.executable, "-m", "trainer", "prepare", "--config", str(folder / "run.yaml")],
        cwd=PROJECT,
        env={**inherited, "no_proxy": "", "NO_PROXY": "", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_data_set_comes_through_a_proxy_with_a_password(tmp_path: Path, scheme: str) -> None:
    """`prepare` downloads a data set by http and https through a proxy with a password, and does
    not print the password.
    """
    certificate = tmp_path / "certificate"
    (tmp_path / "ca.crt").write_text(make_certificate(certificate))
    tls = certificate if scheme == "https" else None
    with web_server(tls) as site, proxy(tmp_path) as port:
        through = f"http://{USER}:{PASSWORD}@127.0.0.1:{port}"
        trusted = {"SSL_CERT_FILE": str(tmp_path / "ca.crt")}
        environment = dict.fromkeys(NAMES, through) | trusted
        done = prepare(tmp_path, f"{scheme}://127.0.0.1:{site}/text", **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "data/datasets/proxied/train.bin").stat().st_size > 0
    assert PASSWORD not in done.stdout + done.stderr
    log = (tmp_path / "proxy-True.log").read_text()
    assert f"127.0.0.1:{site}" in log


def test_proxy_that_refuses_the_password_is_named_without_it(tmp_path: Path) -> None:
    """When the proxy refuses the password, `prepare` fails with the proxy's status, leaves no data
    set, and does not print the password.
    """
    with web_server() as site, proxy(tmp_path) as port:
        wrong = dict.fromkeys(NAMES, f"http://{USER}:wrong-{PASSWORD}@127.0.0.1:{port}")
        done = prepare(tmp_path, f"http://127.0.0.1:{site}/text", **wrong)
    assert done.returncode != 0
    output = done.stdout + done.stderr
    assert "answered 401" in output or "answered 407" in output
    assert PASSWORD not in output
    assert not (tmp_path / "data/datasets/proxied/train.bin").exists()
