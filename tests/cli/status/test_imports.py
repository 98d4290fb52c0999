"""`status` starts quickly: it imports nothing that takes longer than the snapshot itself."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.status.kubeconfigs import kubeconfig

PROJECT = Path(__file__).parents[3]
HEAVY = ("kubernetes", "requests", "urllib3", "websocket", "certifi", "pulumi", "rich", "torch")
CODE = """
import sys
from cli import __main__
from cli.status import command
command.PATIENCE_SECONDS = 0.0
print(__main__.main(sys.argv[1:]), *sorted({heavy} & set(sys.modules)))
"""


def status_of(file: Path) -> tuple[str, str]:
    """Run `status` with a kubeconfig. Return its exit status with the modules of HEAVY that it
    imported, and its error.
    """
    words = [sys.executable, "-c", CODE.format(heavy=set(HEAVY)), "status", "--kubeconfig"]
    done = subprocess.run([*words, file], cwd=PROJECT, capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr


def test_status_imports_no_official_client(tmp_path: Path) -> None:
    """`status` with `--kubeconfig` imports neither the official Kubernetes client nor what only a
    terminal, a stack or a training needs.
    """
    status, error = status_of(kubeconfig(tmp_path))
    assert status == "2"
    assert "the cluster could not be asked: " in error
    assert "refused" in error


@pytest.mark.parametrize(
    ("key", "value"),
    [("proxy-url", "http://127.0.0.1:9"), ("certificate-authority", "/nowhere/ca.crt")],
)
def test_official_client_reads_what_others_cannot(tmp_path: Path, key: str, value: str) -> None:
    """A kubeconfig with a proxy or a missing certificate is read by the official client, which also
    has the words for what cannot be used.
    """
    status, error = status_of(kubeconfig(tmp_path, **{key: value}))
    assert status.startswith("2 ")
    assert "kubernetes" in status.split()
    assert "error: " in error
