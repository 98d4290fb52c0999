"""k3s on the first machine.

One command installs, repairs and removes k3s. Another one fetches its kubeconfig. Before that, the
host is asked about its k3s (infra/node/k3s_observation.py), because the engine itself cannot see
what has happened to k3s since the last `up`.
"""

import re
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import pulumi
import yaml
from pulumi_command import local

from infra.labels import content_hash
from infra.node.k3s_observation import HostAccess, K3sObservation, observe_k3s
from infra.node.runner import ON_HOST, HostCommand, Runner, Script, on_host_job
from infra.node.tunnel_kubeconfig import tunnelled
from infra.platform.airgap_files import bundle_variables
from infra.platform.cluster_generation import ClusterGeneration
from infra.platform.of_machine import of_machine
from infra.platform.proxy import k3s_proxy_environment
from infra.platform.registries import registries
from infra.settings import BundleSettings, ClusterSettings, HostSettings, ProxySettings

FURTHER = {"k3s-server": "server", "k3s-agent": "agent"}
FutureObservation: TypeAlias = Future[K3sObservation]
LOOPBACK, LOOPBACK_URL = "127.0.0.1", "//[::1]:"
# If changes of these inputs are ignored, a command stays as it is in the state: it neither runs nor
# is replaced.
ALL_INPUTS = ("stdin", "triggers")


def start_observing_k3s(cluster: ClusterSettings, host: HostSettings) -> FutureObservation | None:
    """Begin to ask the host about its k3s, while the rest of the program goes on.

    Returns:
        The future answer, for `ClusterArgs.observation`; None if the cluster is not a k3s,
        or if its host is lost.
    """
    if cluster.kind != "k3s" or host.gone:
        return None
    executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="observe-k3s")
    future = executor.submit(observe_k3s, HostAccess(**host.access_fields()))
    executor.shutdown(wait=False)
    return future


@dataclass(frozen=True)
class K3sArgs:
    """What k3s is installed with. ClusterArgs describes the fields that both have.

    Args:
        stack: name of the stack as `shown_stack_name` gives it.
        grace_seconds: how many seconds pods may take to end.
        several_servers: whether k3s keeps the cluster's data in etcd, so that further servers can
            join.
    """

    stack: str
    namespace: str
    cluster: ClusterSettings
    host: HostSettings
    grace_seconds: int
    proxy: ProxySettings
    bundle: BundleSettings | None
    runner: Runner
    owner: pulumi.Input[str]
    observation: FutureObservation | None
    shared_registry: str = ""
    several_servers: bool = False


