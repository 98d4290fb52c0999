"""Removes older tags of our image from the node's containerd, where nothing needs them.

Every change of the trainer or its dependencies makes another tag. The tags are pinned, so the
kubelet does not remove them, and dependencies have gigabytes.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from infra.image.containerd import Containerd, ContainerdError
from infra.image.plan import ImagePlan, deps_repository
from infra.image.wanted import platforms

Say = Callable[[str], None]
ENSURED_LABEL = "disttrain.dev/ensured-at"
KEEP_UNUSED_MINUTES = 60  # another `pulumi up` may be about to start pods of what it has imported


def ensured_label() -> dict[str, str]:
    """The label of an image that was just asked for."""
    return {ENSURED_LABEL: datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")}


def prune(
    plan: ImagePlan,
    containerd: Containerd,
    say: Say,
    keep_unused_minutes: int = KEEP_UNUSED_MINUTES,
) -> list[str]:
    """Remove tags of our repository that nothing needs; images of other repositories stay.

    A failure is reported and is not an error: the image that was asked for is there.

    Args:
        plan: the image that is wanted, and its repository.
        containerd: the node's.
        say: takes a line of progress.
        keep_unused_minutes: tags that were asked for within this time stay.

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
    """Tags of the plan's repository that can go.

    Args:
        plan: the image that is wanted; it and its dependencies stay.
        images: `{name: manifest digest}` of all images.
        container_images: the images' names that containers, also ended ones, were made from.
        labels: `{name: labels}` of all images; what a platform wants (wanted.py) stays.
        asked_for_before: tags that were asked for later stay.

    Returns:
        The names, sorted. The dependencies' tag of an image that stays is not among them.
    """
    used_digests = {images[name] for name in container_images if name in images}
    limit = asked_for_before.strftime("%Y%m%dT%H%M%SZ")
    kept, no_labels = {plan.reference}, dict[str, str]()
    for name, digest in images.items():
        # a name by digest has got its labels from the tag, of which others are taken off later
        of_tag = labels.get(name, no_labels) if "@" not in name else no_labels
        recent = of_tag.get(ENSURED_LABEL, "") > limit
        wanted = platforms(of_tag)
        if name in container_images or digest in used_digests or recent or wanted:
            kept.add(name)
    dependencies = {_deps_of(plan, name) for name in kept if _is_tag_of(plan.repository, name)}
    # with its name by digest an image is given to other nodes (sharing.py): it goes with the tag
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
    """The name of the dependencies that an image of ours is made of: the tag's first half."""
    tag = reference.rpartition(":")[2]
    return f"{deps_repository(plan.repository)}:{tag.partition('-')[0]}"
