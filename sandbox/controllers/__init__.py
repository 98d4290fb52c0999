"""The controllers that a cluster of the sandbox can have beside its own programs."""

from sandbox.controllers.jobset import JOBSET
from sandbox.controllers.kind import Controller
from sandbox.controllers.kueue import KUEUE
from sandbox.controllers.lws import LWS
from sandbox.controllers.mpi_operator import MPI_OPERATOR
from sandbox.controllers.trainer import TRAINER
from sandbox.controllers.training_operator import TRAINING_OPERATOR
from sandbox.controllers.volcano import VOLCANO

CONTROLLERS: dict[str, Controller] = {
    controller.name: controller
    for controller in (JOBSET, TRAINER, TRAINING_OPERATOR, MPI_OPERATOR, VOLCANO, LWS, KUEUE)
}