class K3s:
    """The commands of k3s, which are children of the component that makes this object."""

    generation: ClusterGeneration
    install: HostCommand
    kubeconfig: pulumi.Output[str]

    def __init__(self, name: str, args: K3sArgs, opts: pulumi.ResourceOptions) -> None:
        """Register the commands.

        Args:
            name: first part of the commands' names.
            args: what k3s is installed with.
            opts: the parent of the commands, and what the installation waits for.
        """
        state = k3s_state(args, pulumi.runtime.is_dry_run())
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
        if args.cluster.k3s.existing == "refuse":
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
                    custom_timeouts=pulumi.CustomTimeouts(create="15m", update="15m", delete="10m")
                ),
            ),
        )
        self.kubeconfig = self._fetch_kubeconfig(name, args, state, opts.parent)

    def _fetch_kubeconfig(
        self, name: str, args: K3sArgs, state: "K3sState", parent: pulumi.Resource | None
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


@dataclass(frozen=True)
class K3sState:
    """What was found on the host.

    Args:
        observation: what the host has said about its k3s.
        ignored: names of inputs of the commands whose changes the engine ignores.
    """

    observation: K3sObservation
    ignored: tuple[str, ...]


def k3s_state(args: K3sArgs, is_preview: bool) -> K3sState:
    """Wait for the host's answer about its k3s, and decide what it means for the commands.

    If the host could not be asked, a preview shows the commands as they are in the state, and warns
    about that. An `up` runs the commands, which succeed or fail with a reason. It never replaces
    k3s then.

    Args:
        args: what k3s is installed with.
        is_preview: whether this is a preview.

    Raises:
        pulumi.RunError: the host is a further machine of a cluster, such as a server that is to
            replace a lost first machine.
    """
    if args.observation is None:
        return K3sState(K3sObservation("", ""), ALL_INPUTS)
    observation = args.observation.result()
    if observation.role in FURTHER:
        raise pulumi.RunError(further_machine(args.host, FURTHER[observation.role]))
    if args.cluster.k3s.existing == "adopt":
        # This stack never repairs or replaces an adopted k3s, even if another stack of this program
        # owns it. It only fetches the kubeconfig again when that has changed.
        observation = K3sObservation(
            observation.kubeconfig or observation.repair_id, "", observation.problem
        )
    if not observation.problem:
        return K3sState(observation, ())
    where = args.host.ssh.host if args.host.ssh else "this machine"
    if is_preview:
        pulumi.log.warn(not_shown(where, observation.problem))
        return K3sState(observation, ALL_INPUTS)
    pulumi.log.warn(not_asked(where, observation.problem))
    return K3sState(observation, ("triggers",))


def not_shown(where: str, problem: str) -> str:
    """Tell people why a preview shows the commands of a machine as they are in the state."""
    return (
        f"{where} could not be asked about its k3s ({problem}), so this preview does not show what "
        "would be done to it"
    )


def not_asked(where: str, problem: str) -> str:
    """Tell people why `up` runs a command again that may have nothing to change."""
    return (
        f"{where} could not be asked about its k3s ({problem}), so its command runs again: it "
        "changes nothing on a machine that is well"
    )


def further_machine(host: HostSettings, role: str) -> str:
    """Tell people why the host cannot be the first machine, and what to do.

    Args:
        host: the host that the settings name as the first machine.
        role: the role in which it has joined a cluster: `server` or `agent`.
    """
    key, value = ("sshHost", host.ssh.host) if host.ssh else ("host", "localhost")
    also = "sshHostKey and nodeAddress" if host.ssh else "nodeAddress"
    return (
        f"{key}: {value!r} cannot be used: this machine has joined a cluster of this program as a "
        f"further machine ({role}), and no setting makes a further machine the first one. Nothing "
        "was changed.\n"
        f"If the first machine is to stay, set {key} back to it, and nodes to what it was.\n"
        "If it is lost for good, or has to leave, make a new platform in place of this one:\n"
        f"  1. Set {key} and nodes back to what they were.\n"
        "  2. Let the run save and end: ./disttrain stop\n"
        "     (Where the first machine does not answer, this cannot work. Then do what stands in\n"
        "     docs/node.md, The first machine is lost.)\n"
        "  3. Only if the first machine does not answer, let the stack forget it:\n"
        "     pulumi config set hostGone true, and then pulumi up\n"
        "  4. Remove the platform: pulumi destroy\n"
        "     It takes k3s from the other machines, and keeps the data.\n"
        f"  5. Make this machine the first one: set {key} to it, {also}\n"
        "     to its own, and hostGone to false. Take it out of nodes.\n"
        "  6. Make the new platform: pulumi up\n"
        "     The run goes on from its last checkpoint, unless its data were on a lost machine."
    )


def _begun_command(name: str, args: K3sArgs, opts: pulumi.ResourceOptions) -> local.Command:
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
        "GRACE_SECONDS": str(args.grace_seconds),
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


def _variables(args: K3sArgs) -> Mapping[str, pulumi.Input[str]]:
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
        "GRACE_SECONDS": str(args.grace_seconds),
        "OWNER": args.owner,
        "STACK": args.stack,
        "WAY": args.host.kind,
        "HOST": args.host.address,
        **bundle_variables(args.bundle, args.host),
    }


def server_variables(
    cluster: ClusterSettings, ssh_host: str, shared_registry: str
) -> Mapping[str, pulumi.Input[str]]:
    """The variables that every server needs, and no agent.

    The list in TLS_SAN has only the address of the cluster and the server's own address. It does
    not have the addresses of other servers, so that adding a server does not restart the others.
    k3s itself adds the addresses of all its servers to the one certificate that they share.
    """
    names = filter(None, (cluster.node_address, ssh_host))
    return {
        "POD_CIDR": cluster.pod_cidr,
        "SERVICE_CIDR": cluster.service_cidr,
        "TLS_SAN": " ".join(dict.fromkeys(names)),
        "EMBEDDED_REGISTRY": "true" if shared_registry else "",
    }


def api_address(cluster: ClusterSettings) -> str:
    """The address by which further machines reach the first one, in the form that a URL needs."""
    address = cluster.node_address
    return f"[{address}]" if ":" in address else address


def k3s_variables(
    cluster: ClusterSettings, proxy: ProxySettings, shared_registry: str
) -> Mapping[str, pulumi.Input[str]]:
    """The variables of k3s that every machine needs, as a server or as an agent.

    Args:
        cluster: the settings of the cluster.
        proxy: the proxies of the machine.
        shared_registry: see `ClusterArgs`.
    """
    k3s = cluster.k3s
    return {
        "K3S_VERSION": k3s.version,
        "K3S_SHA256": k3s.sha256,
        "K3S_INSTALLER_SHA256": k3s.installer_sha256,
        "K3S_MIRROR": k3s.mirror,
        "K3S_FORCE": "true" if k3s.force else "",
        "K3S_REGISTRIES": registries(k3s.registries, shared_registry),
        **k3s_proxy_environment(proxy),
        **({"AUTHORITIES": content_hash(proxy.ca_bundle)} if proxy.ca_bundle else {}),
    }
