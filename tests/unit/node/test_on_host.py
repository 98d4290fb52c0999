"""What `python -m infra.node.on_host` says if ssh brings no answer of its script."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.stacks import PROJECT

HOST = {"host": "10.1.2.3", "port": 22, "user": "root", "host_key": "ssh-ed25519 AAAA"}
NEVER_REACHED = "echo 'ssh: connect to host 10.1.2.3: Connection refused' >&2; exit 255"
BREAKS_LATER = 'while [ "$1" != sh ]; do shift; done; "$@"; exit 255'
PASSES_ON = 'while [ "$1" != sh ]; do shift; done; exec "$@"'


def run(folder: Path, ssh: str, program: str) -> subprocess.CompletedProcess[str]:
    """Run the program's text on a host, with a stand-in for ssh whose commands are `ssh`."""
    client = folder / "ssh"
    client.write_text(f"#!/bin/sh\n{ssh}\n")
    client.chmod(0o755)
    job = {"ssh": {**HOST, "private_key": None, "jump": None}, "program": program}
    return subprocess.run(
        [sys.executable, "-m", "infra.node.on_host", "create"],
        input=json.dumps(job),
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_host_out_of_reach_is_unchanged(tmp_path: Path) -> None:
    """If ssh cannot reach the host, the error says that nothing was changed there."""
    done = run(tmp_path, NEVER_REACHED, "echo made\n")
    assert done.returncode == 255
    assert "Connection refused" in done.stderr
    assert "10.1.2.3 cannot be reached, so nothing was changed there" in done.stderr


def test_connection_that_breaks_promises_nothing(tmp_path: Path) -> None:
    """If the connection breaks while the script runs, the error does not say that nothing was
    changed. The script may have changed the host, or may still run there.
    """
    done = run(tmp_path, BREAKS_LATER, "echo made; echo words of the script >&2\n")
    assert done.returncode == 255
    assert done.stdout == "made\n"
    assert done.stderr.startswith("words of the script\n")
    assert "nothing was changed" not in done.stderr
    assert "the connection to 10.1.2.3 broke while its script ran" in done.stderr


@pytest.mark.parametrize("status", [0, 3])
def test_script_that_ends_has_only_its_words(tmp_path: Path, status: int) -> None:
    """A script that ends has its own output, errors and exit status, and nothing is added."""
    done = run(tmp_path, PASSES_ON, f'echo "$1"; echo word >&2; exit {status}\n')
    assert (done.stdout, done.stderr, done.returncode) == ("create\n", "word\n", status)
