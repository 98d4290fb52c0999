"""The namespace of a controller, before it is deleted with all that is in it."""

from dataclasses import replace

from infra.kube.api import Api
from infra.kube.controllers import Controller
from infra.kube.strangers import look, refuse_strangers


def refuse_strangers_beside(api: Api, controller: Controller, owner: str) -> None:
    """Look for others' objects in the controller's namespace.

    A job that an older checkout has recorded for `destroy` does not say what the controller's own
    pods leave there. This checkout knows it, and is asked where something is in the way.

    Args:
        api: the cluster.
        controller: it; who uses its kinds is looked at by `refuse_use`.
        owner: ours.

    Raises:
        TaskError: there are some, or it cannot be seen whether there are; says what to do.
    """
    place = controller.own_namespace
    if not place.leaves and look(api, place, owner).strangers:
        place = replace(place, leaves=_known_here(controller.name))
    refuse_strangers(api, place, owner)


def _known_here(name: str) -> tuple[str, ...]:
    from infra.controllers import CONTROLLERS  # it imports pulumi, which takes a second

    return CONTROLLERS[name].leaves if name in CONTROLLERS else ()
