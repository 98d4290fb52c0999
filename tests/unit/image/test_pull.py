"""How a node gets the image from other nodes: it tries again up to a limit, and checks what it
gets. `ctr` is a stand-in.

tests/node/test_mirror.py does it with real containerds.
"""

from pathlib import Path

import pytest

from infra.image import pull as module
from infra.image import transfer
from infra.image.__main__ import main
from infra.image.containerd import Containerd, ContainerdError
from infra.image.oci import Image
from infra.image.plan import ImagePlan
from infra.image.platforms import this_machine
from infra.image.pull import Pull, pull
from tests.unit.image.layouts import tiny_image

PLAN = ImagePlan("images.example/trainer", "base:1", None, "d", "c", b"")
IMAGE = tiny_image()
DIGEST = IMAGE.manifest.digest

# It has the image if the file `has` exists, which has the digest of the manifest.
CTR = """#!/bin/sh
folder=$(dirname "$0")
shift 2
echo "$*" >>"$folder/calls"
case "$*" in
  "images check"*) echo REF TYPE DIGEST STATUS SIZE UNPACKED
    [ ! -e "$folder/has" ] || echo NAME TYPE $(cat "$folder/has") complete 1 true ;;
  "images ls"*) echo REF TYPE DIGEST SIZE UNIT PLATFORMS LABELS ;;
  "content ls"*) echo DIGEST SIZE AGE LABELS ;;
  "content get"*) cat "$folder/$3" ;;
  "plugins ls"*) echo io.containerd.runtime.v2 task PLATFORM ok ;;
esac
"""
PULLER = """#!/bin/sh
folder=$(dirname "$0")
echo "$1" >>"$folder/pulls"
[ "$(wc -l <"$folder/pulls")" -gt "$(cat "$folder/failures")" ] || { echo "not found" >&2; exit 1; }
cp "$folder/gives" "$folder/has"
"""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with stand-ins for `ctr` and for the program that pulls, without pauses."""
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(Containerd, "platform", lambda _: this_machine())
    for name, text in (("ctr", CTR), ("puller", PULLER)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "failures").write_text("0")
    give(tmp_path, IMAGE)
    return tmp_path


def give(node: Path, image: Image) -> None:
    """Let a pull bring this image."""
    (node / "gives").write_text(image.manifest.digest)
    for part in (image.manifest, image.config):
        (node / part.digest).write_bytes(part.read())


def got(node: Path, seconds: float = 60) -> module.Pulled:
    """Let the node get the image, for at most `seconds`; return the result."""
    containerd = Containerd([str(node / "ctr")])
    how = Pull([str(node / "puller")], DIGEST, seconds)
    return pull(PLAN, containerd, how, node, lambda _: None)


def calls(node: Path) -> list[str]:
    """Return the calls of `ctr`."""
    return (node / "calls").read_text().splitlines()


def test_image_is_pulled_by_its_digest_until_a_node_gives_it(node: Path) -> None:
    """The image is pulled by its digest, again and again until it succeeds, and then gets its
    tag.
    """
    (node / "failures").write_text("3")
    assert got(node) == module.Pulled(PLAN.reference, DIGEST, pulled=True)
    assert (node / "pulls").read_text().splitlines() == [f"images.example/trainer@{DIGEST}"] * 4
    made = f"images tag --force images.example/trainer@{DIGEST} {PLAN.reference}"
    assert made in calls(node)


def test_node_that_has_it_pulls_nothing_and_offers_it_to_others(node: Path) -> None:
    """A node that has the image pulls nothing and makes it available to others. Its blobs get their
    labels before the image gets its name by digest, because the registry looks for the labels of
    this name.
    """
    (node / "has").write_text(DIGEST)
    assert got(node).pulled is False
    assert not (node / "pulls").exists()
    shared = [call for call in calls(node) if call.startswith(("content label", "images tag"))]
    assert shared[-1] == f"images tag --force {PLAN.reference} images.example/trainer@{DIGEST}"
    label = "containerd.io/distribution.source.images.example=trainer"
    assert shared[:-1] == [f"content label {part.digest} {label}" for part in IMAGE.blobs]


def test_limit_ends_the_tries_with_the_nodes_own_words(node: Path) -> None:
    """After the limit, the tries end with the error of the last pull and with the ports that nodes
    need.
    """
    (node / "failures").write_text("1000000")
    with pytest.raises(
        ContainerdError,
        match=r"puller images\.example/trainer@sha256:\w+: not fou"
        r"nd\nNo other node has given the image within 0\.2 s.*5001 and 6443",
    ):
        got(node, 0.2)


def test_pull_that_hangs_is_ended(node: Path) -> None:
    """A pull that does not end is stopped at the limit."""
    (node / "puller").write_text("#!/bin/sh\nexec sleep 600\n")
    with pytest.raises(ContainerdError, match=r"no answer in 1 s"):
        got(node, 0.5)


def test_another_content_under_the_name_does_not_count(node: Path) -> None:
    """An image with another digest is refused, even if it has the right name."""
    other = tiny_image(b"other")
    give(node, other)
    with pytest.raises(
        ContainerdError, match=f"does not hold {PLAN.reference} with digest {DIGEST}"
    ):
        got(node)
    (node / "has").unlink()
    give(node, IMAGE)
    assert got(node).pulled


def test_image_for_another_processor_is_refused(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Containerd, "platform", lambda _: "linux/riscv64")
    with pytest.raises(ValueError, match=r"is for linux/\w+, but the node runs linux/riscv64"):
        got(node)


def test_digest_that_was_not_given_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command says what is missing if it was not given the digest."""
    monkeypatch.delenv("IMAGE_DIGEST", raising=False)
    assert main(["pull", "--repository", "images.example/trainer"]) == 1
    assert "image: IMAGE_DIGEST is not set: give it the digest that" in capsys.readouterr().out


def test_containerd_that_restarts_meanwhile_is_awaited(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node gets the image although containerd restarts between two commands. On a machine with
    GPUs the GPU Operator's toolkit restarts it while the image is delivered.
    """
    monkeypatch.setattr(transfer, "RESTART_PAUSE_SECONDS", 0.01)
    away = '[ "$(wc -l <"$folder/calls")" -gt 6 ] || [ "$(wc -l <"$folder/calls")" -lt 3 ]'
    refused = "echo 'ctr: transport: Error while dialing: connection refused' >&2; exit 1"
    (node / "ctr").write_text(CTR.replace("case", f"{away} || {{ {refused}; }}\ncase", 1))
    assert got(node).pulled
