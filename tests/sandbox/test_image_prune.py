"""Older tags of the image are removed from a real containerd, unless somebody needs them."""

from infra.image.transfer import import_images
from tests.sandbox.image_lab import Lab, wait_for
from tests.unit.image.layouts import tiny_image


def tags(lab: Lab) -> set[str]:
    """Return the names of all images, without the second names that the CRI plugin gives."""
    return {name for name in lab.containerd.images() if not name.startswith("sha256:")}


def test_older_tags_go_and_used_ones_stay(lab: Lab) -> None:
    """Older tags that no container uses are removed after some time, and other repositories are
    left alone. Otherwise each change of the code would leave a pinned image on the node for ever.
    """
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
    """An older tag stays while the platform of another namespace wants it, even without pods.
    Otherwise newer code of one platform would remove the image of another one on the same node.
    """
    theirs = lab.ensure(namespace="theirs").image
    lab.change_code("print(2)\n")
    ours = lab.ensure(namespace="ours", keep_unused_minutes=0).image
    assert {theirs, ours} <= tags(lab)
    lab.ensure(namespace="theirs", keep_unused_minutes=0)
    assert tags(lab) == {ours, lab.plan().deps_reference}, "nobody wants the older one any more"


def test_older_tags_stay_while_pods_on_other_nodes_name_them(lab: Lab) -> None:
    """An older tag stays on a node without containers while a pod of the platform names it, also if
    it is not known what the pods name. Otherwise a run that goes on with this image could not move
    to this node.
    """
    older = lab.ensure(namespace="ours").image
    lab.change_code("print(2)\n")
    newer = lab.plan().reference

    def tags_after(named: set[str] | None) -> set[str]:
        lab.ensure(namespace="ours", keep_unused_minutes=0, images_of_pods=lambda: named)
        return tags(lab)

    assert {older, newer} <= tags_after(None)
    assert {older, newer} <= tags_after({older})
    assert tags_after({newer}) == {newer, lab.plan().deps_reference}


def test_a_name_that_somebody_gave_an_image_of_ours_stays(lab: Lab) -> None:
    """If an image is removed, another name that somebody gave it stays, and so does the CRI
    plugin's second name, by which the kubelet finds it.
    """
    first = lab.ensure()
    wait_for("the CRI plugin", lambda: lab.cri_knows(first.digest))
    lab.ctr("images", "tag", first.image, "localhost/kept:1")
    lab.change_code("print(2)\n")
    lab.ensure(keep_unused_minutes=0)
    assert first.image not in lab.containerd.images()
    assert lab.containerd.complete_image("localhost/kept:1")
    assert lab.cri_knows(first.digest)
