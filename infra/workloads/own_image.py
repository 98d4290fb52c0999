"""A program in an image of the user's own (`program.image`), started by disttrain's launcher.

That image has neither our trainer nor its packages. So an init container of the trainer image
copies the launcher, which is Python and needs nothing compiled, into a folder of the pod.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infra.objects import Manifest

MOUNT = "/disttrain"
_VOLUME = "launcher"
_START = f"{MOUNT}/start.py"  # trainer/program/carry.py puts it there
USER_NAME = "trainer"
"""Of user 1000, as in the trainer image. Another image may not know this user, and then programs
that ask for its name fail, among them torch.compile (getpass.getuser)."""


def in_own_image(pod: Manifest, image: str, resources: Mapping[str, Any]) -> Manifest:
    """The pod with its container's image replaced.

    Args:
        pod: a pod's spec with one container, which runs the trainer image.
        image: with a tag or a digest.
        resources: requests and limits of the container that copies.
    """
    (container,) = pod["containers"]
    mount = {"name": _VOLUME, "mountPath": MOUNT}
    launcher = {
        "name": _VOLUME,
        "image": container["image"],
        "imagePullPolicy": container["imagePullPolicy"],
        "args": ["carry", MOUNT],
        "env": [{"name": "HOME", "value": "/tmp"}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": dict(resources),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [mount],
    }
    container = {
        **container,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", _START],
        "env": [
            {"name": "PYTHONUNBUFFERED", "value": "1"},
            *_user_name(container["env"]),
            *container["env"],
        ],
        "volumeMounts": [*container["volumeMounts"], {**mount, "readOnly": True}],
    }
    return {
        **pod,
        "containers": [container],
        "initContainers": [*pod.get("initContainers", []), launcher],
        "volumes": [*pod["volumes"], {"name": _VOLUME, "emptyDir": {}}],
    }


def _user_name(given: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The variable that names the user, unless the user's own variables do."""
    names = {variable["name"] for variable in given}
    return [] if {"LOGNAME", "USER"} & names else [{"name": "LOGNAME", "value": USER_NAME}]
