"""Runs the doctor as the first command of `up` for each host that is to have a k3s."""

import shlex
from dataclasses import asdict, dataclass, replace
from urllib.parse import urlsplit

import pulumi
from pulumi_command import local

from infra.dependencies import dependencies
from infra.kube_command import PYTHON
from infra.no_proxy import bypasses_proxy, split_no_proxy
from infra.node.doctor_plan import Machine, Plan, SshTarget
from infra.node.expectations import FIRST_NODE, OTHER, Expectations
from infra.settings import HostSettings, NodeSettings, PlatformSettings, RunSettings
from infra.settings.compute import ComputeSettings
from infra.settings.node import SshSettings
from infra.settings.secret import Secret
from infra.settings.torch_index import cuda_version

_NFS = {"nfs": OTHER, "nfs-first-node": FIRST_NODE}  # The keys are values of the setting storage.
_UNITS = {"Ki": 1, "Mi": 1024, "Gi": 1024**2, "Ti": 1024**3}


@dataclass(frozen=True)
class DoctorArgs:
    """What the doctor examines, and which findings stop `up`.

    Args:
        plan: the result of `up_plan` or `machine_plan`, which holds secrets.
        fail_on: the mildest finding that stops `up`: `error`, `warning` or `none`.
    """

    plan: Plan
    fail_on: str


class Doctor(pulumi.ComponentResource):
    """The command `python -m cli doctor`.

    By default, errors stop `up` before anything is installed, and warnings are only shown.

    The only input of the command is the plan. So it runs when what the settings say of the host or
    the cluster has changed, and again after it has failed. A `pulumi up` without changes does not
    run it.
    """

    findings: pulumi.Output[str]
    """What the doctor printed when it last ran."""

    def __init__(
        self, name: str, args: DoctorArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:Doctor", name, {}, opts)
        words = [PYTHON, "-m", "cli", "doctor", "--plan", "-", "--fail-on", args.fail_on]
        self.command = local.Command(
            f"{name}-host",
            create=shlex.join(words),
            # The plan holds the key and the passwords. On a command line everyone could see them.
            stdin=pulumi.Output.secret(args.plan.to_json()),
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=dependencies(opts),
                custom_timeouts=pulumi.CustomTimeouts(create="2m", update="2m"),
            ),
        )
        self.findings = self.command.stdout
        self.register_outputs({"findings": self.findings})


def up_plan(settings: PlatformSettings) -> Plan:
    """The plan for the first machine, before there is a cluster.

    The doctor then only examines the host, and not whether the image is there. Further machines
    are not in this plan. Each of them has its own plan, so that adding one does not change this
    plan.
    """
    plan = make_plan(settings)
    expect = replace(plan.expect, image="", shared_data=False)
    return replace(plan, scope="host", expect=expect, machines=())


def machine_plan(settings: PlatformSettings, node: NodeSettings) -> Plan:
    """The plan for a further machine before it joins, by itself and together with the first one.

    A server is also examined together with the servers before it in the setting `nodes`, because
    their etcds talk to each other. It is not examined together with later ones, so that adding a
    server changes only the plan of that server.
    """
    plan = make_plan(settings)
    names = [each.name for each in plan.machines]
    machine = plan.machines[names.index(node.name)]
    before = plan.machines[: names.index(node.name)] if node.is_server else ()
    machines = (*(each for each in before if each.is_server), machine)
    expect = replace(plan.expect, image="", image_builder="")
    return replace(plan, scope="host", expect=expect, machines=machines, only=node.name)


def make_plan(settings: PlatformSettings, run: RunSettings | None = None) -> Plan:
    """The plan for the whole stack: host, cluster, further machines and expectations.

    Args:
        settings: the settings of the platform.
        run: the settings of the run, for what its pods need; None: there is no run.
    """
    cluster = settings.cluster
    existing = cluster.kind == "existing"
    context = ["--context", cluster.context] if cluster.context else []
    kubectl = shlex.join(["--kubeconfig", cluster.kubeconfig, *context])
    address = settings.image.containerd_address
    return Plan(
        ssh=_ssh_target(settings.host),
        sudo_password=_text(settings.host.sudo_password),
        kubeconfig=cluster.kubeconfig if existing else "",
        kubectl=f"{cluster.kubectl} {kubectl}" if existing else "",
        # This command runs on the node itself, so it does not contain ssh.
        ctr=("ctr" if existing else "k3s ctr")
        + (f" --address {address}" if address else "")
        + " --namespace k8s.io",
        expect=expectations(settings, run),
        machines=tuple(
            Machine(
                node.name,
                _target(node.ssh),
                node.interface,
                _text(node.host.sudo_password),
                node.is_server,
            )
            for node in settings.nodes
            if not node.host.gone
        ),
    )


