"""The controllers that a platform can install: those that the setting `controllers` names, and what
`monitoring: install` stands for.

They are installed in this order, and taken away in the opposite one.
"""

from infra.controllers import (
    jobset,
    kube_prometheus_stack,
    kueue,
    lws,
    mpi_operator,
    trainer,
    training_operator,
    volcano,
)
from infra.controllers.kind import ControllerKind
from infra.registry import Registry

CONTROLLERS: Registry[ControllerKind] = Registry(
    "controllers",
    [
        kube_prometheus_stack.KIND,
        jobset.KIND,
        trainer.KIND,
        training_operator.KIND,
        mpi_operator.KIND,
        volcano.KIND,
        lws.KIND,
        kueue.KIND,
    ],
)
