"""The doctor as the first command of `up`, where a host has to be provisioned."""

import shlex
import sys
from dataclasses import asdict, replace
from urllib.parse import urlsplit

import pulumi
from pulumi_command import local

from infra.doctor_plan import Plan, SshTarget
from infra.expectations import Expectations
from infra.no_proxy import goes_past, split_no_proxy
from infra.secret import Secret
from infra.settings import HostSettings, Settings
from infra.torch_index import cuda_version

_UNITS = {"Ki": 1, "Mi": 1024, "Gi": 1024**2, "Ti": 1024**3}


class Doctor(pulumi.ComponentResource):
    """`python -m cli doctor`: errors stop `up` before anything is installed, warnings are shown.

    Its only input is what it looks for, so that it runs when the host or the cluster to be has
    changed, and again after it has failed; a `pulumi up` without changes does not run it.
    """

    findings: pulumi.Output[str]
    """What it printed when it last ran."""

    def __init__(
        self, name: str, settings: Settings, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:Doctor", name, {}, opts)
        words = [sys.executable, "-m", "cli", "doctor", "--plan", "-", "--fail-on", settings.doctor]
        self.command = local.Command(
            f"{name}-host",
            create=shlex.join(words),
            # holds the key and the passwords; on a command line they would be seen
            stdin=pulumi.Output.secret(up_plan(settings).to_json()),
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(
                parent=self,
                custom_timeouts=pulumi.CustomTimeouts(create="2m", update="2m"),
            ),
        )
        self.findings = self.command.stdout
        self.register_outputs({"findings": self.findings})


def up_plan(settings: Settings) -> Plan:
    """What is known, and the same, before the cluster is there: the host, not the image."""
    plan = make_plan(settings)
    return replace(plan, scope="host", expect=replace(plan.expect, image=""))


def make_plan(settings: Settings) -> Plan:
    """Host, cluster and expectations of a stack."""
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
        # on the node itself, so not through ssh
        ctr=("ctr" if existing else "k3s ctr")
        + (f" --address {address}" if address else "")
        + (" --namespace k8s.io" if existing else ""),
        expect=expectations(settings),
    )


def expectations(settings: Settings) -> Expectations:
    """What the settings count on."""
    cluster, compute, operator = settings.cluster, settings.compute, settings.gpu_operator
    on_gpu = compute.accelerator == "gpu"
    ranks = compute.pods * compute.ranks_per_pod
    return Expectations(
        **_probes(settings),
        provision=cluster.kind == "k3s" and cluster.k3s.existing == "refuse",
        k3s_version=cluster.k3s.version,
        data_root=str(settings.storage.data_root),
        namespace=settings.namespace,
        gpus=ranks if on_gpu else 0,
        ranks=ranks,
        operator=operator is not None,
        operator_driver=bool(operator and operator.driver),
        operator_toolkit=bool(operator and operator.toolkit),
        time_slices=operator.sharing.time_slices if operator else 1,
        mig=bool(operator and operator.sharing.mig_profile),
        cuda=cuda_version(settings.image.torch_index_url),
        shm_kib=compute.pods * kibibytes(compute.shm_size),
        node_address=cluster.node_address,
        pod_cidr=cluster.pod_cidr,
        service_cidr=cluster.service_cidr,
        no_proxy=settings.proxy.no_proxy,
        ca_bundle=settings.proxy.ca_bundle,
        image=settings.image.plan.reference,
        internet=settings.bundle is None,
        http_proxy=_text(settings.proxy.http),
        https_proxy=_text(settings.proxy.https),
    )


def _probes(settings: Settings) -> dict[str, str]:
    """Where the way out is tried: at k3s' mirror where one is set; nothing else may be allowed."""
    mirror, proxy = settings.cluster.k3s.mirror, settings.proxy
    if not mirror:
        return {}
    if not (proxy.http or proxy.https):
        return {"https_probe": mirror}
    if goes_past(urlsplit(mirror).hostname or "", split_no_proxy(proxy.no_proxy)):
        return {}
    return {"http_probe" if mirror.startswith("http:") else "https_probe": mirror}


def kibibytes(size: str) -> int:
    """Of a size such as 1Gi."""
    return int(size[:-2]) * _UNITS[size[-2:]]


def _ssh_target(host: HostSettings) -> SshTarget | None:
    ssh = host.ssh
    if ssh is None:
        return None
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
