"""A build on the node: what is sent there, how, and what is left there. The programs of the node
are stand-ins.

tests/sandbox/test_image_over_ssh.py does the same with a real sshd, buildah and containerd.
"""

import io
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.image.build_context import PROXY_VARIABLES, Build
from infra.image.builders import BUILDERS
from infra.image.node import Node, NodeError
from infra.image.node_build import FOLDER, build_at, choose_builder_at, named_index
from tests.shell_text import READ_TEXT
from tests.unit.image.layouts import tiny_image, write_layout

NAME = "localhost/a/b-deps:1"
BUILD = Build(NAME, "base:1", None, "linux/amd64")
# A stand-in for ssh. It notes the shell text, as a list of processes on either side would show it.
SHELL = """#!/bin/sh
{read_text}
printf "%s\\n" "$1" "$text" >>{folder}/texts
exec sh -c "$1"
"""
BUILDER = """#!/bin/sh
[ "$1" != info ] || exit 0
[ "$1" != save ] || {{ echo "archive of $2"; exit; }}
printf '%s\\n' "$0" "$@" >>{folder}/arguments
printenv HTTPS_PROXY >{folder}/proxy
for option; do
    case $option in
        --secret=*) cat "${{option##*src=}}" >>{folder}/secrets ;;
        oci:*) cp -r {folder}/built "${{option#oci:}}" ;;
    esac
done
cd "$option" && find . -type f | sort >{folder}/context
{ending}
"""


@dataclass
class Lab:
    """A node whose programs note what they are given."""

    folder: Path
    project: Path
    node: Node
    ctr: str

    def program(self, name: str, text: str) -> str:
        """Write a program of the node; return its path."""
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    def builder(self, name: str, ending: str = "") -> None:
        """Write a stand-in for a builder, whose script ends with `ending`."""
        self.program(name, BUILDER.format(folder=self.folder, ending=ending))

    def build(self, builder: str) -> None:
        """Build the image on the node with this builder."""
        build_at(self.node, builder, BUILD, self.project, [self.ctr])

    def read(self, name: str) -> str:
        """Return what a program has noted in the file `name`."""
        return (self.folder / name).read_text()


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Return a node with stand-ins for its programs. This machine has a proxy and a package index
    with a password.
    """
    for name in ("docker/Dockerfile", "trainer/requirements.txt", "trainer/a.py"):
        (tmp_path / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / name).write_text(name)
    (tmp_path / "bin").mkdir()
    made = Lab(tmp_path, tmp_path / "project", Node([], remote=True), "")
    made.program("id", "#!/bin/sh\necho 0\n")
    made.ctr = made.program("ctr", f"#!/bin/sh\ncat >{tmp_path}/imported\n")
    shell = made.program("shell", SHELL.format(folder=tmp_path, read_text=READ_TEXT))
    made.node = Node([shell], remote=True)
    write_layout(tmp_path / "built", tiny_image())
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    for name in (*PROXY_VARIABLES, "PIP_CERT", "SSL_CERT_FILE", "PIP_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://me:sek'ret@proxy:3128")
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:sek'ret@index/simple")
    return made


def test_the_context_alone_goes_there_and_what_is_secret_is_on_no_command_line(lab: Lab) -> None:
    """Only the files of the build are sent to the node, passwords are on no command line of either
    machine, and the folder of the build is removed afterwards.
    """
    lab.builder("buildah")
    lab.build("buildah")
    assert lab.read("context").split() == ["./docker/Dockerfile", "./trainer/requirements.txt"]
    assert lab.read("proxy") == "http://me:sek'ret@proxy:3128\n"
    assert "ret@index/simple" in lab.read("secrets")
    assert "--build-arg=HTTPS_PROXY\n" in lab.read("arguments")
    assert "--build-arg=BASE_IMAGE=base:1\n" in lab.read("arguments")
    for shown in ("texts", "arguments"):
        assert "ret@" not in lab.read(shown)
    assert FOLDER in lab.read("arguments")
    assert not Path(folder_of(lab)).exists()


def folder_of(lab: Lab) -> str:
    """Return the folder on the node in which the build ran."""
    return next(w for w in lab.read("arguments").split() if w.startswith(FOLDER)).partition("/c")[0]


def test_containerd_gets_the_layout_under_the_full_name(lab: Lab) -> None:
    """The node's containerd gets exactly the image that was built, under its full name."""
    lab.builder("buildah")
    lab.build("buildah")
    with tarfile.open(fileobj=io.BytesIO((lab.folder / "imported").read_bytes())) as tar:
        content = tar.extractfile("index.json")
        assert content
        (entry,) = json.loads(content.read())["manifests"]
        blobs = {Path(name).name for name in tar.getnames() if name.startswith("blobs/sha256/")}
    assert entry["annotations"] == {"io.containerd.image.name": NAME}
    assert entry["digest"] == tiny_image().manifest.digest
    assert blobs == {part.digest[7:] for part in tiny_image().blobs}


