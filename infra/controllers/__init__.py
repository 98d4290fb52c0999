"""The controllers that a platform can install.

The setting `controllers` names them, except the one that `monitoring: install` stands for. They are
installed in this order, and removed in the opposite order.
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
