"""The input of the command that imports an image, which makes `pulumi up` import it again if it is
gone.
"""

from pathlib import Path

import pytest

from infra.image.containerd import REQUEST_LABEL, Containerd
from infra.image.plan import ImagePlan
from infra.image.presence import FOLDER, forget, import_request

PLAN = ImagePlan("localhost/a/b", "base:1", None, "deps", "code", b"")


class Node:
    """A node whose `ctr` is a stand-in."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "ctr"
        self.cache = folder / "cache"
        self.containerd = Containerd([str(self.program)])

    def shows(self, text: str) -> None:
        """Let `ctr` run this shell text."""
        self.program.write_text(f"#!/bin/sh\n{text}\n")
        self.program.chmod(0o755)

    def has_the_image(self, request: str) -> None:
        """Let the node have the image, imported with this request."""
        name = PLAN.reference
        labels = f"a=b,{REQUEST_LABEL}={request}"
        self.shows(
            f'case "$*" in *check*) echo "{name} type sha256:1 complete (2/2)" ;;\n'
            f'*) echo "{name} type sha256:1 5 MiB linux/amd64 {labels}" ;; esac'
        )

    def request(self) -> str:
        """Return the request, which is the input of the command."""
        return import_request(PLAN, self.containerd, self.cache, "gpu01")

    def kept(self) -> list[Path]:
        """Return the files of requests that are kept in the cache."""
        return list((self.cache / FOLDER).iterdir())


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize("answer", ["exit 1", "echo REF TYPE DIGEST STATUS"])
def test_preview_and_update_have_the_same_request(node: Node, answer: str) -> None:
    """A preview and the `up` after it have the same request. Otherwise a saved plan could not be
    used.
    """
    node.shows(answer)
    first = node.request()
    assert first
    assert node.request() == first


def test_an_image_that_is_there_has_the_request_of_its_import(node: Node) -> None:
    """An image that is there has the request with which it was imported, so that `up` does
    nothing. The file of a request from a time when the image was missed is removed.
    """
    node.shows("exit 1")
    node.request()
    assert len(node.kept()) == 1
    node.has_the_image("before")
    assert node.request() == "before"
    assert node.kept() == []


def test_an_image_that_goes_again_has_another_request(node: Node) -> None:
    """If the image goes a second time, the request is another one than the first time. The state
    contains the first one, so the same request would import nothing.
    """
    node.shows("exit 1")
    first = node.request()
    forget(node.cache, first)  # as `ensure` does when the image is there
    assert node.request() != first


def test_an_image_that_was_seen_again_has_another_request_when_it_goes(node: Node) -> None:
    """If another machine has imported the image meanwhile, and the image goes again, the request is
    a new one.
    """
    node.shows("exit 1")
    first = node.request()
    node.has_the_image("elsewhere")
    assert node.request() == "elsewhere"
    node.shows("exit 1")
    assert node.request() not in (first, "elsewhere")


def test_nodes_have_requests_of_their_own(node: Node) -> None:
    """Two nodes that lack the same image have different requests."""
    node.shows("exit 1")
    other = import_request(PLAN, node.containerd, node.cache, "gpu02")
    assert node.request() != other


def test_without_a_cache_there_is_a_request_all_the_same(node: Node, tmp_path: Path) -> None:
    """There is a request even if the cache cannot be written."""
    node.shows("exit 1")
    node.cache = tmp_path / "ctr"  # a file
    assert node.request()


def test_request_that_another_nodes_command_removes_is_no_fault(node: Node) -> None:
    """Files of requests that another command removes at the same time are skipped. The commands of
    several nodes run side by side, and each of them looks through all requests.
    """
    node.shows("exit 1")
    request = node.request()
    (file,) = node.kept()
    for place in ("0", "zz"):  # one is listed before `file`, one after it
        (file.parent / place).symlink_to(file.parent / "removed")
    forget(node.cache, request)
    assert not file.exists()
