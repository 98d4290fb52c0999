"""What a machine that was installed anew has lost, beside k3s itself.

Its data folder, its authorities, the parts of NFS and the files of a bundle are commands of their
own. Their settings do not change when the machine is installed anew, so they would not run again.
Therefore each of them gets an id from the look at the machine's k3s (infra/node/k3s_look.py), like
the command that installs k3s there, and runs again when the id changes.
"""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from infra.node.k3s_look import K3sLook
from infra.settings import ClusterSettings


@dataclass(frozen=True)
class Repair:
    """Another `id` means that the machine is not as the last `up` left it.

    If the machine could not be asked, its commands stay as they are in the state, and `up` fails at
    the command of k3s, which says what can be done.
    """

    id: str = ""
    is_known: bool = True

    @property
    def variables(self) -> Mapping[str, str]:
        """A variable that no script reads: when it changes, the script runs again."""
        return {"REPAIR_ID": self.id} if self.id else {}

    def ignored(self, name: str) -> Sequence[str]:
        """`name`, an input of a command, where that has to stay as it is in the state."""
        return () if self.is_known else (name,)


NO_REPAIR = Repair()
"""For a machine whose k3s this stack has not installed."""


def repair_of(look: K3sLook | None) -> Repair:
    """The repair of a further machine.

    Args:
        look: what was found on it; None: it is lost.
    """
    if look is None or look.problem:
        return Repair(is_known=False)
    return Repair(look.repair_id)


async def repair_of_first(cluster: ClusterSettings, look: Future[K3sLook] | None) -> Repair:
    """The repair of the first machine, which has lost something if its k3s has lost its data.

    Args:
        cluster: of the settings.
        look: None: there is no k3s, or the machine is lost.
    """
    if cluster.kind != "k3s" or cluster.k3s.existing != "refuse":
        return NO_REPAIR
    found = await asyncio.wrap_future(look) if look else None
    if found is None or found.problem:
        return Repair(is_known=False)
    return Repair(found.generation_id)
