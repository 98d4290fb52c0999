"""The controllers that a platform can install: names in the setting `controllers`.

They are installed in this order, and taken away in the opposite one.
"""

from infra.controllers import jobset, kueue
from infra.controllers.kind import ControllerKind
from infra.registry import Registry

CONTROLLERS: Registry[ControllerKind] = Registry("controllers", [jobset.KIND, kueue.KIND])
