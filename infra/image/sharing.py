"""Marks an image in containerd, so that k3s' embedded registry gives it to other nodes.

The embedded registry (Spegel) needs a name by digest, and a label on each blob with the registry
that it came from. `ctr images import` makes neither. Without them Spegel offers the tag but none of
its layers (k3s#13222, spegel#1096). A pull by the kubelet makes both, and here commands make them.
The labels are set first, because Spegel looks for them as soon as the name by digest exists
(k3s#13794).
"""

import shlex
from collections.abc import Iterable

from infra.image.containerd import Containerd
from infra.image.oci import Image
from infra.image.plan import ImagePlan

# containerd's own label: https://github.com/containerd/containerd/blob/v2.0.0/pkg/labels/labels.go
SOURCE_LABEL = "containerd.io/distribution.source."


def by_digest(repository: str, digest: str) -> str:
    """Return the name of an image by its digest, which can never get another content."""
    return f"{repository}@{digest}"


def share(containerd: Containerd, plan: ImagePlan) -> None:
    """Label each blob of the planned image with its repository, and name the image by its digest.

    Args:
        containerd: the node's containerd, which has the whole image.
        plan: the image.

    Raises:
        ContainerdError: containerd does not answer, or refused.
    """
    image = containerd.complete_image(plan.reference)
    assert image, f"{plan.reference} is not there"
    host, _, path = plan.repository.partition("/")
    before = sources(containerd.ask("content", "ls"), host)
    ctr = shlex.join(containerd.ctr_words())
    lines = [
        f"{ctr} content label {digest} {shlex.quote(f'{SOURCE_LABEL}{host}={label}')}"
        for digest, label in labels(image, path, before)
    ]
    name = by_digest(plan.repository, image.manifest.digest)
    lines.append(f"{ctr} images tag --force {shlex.quote(plan.reference)} {shlex.quote(name)}")
    containerd.shell(f"{{ {' && '.join(lines)}; }} >/dev/null", "content label")


def labels(image: Image, path: str, before: dict[str, list[str]]) -> Iterable[tuple[str, str]]:
    """Yield `(digest, value of the label)` of each blob. Other paths on the same host are kept."""
    for part in image.blobs:
        paths = before.get(part.digest, [])
        yield part.digest, ",".join([*paths, *([] if path in paths else [path])])


def sources(listing: str, host: str) -> dict[str, list[str]]:
    """Return `{digest: paths}` of the blobs that have a label for a registry.

    Args:
        listing: output of `ctr content ls`, with the columns DIGEST SIZE AGE LABELS. Labels are
            `key=value,key=value`, and a value may contain commas.
        host: host of the registry.
    """
    found: dict[str, list[str]] = {}
    for row in map(str.split, listing.splitlines()[1:]):
        key = ""
        for piece in row[-1].split(","):
            name, separator, value = piece.partition("=")
            key = name if separator else key
            if key == f"{SOURCE_LABEL}{host}":
                found.setdefault(row[0], []).append(value if separator else piece)
    return found
