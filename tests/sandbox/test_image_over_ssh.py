"""The image is imported over a real SSH connection into a real containerd."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.image.containerd import ContainerdError
from infra.image.dependencies import Sources
from infra.image.ensure import ensure, problems
from infra.image.node import NodeError, after_begin_line
from infra.image.plan import plan_image
from infra.image.reach import open_node
from infra.node.node_variable import VARIABLE
from sandbox.base_image import NAME as BASE_IMAGE
from sandbox.base_image import ensure_base_image
from tests.cli.servers import Sshd, make_key, sshd
from tests.sandbox.image_lab import DEPS_BYTES, PROJECT, REPOSITORY, Lab
from tests.shell_text import READ_TEXT

PART_BYTES = 1_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """Yield an sshd that lets the user of the tests in."""
    with sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running


def node_text(server: Sshd, **changes: Any) -> str:
    """Return the description of the node behind this sshd, as `pulumi up` passes it on."""
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
    """An image arrives over one SSH connection in parts, and no part is left on the node."""
    before = server.logins()
    with open_node(node_text(server)) as node:
        away = dataclasses.replace(lab.containerd, node=node, part_bytes=PART_BYTES)
        remote = dataclasses.replace(lab, containerd=away)
        first = remote.ensure()
        remote.change_code("print(2)\n")
        second = remote.ensure()
        assert first.imported_bytes > DEPS_BYTES
        assert 0 < second.imported_bytes < 20_000
        assert problems(remote.plan(), away) == []
    assert server.logins() == before + 1
    assert transfers() == []


# This program stands between sshd and every command. It cuts the connection once the node has half
# of a part.
WRAPPER = """\
#!/bin/sh
echo "$PPID" >{folder}/connection
set -- "$SSH_ORIGINAL_COMMAND"
{read_text}case $(cat {folder}/cut-at 2>/dev/null),$text in
  part,*"cat > 00003-"*)
    head -c 400000 | sh -c "$SSH_ORIGINAL_COMMAND"
    kill -KILL "$PPID"
    ;;
esac
exec sh -c "$SSH_ORIGINAL_COMMAND"
"""

# The node's ctr. The import that is to be cut ends together with its connection: either before ctr
# has read the first blob, or once containerd has half of the large layer.
CTR = """\
#!/bin/sh
cut_at=$(cat {folder}/cut-at 2>/dev/null)
case $cut_at,$* in
  import,*"images import"* | layer,*"images import"*)
    mkfifo {folder}/beginning
    ctr "$@" <{folder}/beginning &
    exec 3>{folder}/beginning
    if [ "$cut_at" = layer ]; then
      head -c 3000000 >&3
      for _ in $(seq 600); do
        begun=$(ctr --address {address} --namespace k8s.io content active | wc -l)
        [ "$begun" -lt 2 ] || break # a heading, and a line for each blob on its way in
        sleep 0.1
      done
    fi
    kill -KILL "$!" "$(cat {folder}/connection)"
    exit 1
    ;;
