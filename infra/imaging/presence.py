"""Lets `pulumi up` see that the image has gone: an input of its command that then changes.

The input is a time. While the image is there, it is the one that the image carries as a label, so
that nothing changes; when it is gone, it is now, and the command that runs for it labels the image.
"""

from datetime import UTC, datetime

from infra.imaging.containerd import Containerd, ContainerdError
from infra.imaging.plan import ImagePlan

VARIABLE = "IMAGE_WANTED_AT"
PATIENCE_SECONDS = 10


def wanted_at(plan: ImagePlan, containerd: Containerd) -> str:
    """When an `up` last missed the image: now, if it is not there, or nobody answers.

    An image that was there before any `up` has no time: then it is empty.
    """
    try:
        at = containerd.wanted_at(plan.reference)
        if at is not None:
            return at
    except ContainerdError:
        # Not an error of a preview: there may be no node yet. The command asks again, and fails.
        pass
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
