"""The image's way over a real SSH connection to a real containerd."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from infra.imaging.containerd import ContainerdError
from infra.imaging.ensure import ensure, problems
from infra.imaging.node import NodeError
from infra.imaging.plan import plan_image
from infra.imaging.reach import VARIABLE, reached
from sandbox.base_image import NAME as BASE_IMAGE
from sandbox.base_image import ensure_base_image
from tests.cli.servers import Sshd, make_key, sshd
from tests.sandbox.image_lab import DEPS_BYTES, PROJECT, REPOSITORY, Lab, wait_for

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


# Stops the command that holds the text in `stop-at`: a part when half of it is there, the import
# while it is at work. Then it hangs, with the number of the connection's process in `stopped`.
WRAPPER = """\
#!/bin/sh
stop=$(cat {folder}/stop-at 2>/dev/null)
case $SSH_ORIGINAL_COMMAND in
  *"${{stop:-nowhere}}"*)
    case $stop in
      "cat > "*) head -c 400000 | sh -c "$SSH_ORIGINAL_COMMAND" ;;
      *) setsid sh -c "$SSH_ORIGINAL_COMMAND" & sleep 0.02; kill -KILL "-$!" ;;
    esac
    echo "$PPID" >{folder}/stopping && mv {folder}/stopping {folder}/stopped
    sleep 100
    ;;
esac
exec sh -c "$SSH_ORIGINAL_COMMAND"
"""


@pytest.mark.parametrize(("stop_at", "kept"), [("cat > 00003-", 3), ("images import", 6)])
def test_a_connection_that_is_cut_costs_what_was_under_way(
    lab: Lab, tmp_path: Path, transfers: Callable[[], list[Path]], stop_at: str, kept: int
) -> None:
    folder = tmp_path / "line"
    folder.mkdir()
    wrapper, stopped = folder / "wrapper", folder / "stopped"
    wrapper.write_text(WRAPPER.format(folder=folder))
    wrapper.chmod(0o755)
    (folder / "stop-at").write_text(stop_at)
    here = lab.containerd

    def attempt() -> None:
        with reached(node_text(server)) as node:
            lab.containerd = dataclasses.replace(here, node=node, part_bytes=PART_BYTES)
            lab.ensure()
            assert problems(lab.plan(), lab.containerd) == []

    def cut() -> None:
        wait_for("the command to stop", stopped.exists)
        os.kill(int(stopped.read_text()), signal.SIGKILL)

    with sshd(folder, wrapper) as server, ThreadPoolExecutor(1) as thread:
        cutting = thread.submit(cut)
        with pytest.raises(ContainerdError, match="the connection broke"):
            attempt()
        cutting.result()
        assert not here.images()
        (folder / "stop-at").unlink()
        attempt()
    assert f"in 6 parts, {kept} of them were there from an earlier attempt" in "\n".join(lab.said)
    assert transfers() == []
    lab.containerd = here


# The last stage is small, so that the test is short.
DOCKERFILE = """\
ARG BASE_IMAGE
FROM ${BASE_IMAGE} AS checks
ARG TORCH_INDEX_URL=
RUN --mount=type=secret,id=package_index \\
    --mount=type=bind,source=trainer/requirements.txt,target=/mnt/requirements.txt \\
    set -e; . /run/secrets/package_index; \\
    case $PIP_INDEX_URL in https://me:sek?et@index.example/simple) ;; *) exit 1; esac; \\
    case $HTTPS_PROXY in http://me:sek?et@proxy.example:3128) ;; *) exit 2; esac; \\
    cp /mnt/requirements.txt /requirements; echo "$TORCH_INDEX_URL" >/index
FROM scratch AS deps
COPY --from=checks /requirements /index /
USER 1000:1000
"""


def test_the_image_is_built_at_the_node_and_only_context_and_code_go_there(
    lab: Lab, server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real buildah on a base without torch; sshd's host is this machine."""
    ensure_base_image()
    (lab.project / "docker/Dockerfile").write_text(DOCKERFILE)
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:sekret@index.example/simple")
    monkeypatch.setenv("HTTPS_PROXY", "http://me:sekret@proxy.example:3128")
    plan = plan_image(lab.project, REPOSITORY, BASE_IMAGE, "https://torch.example/cu118")
    before = set(Path("/var/tmp").iterdir())
    with reached(node_text(server)) as node:
        away = dataclasses.replace(lab.containerd, node=node)
        cache = tmp_path / "unused"
        made = ensure(plan, away, lab.project, cache, "buildah", lab.said.append, "", "node")
        assert made.built
        assert 0 < made.imported_bytes < 20_000
        assert problems(plan, away) == []
    assert not [path for path in cache.rglob("*") if path.suffix != ".lock" and path.is_file()]
    assert set(Path("/var/tmp").iterdir()) <= before
    for path, text in (("requirements", "torch"), ("index", "https://torch.example/cu118")):
        assert text in lab.file_in_image(made.image, path, tmp_path / path)[0]
    image = lab.containerd.complete_image(made.image)
    assert image
    assert "sekret" not in image.config.read().decode() + image.manifest.read().decode()


def test_a_build_that_fails_at_the_node_says_why(lab: Lab, server: Sshd, tmp_path: Path) -> None:
    (lab.project / "docker/Dockerfile").write_text("FROM scratch AS deps\nCOPY absent /\n")
    plan = plan_image(lab.project, REPOSITORY, "scratch", None)
    with reached(node_text(server)) as node:
        away = dataclasses.replace(lab.containerd, node=node)
        with pytest.raises(NodeError, match=r"(?s)at the node: .*absent"):
            ensure(plan, away, lab.project, tmp_path, "buildah", lab.said.append, "", "node")
    assert not list(Path("/var/tmp").glob("disttrain-build-*"))


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
