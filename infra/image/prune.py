"""Removes older tags of the image that nothing needs from the node's containerd.

Every change of the trainer or of its dependencies makes a new tag. The tags are pinned, so the
kubelet does not remove them, and the dependencies have gigabytes.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from infra.command_line import Say
from infra.image.containerd import Containerd, ContainerdError
from infra.image.plan import ImagePlan, deps_repository
from infra.image.wanted import platforms

ENSURED_LABEL = "disttrain.dev/ensured-at"
KEEP_UNUSED_MINUTES = 60  # Another `pulumi up` may have imported an image and not started pods yet.


def ensured_label() -> dict[str, str]:
    """Return the label for an image that was just asked for, with the present time."""
    return {ENSURED_LABEL: datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")}


def prune(
    plan: ImagePlan,
    containerd: Containerd,
    say: Say,
    keep_unused_minutes: int,
) -> list[str]:
    """Remove tags of the plan's repository that nothing needs.

    A failure is reported but raises no error, because the image that was asked for is there.

    Args:
        plan: the wanted image, and its repository.
        containerd: the node's containerd.
        say: takes a line of progress.
        keep_unused_minutes: tags that were asked for within this time are not removed.

    Returns:
        The names that were removed.
    """
    try:
        old = unused_tags(
            plan,
            containerd.images(),
            containerd.container_images(),
            containerd.labels(),
            datetime.now(UTC) - timedelta(minutes=keep_unused_minutes),
        )
        removed = containerd.remove_images(old) if old else []
    except ContainerdError as error:
        say(f"image: older tags were not removed: {error}")
        return []
    for name in old:
        say(f"image: removed {name}, which nothing needs")
    return removed


def unused_tags(
    plan: ImagePlan,
    images: Mapping[str, str],
    container_images: frozenset[str],
    labels: Mapping[str, Mapping[str, str]],
    asked_for_before: datetime,
) -> list[str]:
    """Return the tags of the plan's repository that can be removed.

    Args:
        plan: the wanted image. It and its dependencies stay.
        images: `{name: manifest digest}` of all images.
        container_images: names of the images of all containers, including ended ones.
        labels: `{name: labels}` of all images. Images that a platform wants (wanted.py) stay.
        asked_for_before: tags that were asked for after this time stay.

    Returns:
        The names, sorted. The dependencies of an image that stays are not among them.
    """
    used_digests = {images[name] for name in container_images if name in images}
    limit = asked_for_before.strftime("%Y%m%dT%H%M%SZ")
    kept, no_labels = {plan.reference}, dict[str, str]()
    for name, digest in images.items():
        # The name by digest is a copy of the tag with the labels of that time. Only the tag's own
        # labels are up to date.
        of_tag = labels.get(name, no_labels) if "@" not in name else no_labels
        recent = of_tag.get(ENSURED_LABEL, "") > limit
        wanted = platforms(of_tag)
        if name in container_images or digest in used_digests or recent or wanted:
            kept.add(name)
    dependencies = {_deps_of(plan, name) for name in kept if _is_tag_of(plan.repository, name)}
    # Under its name by digest, a node gives the image to other nodes (sharing.py). So this name
    # stays as long as a tag of the image stays.
    kept_digests = {images[name] for name in kept if name in images}
    kept |= {name for name, digest in images.items() if "@" in name and digest in kept_digests}
    return sorted(
        name
        for name in images
        if _is_tag_of(plan.repository, name) or _is_tag_of(deps_repository(plan.repository), name)
        if name not in kept and name not in dependencies
    )


def _is_tag_of(repository: str, name: str) -> bool:
    return name.partition("@")[0].rpartition(":")[0] == repository or name.startswith(
        f"{repository}@"
    )


def _deps_of(plan: ImagePlan, reference: str) -> str:
    """Return the name of an image's dependencies. Its tag is the first half of the image's tag."""
    tag = reference.rpartition(":")[2]
    return f"{deps_repository(plan.repository)}:{tag.partition('-')[0]}"
