"""What a real containerd is told of an image that other nodes may fetch, and what is left of it.

tests/node/test_mirror.py lets other hosts fetch it.
"""

from infra.image.sharing import SOURCE_LABEL, share, sources
from tests.sandbox.image_command import run_command
from tests.sandbox.image_lab import Lab

REPOSITORY = "images.disttrain.internal/team/trainer"
HOST = "images.disttrain.internal"


def named(lab: Lab) -> list[str]:
    """Return the names of all images, sorted, without the second names that the CRI plugin
    gives.
    """
    return sorted(name for name in lab.containerd.images() if not name.startswith("sha256:"))


def test_shared_image_has_a_name_by_digest_and_every_blob_its_source(lab: Lab) -> None:
    """A shared image gets a name by its digest, and each of its blobs the note of its repository.
    Notes of others stay, and sharing again changes nothing.
    """
    done = lab.ensure(REPOSITORY)
    plan = lab.plan(REPOSITORY)
    layer = lab.deps.layers[0].digest
    lab.ctr("content", "label", layer, f"{SOURCE_LABEL}{HOST}=other/image")
    for _ in range(2):
        share(lab.containerd, plan)
        found = sources(lab.ctr("content", "ls"), HOST)
        image = lab.containerd.complete_image(done.image)
        assert image
        assert {blob.digest for blob in image.blobs} == set(found)
        assert found[layer] == ["other/image", "team/trainer"]
        assert found[done.digest] == ["team/trainer"]
        assert lab.containerd.images()[f"{REPOSITORY}@{done.digest}"] == done.digest


def test_older_image_goes_with_its_name_by_digest(lab: Lab) -> None:
    """An older image that was shared is removed with its name by digest, though that name still has
    the label of the platform.
    """
    old = lab.ensure(REPOSITORY, namespace="trains")
    share(lab.containerd, lab.plan(REPOSITORY))
    lab.change_code("print(2)\n")
    new = lab.ensure(REPOSITORY, namespace="trains", keep_unused_minutes=0)
    share(lab.containerd, lab.plan(REPOSITORY))
    lab.ensure(REPOSITORY, namespace="trains", keep_unused_minutes=0)
    assert old.digest not in lab.containerd.images().values()
    tags = [new.image, f"{REPOSITORY}@{new.digest}", lab.plan(REPOSITORY).deps_reference]
    assert named(lab) == sorted(tags)


def test_removal_takes_the_name_by_digest_and_all_bytes(lab: Lab) -> None:
    """`remove` removes a shared image with its name by digest and all its content, and leaves all
    of it while the platform of another namespace wants it.
    """
    lab.ensure(REPOSITORY, namespace="ours")
    lab.ensure(REPOSITORY, namespace="theirs")
    plan = lab.plan(REPOSITORY)
    share(lab.containerd, plan)
    address = ("--address", str(lab.containerd.address))
    references = ("--reference", plan.reference, "--reference", plan.deps_reference)
    words = ("remove", "--repository", REPOSITORY, *address, *references)
    assert run_command(*words, "--pods-of", "ours") == {"removed": 0}
    assert len(named(lab)) == 3
    assert run_command(*words, "--pods-of", "theirs")["removed"] >= 3
    assert lab.empty()
