"""k3s on the first machine.

One command installs, repairs and removes k3s. Another one fetches its kubeconfig. Before that, the
host is asked about its k3s (k3s_state.py).
"""

import re
from collections.abc import Mapping

import pulumi
import yaml
from pulumi_command import local

from infra.node.runner import ON_HOST, HostCommand, Script, on_host_job
from infra.node.tunnel_kubeconfig import tunnelled
from infra.platform.airgap_files import bundle_variables
from infra.platform.cluster_args import ClusterArgs
from infra.platform.cluster_generation import ClusterGeneration
from infra.platform.guards import LONGEST_SAVE_SECONDS
from infra.platform.k3s_state import K3sState, k3s_state
from infra.platform.k3s_variables import k3s_variables, server_variables
from infra.platform.of_machine import of_machine
from infra.platform.stack_name import shown_stack_name

LOOPBACK, LOOPBACK_URL = "127.0.0.1", "//[::1]:"


class K3s:
    """The commands of k3s, which are children of the component that makes this object."""

    generation: ClusterGeneration
    install: HostCommand
    kubeconfig: pulumi.Output[str]

    def __init__(self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions) -> None:
        """Register the commands.

        Args:
            name: first part of the commands' names.
            args: what k3s is installed with.
            opts: the parent of the commands, and what the installation waits for.
        """
        state = k3s_state(
            args.observation, args.cluster, args.host, is_preview=pulumi.runtime.is_dry_run()
        )
        ssh = args.host.ssh
        # The commands for a k3s on this machine and for one behind SSH have different types, and
        # each type has a generation command of its own. When the setting `host` changes from one to
        # the other, the engine removes the former k3s with everything in it.
        self.generation = ClusterGeneration(
            f"{name}-{'remote-' if ssh else ''}generation",
            [args.host.address, state.observation.generation_id],
            opts,
            is_unknown="triggers" in state.ignored,
        )
        if args.cluster.installs_k3s:
            begun = _begun_command(name, args, opts)
            opts = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[begun]))
        self.install = args.runner.run(
            f"{name}-k3s",
            Script(
                "k3s-install.sh",
                {
                    **_variables(args),
                    "REPAIR_ID": state.observation.repair_id,
                    "GENERATION_ID": state.observation.generation_id,
                },
                replace_when=[self.generation.identity],
                update=True,
                ignore_changes=state.ignored,
            ),
            pulumi.ResourceOptions.merge(
                opts,
                pulumi.ResourceOptions(
                    custom_timeouts=pulumi.CustomTimeouts(
                        create="15m", update="15m", delete=f"{LONGEST_SAVE_SECONDS}s"
                    )
                ),
            ),
        )
        self.kubeconfig = self._fetch_kubeconfig(name, args, state, opts.parent)

    def _fetch_kubeconfig(
        self, name: str, args: ClusterArgs, state: K3sState, parent: pulumi.Resource | None
    ) -> pulumi.Output[str]:
        """Register the command that fetches the kubeconfig.

        It is not part of the command that installs k3s, so that its output stays known in a preview
        in which an input of the installation changes.
        """
        ssh, tunnel = args.host.ssh, args.cluster.tunnel
        host = ssh.host if ssh and not tunnel else LOOPBACK
        server_host = f"[{host}]" if ":" in host else host
        command = args.runner.run(
            f"{name}-kubeconfig",
            Script(
                "k3s-kubeconfig.sh",
                {
                    "SERVER_HOST": server_host,
                    "LOOK": state.observation.repair_id,
                },
                secret_output=True,
                ignore_changes=state.ignored if "stdin" in state.ignored else (),
            ),
            pulumi.ResourceOptions(parent=parent, depends_on=[self.install]),
        )
        text = pulumi.Output.secret(command.stdout).apply(
            lambda output: kubeconfig_text(output, server_host)
        )
        if ssh is None or not tunnel:
            return text
        spec = ssh.ssh_spec()
        return text.apply(lambda content: yaml.safe_dump(tunnelled(yaml.safe_load(content), spec)))


def kubeconfig_text(output: str, server_host: str) -> str:
    """Extract the kubeconfig from what k3s-kubeconfig.sh has printed. This function is pure.

    Text that the start-up files of the SSH user's shell print may stand before it. If k3s' networks
    have only IPv6, k3s writes the IPv6 address of its loopback, which the script does not replace
    with the server's address.

    Args:
        output: the output of the command.
        server_host: address at which the API server is reached, in the form that a URL has.
    """
    begin = re.search(r"^apiVersion:", output, re.MULTILINE)
    text = output[begin.start() :] if begin else output
    return text if server_host == LOOPBACK else text.replace(LOOPBACK_URL, f"//{server_host}:")


def _begun_command(name: str, args: ClusterArgs, opts: pulumi.ResourceOptions) -> local.Command:
    """Register a command that does nothing before k3s is installed, and cleans up at the very end.

    If an `up` fails or is killed while k3s is being installed, the state does not contain the
    command that installs k3s. Then `pulumi destroy` only finds this command, whose `delete` removes
    k3s.

    If the settings name another host, the `delete` for the previous host runs last of all, when k3s
    has been removed from it. A new host key only changes this command, and does not replace it: its
    `delete` could not reach the host with the previous key.
    """
    host = args.host
    variables = {
        "NAMESPACE": args.namespace,
        "GRACE_SECONDS": str(args.limits.termination_grace_seconds),
        "OWNER": args.owner,
        "HOST": host.address,
        "K3S_EXISTING": args.cluster.k3s.existing,
    }
    ours = pulumi.ResourceOptions(
        delete_before_replace=False,
        # Nothing can be removed from a lost host, so the engine only forgets the command.
        retain_on_delete=host.gone or None,
        aliases=[pulumi.Alias(name=f"{name}-begun")],
    )
    return local.Command(
        of_machine(f"{name}-begun", host.address),
        create="sh -c true",
        delete=f"{ON_HOST} delete",
        stdin=on_host_job(host, Script("k3s-left.sh", variables)),
        triggers=[host.address],
        add_previous_output_in_env=False,
        opts=pulumi.ResourceOptions.merge(opts, ours),
    )


def _variables(args: ClusterArgs) -> Mapping[str, pulumi.Input[str]]:
    cluster = args.cluster
    # The certificate has to name the address for SSH, which the kubeconfig has too unless there is
    # a tunnel, and the node's address, which further machines use.
    ssh_host = args.host.ssh.host if args.host.ssh and not cluster.tunnel else ""
    return {
        # The API server connects to the kubelets of all machines.
        **k3s_variables(cluster, args.proxy.past_proxy(args.proxy.machines), args.shared_registry),
        "K3S_EXISTING": cluster.k3s.existing,
        **server_variables(cluster, ssh_host, args.shared_registry),
        "NODE_INTERFACE": cluster.node_interface,
        "INTERFACE_ADDRESS": cluster.interface_address,
        **({"CLUSTER_INIT": "1"} if args.several_servers else {}),
        "NAMESPACE": args.namespace,
        "GRACE_SECONDS": str(args.limits.termination_grace_seconds),
        "OWNER": args.owner,
        "STACK": shown_stack_name(args.stack),
        "WAY": args.host.kind,
        "HOST": args.host.address,
        **bundle_variables(args.bundle, args.host),
    }
