"""The NFS server of storage `nfs-first-node`, on the first machine, and its clients on the others.

There are three kinds of command, so that each can be removed at its own time:

- the server, on the first machine;
- for each further machine, the NFS client on it;
- for each further machine, the permission to mount, on the first machine.

A pod that ends saves to the folder. So a machine that leaves is drained first, and loses its
permission and its client only after that. The same holds if another machine takes its name, or
becomes the first machine: the commands for the new machine run first, and those of the old machine
are undone last (`replace_after`; the client of another machine is another resource). By then a
file or a permission may already belong to the new machine. So each script records for which machine
it has worked, and undoes only what is recorded for that machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from infra.dependencies import dependencies
from infra.node.runner import Runner, Script
from infra.platform.of_machine import of_machine
from infra.platform.proxy import proxy_environment
from infra.platform.repair import Repair
from infra.settings import ProxySettings

ADDRESS = "address="  # The last line that nfs-client.sh prints begins with this text.


@dataclass(frozen=True)
class NfsServerArgs:
    """What is served, and who owns it.

    Args:
        folder: the folder of the first machine that is served.
        address: address of the first machine, as the others reach it.
        owner: identifies the platform.
        stack: name of the platform's stack, for people.
        proxy: the proxies through which packages are downloaded.
        host: address by which this program reaches the first machine.
        runner: runs scripts on the first machine.
        repair: whether the first machine has lost its server.
    """

    folder: str
    address: str
    owner: pulumi.Input[str]
    stack: str
    proxy: ProxySettings
    host: str
    runner: Runner
    repair: Repair


class NfsServer(pulumi.ComponentResource):
    """The server, which at first serves the folder only to its own machine.

    Its deletion takes back all exports of this stack, and removes what was installed for the
    server. The data stay where they are.
    """

    served: pulumi.Output[str]
    """Output of the script: the folder, and the address at which it is served."""

    def __init__(
        self, name: str, args: NfsServerArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:NfsServer", name, {}, opts)
        self.args = args
        command = args.runner.run(
            f"{name}-server",
            Script(
                "nfs-server.sh",
                {
                    "DATA_ROOT": args.folder,
                    "SERVER_ADDRESS": args.address,
                    **_whose(args),
                    **package_proxy(args.proxy),
                    **args.repair.variables,
                },
                replace_on_another_host=True,
                replace_after=True,
                begun=True,
                ignore_changes=args.repair.ignored("stdin"),
            ),
            pulumi.ResourceOptions(
                parent=self,
                depends_on=dependencies(opts),
                custom_timeouts=pulumi.CustomTimeouts(create="15m", update="15m", delete="10m"),
            ),
        )
        self.served = pulumi.Output.from_input(command.stdout)
        self.register_outputs({"served": self.served})


@dataclass(frozen=True)
class NfsMachineArgs:
    """A further machine that mounts the folder.

    Args:
        node: name of the machine's node.
        host: address by which this program reaches the machine.
        server: the server from which it mounts.
        runner: runs scripts on the machine.
        gone: whether the machine is lost. Then it loses its permission, so that it cannot mount the
            folder if it comes back.
        repair: whether the machine has lost its client.
    """

    node: str
    host: str
    server: NfsServer
    runner: Runner
    gone: bool
    repair: Repair


class NfsMachine(pulumi.ComponentResource):
    """The NFS client of a further machine, and its permission to mount the folder.

    The permission is for the address that the machine itself uses on its way to the server. The
    machine reports this address. The address in the settings may be a name, or may belong to
    another network.
    """

    address: pulumi.Output[str]
    """Address of the machine, as the server sees it."""

    def __init__(
        self, name: str, args: NfsMachineArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:NfsMachine", name, {}, opts)
        server = args.server.args
        timeouts = pulumi.CustomTimeouts(create="15m", update="15m", delete="10m")
        client = args.runner.run(
            of_machine(f"{name}-client", args.host),
            Script(
                "nfs-client.sh",
                {
                    "NODE": args.node,
                    "HOST": args.host,
                    "SERVER_ADDRESS": server.address,
                    **package_proxy(server.proxy),
                    **args.repair.variables,
                },
                replace_on_another_host=True,
                replace_after=True,
                begun=True,
                ignore_changes=args.repair.ignored("stdin"),
            ),
            pulumi.ResourceOptions(
                parent=self,
                depends_on=dependencies(opts),
                custom_timeouts=timeouts,
                aliases=[pulumi.Alias(name=f"{name}-client")],
            ),
        )
        self.address = pulumi.Output.from_input(client.stdout).apply(own_address)
        if not args.gone:
            server.runner.run(
                f"{name}-export",
                Script(
                    "nfs-export.sh",
                    {
                        "DATA_ROOT": server.folder,
                        "NODE": args.node,
                        "CLIENT": self.address,
                        **_whose(server),
                        **server.repair.variables,  # The first machine stores the permission.
                    },
                    replace_when=[self.address],
                    replace_on_another_host=True,
                    replace_after=True,
                    ignore_changes=server.repair.ignored("stdin"),
                ),
                pulumi.ResourceOptions(parent=self, depends_on=[args.server]),
            )
        self.register_outputs({"address": self.address})


def own_address(output: str) -> str:
    """The machine's address in the last line that nfs-client.sh has printed."""
    return output.strip().rpartition(ADDRESS)[2]


def package_proxy(proxy: ProxySettings) -> Mapping[str, pulumi.Input[str]]:
    """The proxy variables in upper case, as the scripts that install packages expect them."""
    return {name: value for name, value in proxy_environment(proxy).items() if name.isupper()}


def _whose(args: NfsServerArgs) -> Mapping[str, pulumi.Input[str]]:
    return {"OWNER": args.owner, "STACK": args.stack, "HOST": args.host}
