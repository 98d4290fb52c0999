"""The image's way over a real SSH connection to a real containerd."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.imaging.containerd import ContainerdError
from infra.imaging.ensure import problems
from infra.imaging.reach import VARIABLE, reached
from tests.cli.servers import Sshd, make_key, sshd
from tests.sandbox.image_lab import DEPS_BYTES, PROJECT, REPOSITORY, Lab

PART_BYTES = 1_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running


def node_text(server: Sshd, **changes: Any) -> str:
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    ssh = {
        "host": "127.0.0.1",
        "port": server.port,
        "user": user,
        "host_key": server.host_key,
        "private_key": server.identity.read_text(),
        "jump": None,
        **changes,
    }
    return json.dumps({"ssh": ssh, "sudo_password": ""})


def test_an_image_goes_over_one_connection_in_parts(
    lab: Lab, server: Sshd, transfers: Callable[[], list[Path]]
) -> None:
    before = server.logins()
    with reached(node_text(server)) as node:
        lab.containerd = dataclasses.replace(lab.containerd, node=node, part_bytes=PART_BYTES)
        first = lab.ensure()
        lab.change_code("print(2)\n")
        second = lab.ensure()
        assert first.imported_bytes > DEPS_BYTES
        assert 0 < second.imported_bytes < 20_000
        assert problems(lab.plan(), lab.containerd) == []
    lab.containerd = dataclasses.replace(lab.containerd, node=None)
    assert server.logins() == before + 1
    assert transfers() == []


def test_another_host_key_stops_it(lab: Lab, server: Sshd, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other")
    with reached(node_text(server, host_key=other)) as node:
        elsewhere = dataclasses.replace(lab.containerd, node=node)
        with pytest.raises(ContainerdError, match="Host key verification failed"):
            elsewhere.images()


def test_the_command_line_takes_the_node_from_its_environment(lab: Lab, server: Sshd) -> None:
    words = ["check", "--repository", REPOSITORY, "--address", str(lab.containerd.address)]
    before = server.logins()
    done = subprocess.run(
        [sys.executable, "-m", "infra.imaging", *words],
        cwd=PROJECT,
        env={**os.environ, VARIABLE: node_text(server)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "is not in containerd's namespace 'k8s.io'" in done.stdout
    assert server.logins() == before + 1
    assert server.identity.read_text().splitlines()[1] not in done.stdout + done.stderr


def test_root_by_sudo_gets_its_password_first_and_the_command_the_rest(tmp_path: Path) -> None:
    """With programs that stand for sudo and for a user who is not root."""
    scripts = {
        "id": "echo 1000",
        "sudo": '[ "$1" != -n ] || exit 1\nread -r given; [ "$given" = "pass word" ] || exit 1\n'
        'while [ "$1" != env ]; do shift; done; exec "$@"',
    }
    for name, text in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    with reached(json.dumps({"ssh": None, "sudo_password": "pass word"})) as node:
        assert node
        assert "pass word" not in repr(node)
        command = node.as_root(["cat"])
        assert "pass word" not in " ".join(command)
        done = subprocess.run(
            command,
            input=node.root_input + b"archive",
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
            capture_output=True,
            check=True,
        )
    assert done.stdout == b"archive"
