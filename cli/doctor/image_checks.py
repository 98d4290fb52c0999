"""The check of the machine that builds the trainer image: this machine, or the node."""

from cli.check import Check, Fault, error, skip_unless, warning
from cli.facts import Facts
from infra.node.expectations import Expectations

CACHED = "cached"
"""The value of the fact `image_builder` if the result of the build is in this machine's cache."""


def image_builder(facts: Facts, expect: Expectations) -> Fault | str:
    """Docker, podman or buildah works on the machine that builds the trainer image."""
    skip_unless(expect.image_builder, "the image is not built: it comes from elsewhere")
    skip_unless(facts.get("image") != "present", "the image is in containerd already")
    found = facts.one("image_builder")
    if found == CACHED:
        return "the build's result is in the cache of this machine"
    if found != "none":
        return found
    wanted = expect.image_builder
    name = "docker, podman or buildah" if wanted == "auto" else wanted
    where = "the node" if expect.image_build_on == "node" else "the machine that runs Pulumi"
    evidence = f"the trainer image is to be built, and {name} does not work on {where}"
    other = "here" if expect.image_build_on == "node" else "node"
    fix = f"install {name} there (Debian: apt-get install buildah), or set imageBuildOn: {other}"
    if expect.provision and facts.get("k3s_binary") == "yes" and not facts.get("image"):
        # Containerd was not asked for the image, and may have it from an earlier `up`.
        return warning(evidence, fix)
    return error(evidence, fix)


IMAGE_CHECKS = (Check("image-builder", image_builder),)
