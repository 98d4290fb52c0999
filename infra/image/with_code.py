"""The trainer image of its two parts: the dependencies, and the code as the layer on top."""

from collections.abc import Mapping

from infra.image.oci import ANNOTATION, Image, append_layer, image_annotations
from infra.image.plan import ImagePlan

CREATED_BY = "disttrain: trainer code"


def with_code(
    plan: ImagePlan,
    deps: Image,
    more_annotations: Mapping[str, str] | None = None,
    *,
    compress: bool = False,
) -> Image:
    """The planned image on these dependencies, of which only manifest and configuration are read.

    Args:
        plan: the image.
        deps: its dependencies.
        more_annotations: of the manifest, beside those that tell the image's origin.
        compress: whether the layer with the code is compressed.
    """
    told = {**annotations(plan, deps), **(more_annotations or {})}
    return append_layer(deps, plan.code_layer, CREATED_BY, told, compress=compress)


def annotations(plan: ImagePlan, deps: Image) -> dict[str, str]:
    """What tells an image's origin to tools; `deps` names its base's digest if the builder did."""
    if plan.context:
        return {f"{ANNOTATION}.version": plan.reference.rpartition(":")[2]}
    name, _, digest = plan.base_image.partition("@")
    digest = digest or image_annotations(deps).get(f"{ANNOTATION}.base.digest", "")
    return {
        f"{ANNOTATION}.title": "disttrain trainer",
        f"{ANNOTATION}.version": plan.reference.rpartition(":")[2],
        f"{ANNOTATION}.revision": plan.code_hash,
        f"{ANNOTATION}.base.name": name,
        **({f"{ANNOTATION}.base.digest": digest} if digest else {}),
    }
