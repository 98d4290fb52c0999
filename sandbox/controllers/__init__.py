"""The controllers that a cluster of the sandbox can have beside its own programs."""

from sandbox.controllers.controller import Controller
from sandbox.controllers.jobset import JOBSET
from sandbox.controllers.kueue import KUEUE

CONTROLLERS: dict[str, Controller] = {controller.name: controller for controller in (JOBSET, KUEUE)}