def expectations(settings: PlatformSettings, run: RunSettings | None) -> Expectations:
    """What the settings expect of the host and the cluster.

    Args:
        settings: the settings of the platform.
        run: the settings of the run; None: there is no run.
    """
    cluster, operator = settings.cluster, settings.gpu_operator
    compute = run.compute if run else None
    ranks = compute.world.world_size if compute else max(settings.devices.gpus, 1)
    image, bundle = settings.image, settings.bundle
    bundled = bundle is not None and bundle.layout(image.plan.deps_hash) is not None
    expected = Expectations(
        provision=cluster.installs_k3s,
        k3s_version=cluster.k3s.version,
        data_root=str(settings.storage.data_root),
        namespace=settings.namespace,
        gpus=settings.devices.gpus,
        ranks=ranks,
        # Without a run it does not matter how the GPUs are spread over the nodes.
        pods=compute.world.pods if compute else ranks,
        several=bool(settings.nodes),
        shared_data=bool(settings.nodes) and settings.storage_kind.name == "host-path",
        nfs=_NFS.get(settings.storage_kind.name, ""),
        embedded_registry=bool(settings.shared_registry),
        tolerated_taints=_tolerated_taints(run),
        node_selector=_node_selector(run),
        operator=operator is not None,
        operator_driver=bool(operator and operator.driver),
        operator_toolkit=bool(operator and operator.toolkit),
        time_slices=operator.sharing.time_slices if operator else 1,
        mig=bool(operator and operator.sharing.mig_profile),
        cuda=cuda_version(settings.image.torch_index_url),
        shm_kib=_shm_kib(settings, compute),
        api_host=_api_host(settings),
        node_address=cluster.node_address,
        node_interface=cluster.node_interface,
        interface_address=cluster.interface_address,
        pod_cidr=cluster.pod_cidr,
        service_cidr=cluster.service_cidr,
        no_proxy=settings.proxy.no_proxy,
        proxy_scope=settings.proxy.scope,
        ca_bundle=settings.proxy.ca_bundle,
        image=image.plan.reference,
        image_builder="" if bundled else image.builder,
        image_build_on=image.build_on,
        image_deps=image.plan.deps_hash,
        internet=settings.bundle is None,
        http_proxy=_text(settings.proxy.http),
        https_proxy=_text(settings.proxy.https),
    )
    return replace(expected, **_probes(settings))


def _api_host(settings: PlatformSettings) -> str:
    """The host behind SSH to whose API server `up` connects directly; empty: there is none."""
    cluster, ssh = settings.cluster, settings.host.ssh
    return ssh.host if ssh and cluster.installs_k3s and not cluster.tunnel else ""


def _tolerated_taints(run: RunSettings | None) -> tuple[str, ...]:
    """Keys of the taints that the run's pods tolerate; `*` if they tolerate all.

    The values and effects of tolerations do not count here. So the doctor may miss a problem, but
    never reports one that is none.
    """
    if run is None:
        return Expectations().tolerated_taints
    return tuple(str(toleration.get("key") or "*") for toleration in run.pods.tolerations)


def _node_selector(run: RunSettings | None) -> tuple[str, ...]:
    """The labels, as `key=value`, that the nodes of the run's pods must have."""
    if run is None:
        return ()
    return tuple(f"{key}={value}" for key, value in run.pods.node_selector.items())


def _probes(settings: PlatformSettings) -> dict[str, str]:
    """The addresses at which the doctor tries to reach the internet, if they are not the defaults.

    If a mirror for k3s is set, it is the mirror, because a firewall may allow only that address.
    """
    mirror, proxy = settings.cluster.k3s.mirror, settings.proxy
    if not mirror:
        return {}
    if not (proxy.http or proxy.https):
        return {"https_probe": mirror}
    if bypasses_proxy(urlsplit(mirror).hostname or "", split_no_proxy(proxy.no_proxy)):
        return {}
    return {"http_probe" if mirror.startswith("http:") else "https_probe": mirror}


def kibibytes(size: str) -> int:
    """Convert a size such as 1Gi to kibibytes."""
    return int(size[:-2]) * _UNITS[size[-2:]]


def _shm_kib(settings: PlatformSettings, compute: ComputeSettings | None) -> int:
    """The shared memory in KiB that the pods on one machine need.

    With one machine these are all pods. With several machines it is at least one pod.
    """
    if compute is None:
        return 0
    pods = 1 if settings.nodes else compute.world.pods
    return pods * kibibytes(compute.shm_size)


def _ssh_target(host: HostSettings) -> SshTarget | None:
    return _target(host.ssh) if host.ssh else None


def _target(ssh: SshSettings) -> SshTarget:
    return SshTarget(
        host=ssh.host,
        port=ssh.port,
        user=ssh.user,
        private_key=_text(ssh.private_key),
        host_key=ssh.host_key,
        jump=SshTarget(**asdict(ssh.jump)) if ssh.jump else None,
    )


def _text(secret: Secret | None) -> str:
    return secret.text if secret else ""