def test_greeting_of_a_shell_harms_no_build(lab: Lab) -> None:
    """A build succeeds although the node's shell prints a greeting before each command, as a
    `.bashrc` may. Its lines are not taken for answers of the node.
    """
    greets = 'echo Welcome; exec "$0" "$1"'
    lab.node = Node(["sh", "-c", greets, *lab.node.shell], remote=True)
    lab.builder("buildah")
    assert choose_builder_at(lab.node, "buildah") == "buildah"
    lab.build("buildah")
    assert not Path(folder_of(lab)).exists()


def test_a_name_that_the_builder_gave_is_replaced() -> None:
    """Names that the builder gave the image are replaced by the planned name."""
    given = {"digest": "d", "annotations": {"org.opencontainers.image.ref.name": "x"}}
    (entry,) = json.loads(named_index(json.dumps({"manifests": [given]}), NAME))["manifests"]
    assert entry == {"digest": "d", "annotations": {"io.containerd.image.name": NAME}}


@pytest.mark.parametrize("builder", ["docker", "podman"])
def test_docker_and_podman_hand_over_what_they_save(lab: Lab, builder: str) -> None:
    """containerd gets the archive that `docker save` or `podman save` writes."""
    lab.builder(builder)
    lab.build(builder)
    assert lab.read("imported") == f"archive of {NAME}\n"
    assert f"--tag\n{NAME}\n" in lab.read("arguments")


def test_a_failed_build_shows_the_builders_last_lines_and_leaves_nothing(lab: Lab) -> None:
    lab.builder("buildah", "echo no such package >&2; exit 3")
    with pytest.raises(NodeError, match="at the node: no such package"):
        lab.build("buildah")
    assert not Path(folder_of(lab)).exists()
    assert not (lab.folder / "imported").exists()


def test_the_first_builder_that_works_there_is_taken(lab: Lab) -> None:
    """With `auto`, the first builder is chosen that works on the node; a builder that is named is
    used.
    """
    lab.program("docker", "#!/bin/sh\nexit 1\n")
    lab.builder("podman")
    lab.builder("buildah")
    assert choose_builder_at(lab.node, "auto") == "podman"
    assert choose_builder_at(lab.node, "buildah") == "buildah"


def test_a_node_without_builder_is_told_all_three_and_the_other_way(lab: Lab) -> None:
    """If no builder works on the node, the error names the three that were tried and the setting
    for a build on this machine.
    """
    for name in BUILDERS:
        lab.program(name, "#!/bin/sh\nexit 1\n")
    with pytest.raises(ValueError, match="no builder works on the node") as raised:
        choose_builder_at(lab.node, "auto")
    for part in ("`docker info`", "`podman info`", "`buildah info`", "set imageBuildOn: here"):
        assert part in str(raised.value)


def test_a_node_that_cannot_be_reached_is_not_one_without_builder() -> None:
    """If the node cannot be reached, the error says so. It does not say that no builder works
    there.
    """
    away = Node(["sh", "-c", "echo no route >&2; exit 255"], remote=True)
    with pytest.raises(NodeError, match="no route"):
        choose_builder_at(away, "auto")
