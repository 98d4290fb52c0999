"""Volcano's controllers and its scheduler, of Jobs whose pods start together (https://volcano.sh).

Its webhook is left out. It would fill in fields, all of which this project's manifests set. And it
would refuse what `up` refuses before, such as a queue that does not exist.
"""

from collections.abc import Mapping
from typing import Any

from sandbox.controllers.kind import Controller, Place, Program
from sandbox.tools.controllers import VOLCANO_CONTROLLERS

HEALTH_PORT = 9448
SCHEDULER_HEALTH_PORT = 9449


def _configuration(_: Place) -> Mapping[str, Any]:
    """The scheduler's configuration, with the values of Volcano's own manifests."""
    first = ({"name": "priority"}, {"name": "gang", "enablePreemptable": False})
    second = (
        {"name": "overcommit"},
        {"name": "drf", "enablePreemptable": False},
        *({"name": name} for name in ("predicates", "proportion", "nodeorder", "binpack")),
    )
    return {
        "actions": "enqueue, allocate, backfill",
        "tiers": [{"plugins": [*first, {"name": "conformance"}]}, {"plugins": list(second)}],
    }


def _options(place: Place, health_port: int) -> tuple[str, ...]:
    return (
        "--leader-elect=false",
        "--enable-healthz=true",
        f"--healthz-address={place.address}:{health_port}",
        f"--kubeconfig={place.kubeconfig}",  # without it they look for a pod's service account
    )


SCHEDULER = Program(
    name="volcano-scheduler",
    health_port=SCHEDULER_HEALTH_PORT,
    command=lambda place: (
        str(place.programs / "scheduler"),
        f"--scheduler-conf={place.config}",
        "--schedule-period=1s",
        "--cache-dumper=false",
        *_options(place, SCHEDULER_HEALTH_PORT),
    ),
)

VOLCANO = Controller(
    name="volcano",
    title="Volcano",
    tool=VOLCANO_CONTROLLERS,
    manifests=("volcano-development.yaml",),
    roles=("volcano-controllers", "volcano-scheduler"),
    health_port=HEALTH_PORT,
    health_path="/healthz",
    webhook_port=0,
    command=lambda place: (
        str(place.programs / "controller-manager"),
        "--controllers=job-controller,queue-controller,pg-controller,gc-controller",
        *_options(place, HEALTH_PORT),
    ),
    configuration=_configuration,
    beside=(SCHEDULER,),
    # The folder of a socket that changes how much Volcano logs. All nodes share the default folder.
    variables={"DEBUG_SOCKET_DIR": "/run/volcano"},
    probe={
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "probe", "namespace": "default"},
        "spec": {
            "tasks": [
                {
                    "replicas": 1,
                    "template": {"spec": {"containers": [{"name": "any", "image": "any"}]}},
                }
            ]
        },
    },
)
