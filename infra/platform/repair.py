"""Lets commands run again on a machine that was installed anew, and has lost what they made.

The commands for the data folder, the authorities, the parts of NFS and the files of a bundle have
inputs that do not change when a machine is installed anew. So they would not run again. Therefore
each of them, like the command that installs k3s, also gets an id from the observation of the
machine's k3s (infra/node/k3s_observation.py). When the id changes, the command runs again.
"""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from infra.node.k3s_observation import K3sObservation
from infra.settings import ClusterSettings


@dataclass(frozen=True)
class Repair:
    """Whether the machine's commands have to run again.

    If the machine could not be asked, its commands stay as they are in the state. `up` then fails
    at the command of k3s, which says what can be done.

    Args:
        id: a text that changes when the machine is no longer as the last `up` left it.
        is_known: whether the machine could be asked.
    """

    id: str = ""
    is_known: bool = True

    @property
    def variables(self) -> Mapping[str, str]:
        """A variable that the script does not read. When it changes, the script runs again."""
        return {"REPAIR_ID": self.id} if self.id else {}

    def ignored(self, name: str) -> Sequence[str]:
        """The inputs of a command whose changes the engine has to ignore.

        Args:
            name: the input that is returned if the machine could not be asked.
        """
        return () if self.is_known else (name,)


NO_REPAIR = Repair()
"""The value for a machine whose k3s this stack has not installed."""


def repair_of(observation: K3sObservation | None) -> Repair:
    """The repair of a further machine.

    Args:
        observation: what was found on the machine; None: it is lost.
    """
    if observation is None or observation.problem:
        return Repair(is_known=False)
    return Repair(observation.repair_id)


async def repair_of_first(
    cluster: ClusterSettings, observation: Future[K3sObservation] | None
) -> Repair:
    """The repair of the first machine. It counts as installed anew if its k3s has lost its data.

    Args:
        cluster: the settings of the cluster.
        observation: the result of `start_observing_k3s`; None: there is no k3s, or the
            machine is lost.
    """
    if not cluster.installs_k3s:
        return NO_REPAIR
    found = await asyncio.wrap_future(observation) if observation else None
    if found is None or found.problem:
        return Repair(is_known=False)
    return Repair(found.generation_id)
