"""The controllers that a platform can install: those that the setting `controllers` names, and what
`monitoring: install` stands for.

They are installed in this order, and taken away in the opposite one.
"""

from infra.controllers import jobset, kube_prometheus_stack, kueue
from infra.controllers.kind import ControllerKind
from infra.registry import Registry

CONTROLLERS: Registry[ControllerKind] = Registry(
    "controllers", [kube_prometheus_stack.KIND, jobset.KIND, kueue.KIND]
)
