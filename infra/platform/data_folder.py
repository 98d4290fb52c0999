"""The folder of the node that holds the data."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from infra.dependencies import dependencies
from infra.node.runner import EitherWayRunner, Script
from infra.platform.repair import NO_REPAIR, Repair
from infra.settings import HostSettings


@dataclass(frozen=True)
class DataFolderArgs:
    """The folder, and whether `destroy` empties it.

    Args:
        path: absolute path on the node; empty: the data are not in a folder of the host.
        purge: `destroy` removes the data sets, checkpoints and logs in it.
        host: where the folder is.
        whose: variables that name the stack; a folder that another one uses is refused.
        repair: whether the host may have lost it.
    """

    path: str
    purge: bool
    host: HostSettings
    whose: Mapping[str, pulumi.Input[str]]
    repair: Repair = NO_REPAIR


class DataFolder(pulumi.ComponentResource):
    """The folder of the node; it belongs to no cluster, and `destroy` comes to it last.

    With `purge`, `destroy` removes what is in it: by then nothing may use it. When the host of the
    settings becomes another one, the folder on the old host stays as it is, with `purge` too: the
    command is of one type for every host, and so it is not deleted then.

    The command is also registered where the storage needs no folder. If it were left out then, a
    change of the storage would delete it, and its deletion does what the former settings said: it
    could purge the data of a stack whose settings now say that they are kept.
    """

    path: pulumi.Output[str]

    def __init__(
        self, name: str, args: DataFolderArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:DataFolder", name, {}, opts)
        path, repair = args.path, args.repair
        # An `up` has to note in the state that the data are kept by now, so it ignores no input.
        stays = args.host.gone or pulumi.runtime.is_dry_run()
        self.command = EitherWayRunner(args.host).run(
            f"{name}-folder",
            Script(
                "data-root.sh",
                {
                    "DATA_ROOT": path,
                    "PURGE": path if args.purge else "",
                    **args.whose,
                    **repair.variables,
                },
                ignore_changes=repair.ignored("stdin") if stays else (),
            ),
            pulumi.ResourceOptions(parent=self, depends_on=dependencies(opts)),
        )
        self.path = pulumi.Output.from_input(path)
        self.register_outputs({"path": self.path})
