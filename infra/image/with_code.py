"""Makes the trainer image of its dependencies, with the code as the layer on top."""

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
    """Return the planned image on these dependencies.

    Only the manifest and the configuration of the dependencies are read.

    Args:
        plan: the image.
        deps: the image of its dependencies.
        more_annotations: annotations that are added to those about the image's origin.
        compress: whether the layer with the code is compressed.
    """
    told = {**annotations(plan, deps), **(more_annotations or {})}
    return append_layer(deps, plan.code_layer, CREATED_BY, told, compress=compress)


def annotations(plan: ImagePlan, deps: Image) -> dict[str, str]:
    """Return the annotations about an image's origin.

    The digest of the base image is among them if `base_image` or an annotation of `deps` names it.
    """
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