esac
exec ctr "$@"
"""


@dataclasses.dataclass
class CutLine:
    """A lab at the other end of an SSH connection, which is cut at the place that the file `cut-at`
    names.
    """

    lab: Lab
    folder: Path

    def attempt(self, server: Sshd) -> None:
        """Import the image over a new connection."""
        with open_node(node_text(server)) as node:
            ctr = [str(self.folder / "ctr")]
            away = dataclasses.replace(
                self.lab.containerd, ctr=ctr, node=node, part_bytes=PART_BYTES
            )
            remote = dataclasses.replace(self.lab, containerd=away)
            remote.ensure()
            assert problems(remote.plan(), away) == []

    def cut_and_mend(self, cut_at: str) -> None:
        """Import the image twice: the first connection is cut, and the second is not."""
        (self.folder / "cut-at").write_text(cut_at)
        with sshd(self.folder, self.folder / "wrapper") as server:
            with pytest.raises(ContainerdError, match="the connection broke"):
                self.attempt(server)
            assert not self.lab.containerd.images()
            (self.folder / "cut-at").unlink()
            self.attempt(server)


@pytest.fixture
def cut_line(lab: Lab, tmp_path: Path) -> CutLine:
    """Return a lab whose connection can be cut, with the programs that cut it."""
    folder = tmp_path / "line"
    folder.mkdir()
    for name, text in (("wrapper", WRAPPER), ("ctr", CTR)):
        places = {"folder": folder, "address": lab.containerd.address}
        (folder / name).write_text(text.format(read_text=READ_TEXT, **places))
        (folder / name).chmod(0o755)
    return CutLine(lab, folder)


@pytest.mark.parametrize(("cut_at", "kept"), [("part", 3), ("import", 6), ("layer", 6)])
def test_a_connection_that_is_cut_costs_what_was_under_way(
    cut_line: CutLine, transfers: Callable[[], list[Path]], cut_at: str, kept: int
) -> None:
    """After a cut, the second attempt sends only the parts that have not arrived. This holds also
    if containerd has already taken the manifest and half of the large layer.
    """
    cut_line.cut_and_mend(cut_at)
    said = "\n".join(cut_line.lab.said)
    assert f"in 6 parts, {kept} of them were there from an earlier attempt" in said
    assert transfers() == []


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
    """With `imageBuildOn: node` a real buildah builds the image on the node, and nothing of the
    dependencies is sent. Passwords of the package index and the proxy reach the build and are not
    in the image. The base has no torch, and the node is this machine.
    """
    ensure_base_image()
    (lab.project / "docker/Dockerfile").write_text(DOCKERFILE)
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:sekret@index.example/simple")
    monkeypatch.setenv("HTTPS_PROXY", "http://me:sekret@proxy.example:3128")
    plan = plan_image(lab.project, REPOSITORY, BASE_IMAGE, "https://torch.example/cu118")
    (tmp_path / "node").mkdir()
    monkeypatch.setattr("infra.image.node_build.FOLDER", f"{tmp_path}/node/build-")
    with open_node(node_text(server)) as node:
        away = dataclasses.replace(lab.containerd, node=node)
        cache = tmp_path / "unused"
        made = ensure(plan, away, Sources(lab.project, cache, "buildah", "node"), lab.said.append)
        assert made.built
        assert 0 < made.imported_bytes < 20_000
        assert problems(plan, away) == []
    assert not [path for path in cache.rglob("*") if path.suffix != ".lock" and path.is_file()]
    assert list((tmp_path / "node").iterdir()) == []
    for path, text in (("requirements", "torch"), ("index", "https://torch.example/cu118")):
        assert text in lab.file_in_image(made.image, path, tmp_path / path)[0]
    image = lab.containerd.complete_image(made.image)
    assert image
    assert "sekret" not in image.config.read().decode() + image.manifest.read().decode()


def test_a_build_that_fails_at_the_node_says_why(
    lab: Lab, server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build that fails on the node repeats the builder's reason, and leaves no folder on
    the node.
    """
    (tmp_path / "node").mkdir()
    monkeypatch.setattr("infra.image.node_build.FOLDER", f"{tmp_path}/node/build-")
    (lab.project / "docker/Dockerfile").write_text("FROM scratch AS deps\nCOPY absent /\n")
    plan = plan_image(lab.project, REPOSITORY, "scratch", None)
    with open_node(node_text(server)) as node:
        away = dataclasses.replace(lab.containerd, node=node)
        sources = Sources(lab.project, tmp_path, "buildah", "node")
        with pytest.raises(NodeError, match=r"(?s)at the node: .*absent"):
            ensure(plan, away, sources, lab.said.append)
    assert list((tmp_path / "node").iterdir()) == []


def test_another_host_key_stops_it(lab: Lab, server: Sshd, tmp_path: Path) -> None:
    """A node whose host key is not the pinned one is not asked."""
    other = make_key(tmp_path / "other")
    with open_node(node_text(server, host_key=other)) as node:
        elsewhere = dataclasses.replace(lab.containerd, node=node)
        with pytest.raises(ContainerdError, match="Host key verification failed"):
            elsewhere.images()


def test_the_command_line_takes_the_node_from_its_environment(lab: Lab, server: Sshd) -> None:
    """`python -m infra.image` finds its node in the environment, and does not print the
    private key.
    """
    words = ["check", "--repository", REPOSITORY, "--address", str(lab.containerd.address)]
    before = server.logins()
    done = subprocess.run(
        [sys.executable, "-m", "infra.image", *words],
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
    """A user who is not root runs commands by sudo, which gets the password, and the command gets
    the rest of the input. The password is in no argument. Stand-ins take the place of sudo and of
    the user.
    """
    scripts = {
        "id": "echo 1000",
        "sudo": '[ "$1" = -A ] && [ "$("$SUDO_ASKPASS")" = "pass word" ] || exit 1\n'
        'shift; exec "$@"',
    }
    for name, text in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    with open_node(json.dumps({"ssh": None, "sudo_password": "pass word"})) as node:
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
    assert after_begin_line(done.stdout) == b"archive"
