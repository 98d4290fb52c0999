"""The folder of the host that holds data sets, checkpoints and logs."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from infra.dependencies import child_options
from infra.node.runner import EitherWayRunner, Script
from infra.platform.repair import Repair
from infra.settings import HostSettings


@dataclass(frozen=True)
class DataFolderArgs:
    """The folder, and whether `pulumi destroy` empties it.

    Args:
        path: absolute path on the host; empty: the data are not in a folder of the host.
        purge: whether `pulumi destroy` removes the data sets, checkpoints and logs in the folder.
        host: the host with the folder.
        whose: variables that name the stack. A folder that another stack uses is refused.
        repair: whether the host may have lost the folder.
    """

    path: str
    purge: bool
    host: HostSettings
    whose: Mapping[str, pulumi.Input[str]]
    repair: Repair


class DataFolder(pulumi.ComponentResource):
    """The command that makes the folder, and that purges it if the settings say so.

    The folder belongs to no cluster. `pulumi destroy` deletes this command after the cluster, when
    nothing uses the folder any more. With `purge`, the data in the folder are removed then.

    If the settings name another host, the folder on the old host stays as it is, with `purge` too.
    The command has the same type for every host, so the engine changes it instead of deleting it.

    The command is also registered if the storage needs no folder. If it were left out, a change of
    the storage would delete it, and its `delete` does what the former settings said. It could purge
    the data of a stack whose settings now say that the data are kept.
    """

    def __init__(
        self, name: str, args: DataFolderArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:DataFolder", name, {}, opts)
        path, repair = args.path, args.repair
        # Unless the host is lost, an `up` must not ignore inputs, because it has to write into the
        # state whether the data are kept now.
        stays = pulumi.runtime.is_dry_run()
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
                begun=True,
                # The folder may be one that `create` has refused, or not yet looked at.
                begun_variables={"PURGE": ""},
                ignore_changes=repair.ignored("stdin") if stays else (),
            ),
            child_options(self, opts),
        )
        self.register_outputs({})
