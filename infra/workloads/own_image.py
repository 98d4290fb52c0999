"""Runs a user's program in the user's own image (`program.image`), with disttrain's launcher.

The user's image has neither disttrain's trainer nor its packages. So an init container with the
trainer image copies the launcher into a folder of the pod. The launcher is pure Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from infra.workloads.variables import environment, with_own_variables

if TYPE_CHECKING:
    from infra.objects import Manifest

MOUNT = "/disttrain"
_VOLUME = "launcher"
_START = f"{MOUNT}/start.py"  # trainer/program/carry.py puts it there
USER_NAME = "trainer"
"""The name of the user with uid 1000, as in the trainer image.

Another image may not know this user. Then programs that ask for the user's name fail, for example
torch.compile (getpass.getuser).
"""
_USUAL_VARIABLES = environment({"PYTHONUNBUFFERED": "1", "LOGNAME": USER_NAME})
"""The variables that an image of the user may lack."""


def in_own_image(pod: Manifest, image: str, resources: Mapping[str, Any]) -> Manifest:
    """The pod's spec, with the user's image in its container.

    Init containers that the pod already has run the user's image too: the container `trust`
    collects the certificate authorities that its image trusts.

    Args:
        pod: a pod's spec with one container, which runs the trainer image.
        image: the name of the user's image, with a tag or a digest.
        resources: requests and limits of the init container that copies the launcher.
    """
    (container,) = pod["containers"]
    of_user = {"image": image, "imagePullPolicy": "IfNotPresent"}
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
        **of_user,
        "command": ["python3", _START],
        "env": with_own_variables(_USUAL_VARIABLES, container["env"]),
        "volumeMounts": [*container["volumeMounts"], {**mount, "readOnly": True}],
    }
    return {
        **pod,
        "containers": [container],
        "initContainers": [
            *({**each, **of_user} for each in pod.get("initContainers", [])),
            launcher,
        ],
        "volumes": [*pod["volumes"], {"name": _VOLUME, "emptyDir": {}}],
    }
