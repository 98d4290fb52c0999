"""Older tags on a node: removed from a real containerd, unless a container uses them."""

from infra.image.transfer import import_images
from tests.sandbox.image_lab import Lab, wait_for
from tests.unit.image.layouts import tiny_image


def tags(lab: Lab) -> set[str]:
    return {name for name in lab.containerd.images() if not name.startswith("sha256:")}


def test_older_tags_go_and_used_ones_stay(lab: Lab) -> None:
    """Fault 13 of the review: each change of the code left a pinned tag on the node for ever."""
    other = "localhost/other/trainer:1"
    import_images(lab.containerd, {other: tiny_image(b"somebody else's")}, print)
    unused = lab.ensure().image
    lab.change_code("print(2)\n")
    used = lab.ensure().image
    assert {unused, used} <= tags(lab), "both were asked for just now"
    lab.ctr("containers", "create", used, "trainer")
    try:
        lab.change_code("print(3)\n")
        wanted = lab.ensure(keep_unused_minutes=0).image
        assert tags(lab) == {other, used, wanted, lab.plan().deps_reference}
    finally:
        lab.ctr("containers", "rm", "trainer")
    lab.ensure(keep_unused_minutes=0)
    assert tags(lab) == {other, wanted, lab.plan().deps_reference}


def test_older_tags_stay_while_the_platform_of_another_namespace_wants_them(lab: Lab) -> None:
    """A platform without pods lost its image to the newer code of a second one on the node."""
    theirs = lab.ensure(namespace="theirs").image
    lab.change_code("print(2)\n")
    ours = lab.ensure(namespace="ours", keep_unused_minutes=0).image
    assert {theirs, ours} <= tags(lab)
    lab.ensure(namespace="theirs", keep_unused_minutes=0)
    assert tags(lab) == {ours, lab.plan().deps_reference}, "nobody wants the older one any more"


def test_a_name_that_somebody_gave_an_image_of_ours_stays(lab: Lab) -> None:
    """Also the second name, by which the kubelet's side finds it."""
    first = lab.ensure()
    wait_for("the CRI plugin", lambda: lab.cri_knows(first.digest))
    lab.ctr("images", "tag", first.image, "localhost/kept:1")
    lab.change_code("print(2)\n")
    lab.ensure(keep_unused_minutes=0)
    assert first.image not in lab.containerd.images()
    assert lab.containerd.complete_image("localhost/kept:1")
    assert lab.cri_knows(first.digest)
