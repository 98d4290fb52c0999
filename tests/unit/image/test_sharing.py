"""What containerd is told about an image that other nodes are to get. tests/sandbox asks a real
one.
"""

from infra.image.sharing import by_digest, labels, sources
from tests.unit.image.layouts import tiny_image

LABEL = "containerd.io/distribution.source.registry.example"
LISTING = f"""\
DIGEST\tSIZE\tAGE\tLABELS
sha256:a\t1.2 kB\t3 days\t{LABEL}=team/a,team/b,containerd.io/uncompressed=sha256:f
sha256:b\t12 B\t3 days\t{LABEL}.org=other,{LABEL}=team/c
sha256:c\t12 B\t3 days\t-
"""


def test_paths_that_others_have_noted_for_a_registry_are_found() -> None:
    """The paths that are noted in containerd's labels are found, for one registry alone. The value
    of a label may contain commas.
    """
    found = {"sha256:a": ["team/a", "team/b"], "sha256:b": ["team/c"]}
    assert sources(LISTING, "registry.example") == found
    assert sources(LISTING, "elsewhere.example") == {}


def test_each_blob_is_labelled_and_what_others_noted_stays() -> None:
    """Each blob of the image gets a label with the path, and paths that others have noted stay in
    it.
    """
    image = tiny_image()
    layer = image.layers[0].digest
    given = dict(labels(image, "team/new", {layer: ["team/old"]}))
    assert set(given) == {blob.digest for blob in image.blobs}
    assert given[layer] == "team/old,team/new"
    assert given[image.manifest.digest] == "team/new"
    assert dict(labels(image, "team/old", {layer: ["team/old"]}))[layer] == "team/old"


def test_name_by_digest_has_no_tag() -> None:
    assert by_digest("a.example/b", "sha256:1") == "a.example/b@sha256:1"
