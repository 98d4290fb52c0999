"""Which tags of the repository can be removed from a node. tests/sandbox/test_image_prune.py asks a
real containerd.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from infra.image.plan import ImagePlan
from infra.image.prune import ENSURED_LABEL, unused_tags

REPOSITORY = "localhost:5000/disttrain/trainer"
PLAN = ImagePlan(REPOSITORY, "base:1", None, "d2", "c2", b"")
LIMIT = datetime(2026, 1, 2, tzinfo=UTC)
OURS = {
    f"{REPOSITORY}:d2-c2": "sha256:22",
    f"{REPOSITORY}-deps:d2": "sha256:2",
    f"{REPOSITORY}:d2-c1": "sha256:21",
    f"{REPOSITORY}:d1-c1": "sha256:11",
    f"{REPOSITORY}-deps:d1": "sha256:1",
}


def unused(
    images: Mapping[str, str],
    containers: frozenset[str] = frozenset(),
    labels: Mapping[str, Mapping[str, str]] | None = None,
) -> list[str]:
    """Return the tags that can be removed if these images, containers and labels are on the
    node.
    """
    return unused_tags(PLAN, images, containers, labels or {}, LIMIT)


def test_older_tags_that_no_container_uses_can_go() -> None:
    """Tags that are not of the present plan and that no container uses can be removed. Otherwise
    old images would stay pinned on the node for ever.
    """
    assert unused(OURS) == [
        f"{REPOSITORY}-deps:d1",
        f"{REPOSITORY}:d1-c1",
        f"{REPOSITORY}:d2-c1",
    ]


@pytest.mark.parametrize("name", [f"{REPOSITORY}:d1-c1", "sha256:config"])
def test_a_used_image_stays_with_its_dependencies(name: str) -> None:
    """An image that a container uses stays, with the image of its dependencies. Containers name it
    by a tag, or by the second name that the CRI plugin gives it.
    """
    images = {**OURS, "sha256:config": "sha256:11"}
    assert unused(images, frozenset({name})) == [f"{REPOSITORY}:d2-c1"]


def test_name_by_digest_stays_and_goes_with_its_tag() -> None:
    """The name of an image by its digest, under which other nodes get it, is removed when the tag
    of this image is removed, and not before.
    """
    wanted, old = (f"{REPOSITORY}@sha256:{digest}" for digest in ("22", "11"))
    images = {**OURS, wanted: "sha256:22", old: "sha256:11"}
    assert wanted not in unused(images)
    assert old in unused(images)
    assert old not in unused(images, frozenset({f"{REPOSITORY}:d1-c1"}))
    of_tag = {"disttrain.dev/wanted-in.trains": "yes", ENSURED_LABEL: "20300101T000000Z"}
    assert old in unused(images, labels={old: of_tag})  # the time was copied from the tag


@pytest.mark.parametrize(
    "name",
    [
        "localhost:5000/disttrain/trainer-other:d1-c1",
        "localhost:5000/disttrain/trainer/sub:d1-c1",
        "localhost/disttrain/trainer:d1-c1",
        "localhost:5000/disttrain/trainer-deps-of-somebody:d1",
        "registry.k8s.io/pause:3.9",
        "sha256:11",
    ],
)
def test_images_of_other_repositories_are_never_removed(name: str) -> None:
    assert unused({name: "sha256:11"}) == []


def test_a_tag_that_was_just_asked_for_stays() -> None:
    """A tag that was asked for after the limit stays, because another `pulumi up` may have imported
    it and not yet started its pods.
    """

    def asked_for(minutes_after: int) -> dict[str, dict[str, str]]:
        at = (LIMIT + timedelta(minutes=minutes_after)).strftime("%Y%m%dT%H%M%SZ")
        return {f"{REPOSITORY}:d1-c1": {ENSURED_LABEL: at}}

    assert unused(OURS, labels=asked_for(1)) == [f"{REPOSITORY}:d2-c1"]
    assert len(unused(OURS, labels=asked_for(-1))) == 3
