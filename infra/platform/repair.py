"""What a further machine that was installed anew has lost, beside k3s itself.

Its authorities, its NFS client and the files of a bundle are commands of their own. Their settings
do not change when the machine is installed anew, so they would not run again. So they get the
repair id of its look (infra/node/k3s_look.py), as the command has that installs k3s there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.node.k3s_look import K3sLook


@dataclass(frozen=True)
class Repair:
    """Another `id` means that the machine is not as the last `up` left it.

    Where it is not known how the machine is, its commands stay as they are in the state: `up` fails
    at that of k3s, which says what can be done.
    """

    id: str = ""
    is_known: bool = True

    @property
    def variables(self) -> Mapping[str, str]:
        """For a script, which does not read it: with another text it runs again."""
        return {"REPAIR_ID": self.id} if self.id else {}

    def ignored(self, name: str) -> Sequence[str]:
        """The input of a command, if it has to stay as it is."""
        return () if self.is_known else (name,)


NO_REPAIR = Repair()
"""Of the first machine."""


def repair_of(look: K3sLook | None) -> Repair:
    """That of a further machine.

    Args:
        look: what was found on it; None: it is lost.
    """
    if look is None or look.problem:
        return Repair(is_known=False)
    return Repair(look.repair_id)
