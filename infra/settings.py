"""The settings of a stack: the only place that reads Pulumi's configuration.

All problems are collected and raised at once, before any resource is registered.
"""

import ipaddress
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal, cast

import pulumi
from pulumi.runtime.config import (
    CONFIG,
    get_config_env,
    get_config_secret_keys_env,
    is_config_secret,
)

from infra.bundle.manifest import (
    Entry,
    Manifest,
    damage,
    missing_files,
    read_manifest,
    sha256_of,
)
from infra.bundle.needs import (
    CHART,
    DATASET,
    GPT2,
    INSTALLER,
    K3S,
    K3S_IMAGES,
    OPERATOR_IMAGE,
    TOKENIZER,
    TRAINER_IMAGE,
    lacks,
    layout_name,
    left_out,
    needs,
)
from infra.bundle.operator_images import operator_images
from infra.gpu_regime import (
    FIRST_SECRET_ENV_CHART,
    REGIMES,
    HostParts,
    Regime,
    chart_version,
    choose_regime,
    k3s_version,
    refuse_chart,
    shown,
)
from infra.gpu_sharing import MOST_SLICES, Sharing, sharing_problems
from infra.imaging.plan import ImagePlan, plan_image
from infra.kubeconfig import api_server_host
from infra.no_proxy import missing_entries, no_proxy, required_entries, split_no_proxy
from infra.reader import Reader
from infra.run_settings import DATA_MOUNT, DatasetChoice, build_run_config
from infra.secret import Secret
from infra.torch_index import refuse_index
from trainer.config import RunConfig

PROJECT_ROOT = Path(__file__).parent.parent
INCOMING = "datasets/.incoming"  # below the data root: texts on their way to `prepare`
# k3s' uninstaller and the kubelet remove what lies in here.
K3S_FOLDERS = ("/var/lib/rancher", "/var/lib/kubelet", "/etc/rancher", "/run/k3s")

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
_DNS_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_SHA256 = r"([0-9a-f]{64})?"
_HOST_KEY = r"(ssh-\S+|ecdsa-\S+) [A-Za-z0-9+/=]+( .*)?|"
_SIZE = r"[1-9]\d{0,8}(Ki|Mi|Gi|Ti)"


@dataclass(frozen=True)
class JumpSettings:
    """A host on the way; the private key is the same."""

    host: str
    port: int
    user: str
    host_key: str


@dataclass(frozen=True)
class SshSettings:
    """How to reach the host."""

    host: str
    port: int
    user: str
    private_key: Secret | None
    host_key: str
    jump: JumpSettings | None

    def for_ssh_files(self) -> dict[str, Any]:
        """What `ssh_command` takes; holds the private key."""
        jump = asdict(self.jump) if self.jump else None
        key = self.private_key.text if self.private_key else None
        return {**asdict(self), "jump": jump, "private_key": key}


@dataclass(frozen=True)
class HostSettings:
    """The machine that is the node; `ssh` is None when it is this one."""

    ssh: SshSettings | None
    sudo_password: Secret | None
    gone: bool = False


@dataclass(frozen=True)
class K3sSettings:
    """How k3s gets to the host; `registries` is the text of registries.yaml."""

    version: str
    sha256: str
    installer_sha256: str
    mirror: str
    existing: Literal["refuse", "adopt"]
    force: bool
    registries: Secret | None


@dataclass(frozen=True)
class ClusterSettings:
    """Which Kubernetes; kubeconfig, context and kubectl are for an existing one."""

    kind: Literal["k3s", "existing"]
    kubeconfig: str
    context: str
    kubectl: str
    k3s: K3sSettings
    tunnel: bool
    pod_cidr: str
    service_cidr: str
    node_address: str


@dataclass(frozen=True)
class GpuOperatorSettings:
    """NVIDIA's GPU Operator: chart version, which parts it installs, and how GPUs are shared."""

    version: str
    driver: bool
    toolkit: bool
    regime: Regime
    sharing: Sharing
    dcgm_exporter: bool
    timeout_seconds: int


@dataclass(frozen=True)
class ComputeSettings:
    """Processes and devices; `pods` is 1 for single-pod, `gpus_per_pod` is 0 on CPU."""

    topology: Literal["single-pod", "multi-pod"]
    accelerator: Literal["gpu", "cpu"]
    pods: int
    ranks_per_pod: int
    gpus_per_pod: int
    shm_size: str


@dataclass(frozen=True)
class StorageSettings:
    """The data folder on the node and the volume's size."""

    data_root: PurePosixPath
    size: str
    purge: bool


@dataclass(frozen=True)
class ImageSettings:
    """The image's names and how it is built and imported."""

    plan: ImagePlan
    base: str
    builder: str
    build_on: Literal["here", "node"]
    torch_index_url: str
    ctr: str
    containerd_address: str


@dataclass(frozen=True)
class ProxySettings:
    """The proxies, and the computed NO_PROXY; both None: no proxy at all.

    `scope` says what of k3s uses them; `ca_bundle` is the text (PEM) of authorities to trust.
    """

    http: Secret | None
    https: Secret | None
    no_proxy: str
    scope: Literal["all", "containerd"]
    ca_bundle: str
    ca_file: Path | None


@dataclass(frozen=True)
class LimitSettings:
    """How long things may take."""

    dataset_timeout_seconds: int
    training_timeout_seconds: int
    termination_grace_seconds: int


@dataclass(frozen=True)
class DatasetFile:
    """A file of this machine for the data set's Job, and its name below the data root there."""

    path: Path
    incoming: PurePosixPath


@dataclass(frozen=True)
class BundleSettings:
    """A bundle on this machine; what the stack needs of it is there, as far as sizes tell."""

    path: Path
    manifest: Manifest

    def one(self, purpose: str) -> Entry | None:
        """The only file for a purpose; None: packed without it."""
        found = self.manifest.of(purpose)
        assert len(found) <= 1, purpose
        return found[0] if found else None

    def file(self, purpose: str) -> Path | None:
        """Its path."""
        entry = self.one(purpose)
        return self.path / entry.name if entry else None

    def layout(self, deps_hash: str) -> Path | None:
        """Folder of the trainer image's OCI layout; None: packed without it."""
        there = self.manifest.of(TRAINER_IMAGE, deps_hash)
        return self.path / layout_name(deps_hash) if there else None

    @property
    def images(self) -> tuple[Entry, ...]:
        """Archives that k3s imports at its start."""
        return (*self.manifest.of(K3S_IMAGES), *self.manifest.of(OPERATOR_IMAGE))


@dataclass(frozen=True)
class Settings:
    """Everything that a stack's configuration says."""

    stack: str
    namespace: str
    host: HostSettings
    cluster: ClusterSettings
    gpu_operator: GpuOperatorSettings | None
    compute: ComputeSettings
    storage: StorageSettings
    image: ImageSettings
    proxy: ProxySettings
    limits: LimitSettings
    run: RunConfig
    dataset_file: DatasetFile | None
    ranks_file: DatasetFile | None
    doctor: str
    bundle: BundleSettings | None


def load_settings() -> Settings:
    """The settings of the stack that is being deployed.

    Raises:
        pulumi.RunError: lists every problem with key, value and what is allowed.
    """
    project = pulumi.get_project()
    everything = {**get_config_env(), **CONFIG.get()}
    prefix = f"{project}:"
    raw = {k.removeprefix(prefix): str(v) for k, v in everything.items() if k.startswith(prefix)}
    secret = {*get_config_secret_keys_env(), *(key for key in everything if is_config_secret(key))}
    secret_keys = {key.removeprefix(prefix) for key in secret}
    return parse_settings(raw, secret_keys, pulumi.get_stack())


def parse_settings(raw: Mapping[str, str], secret_keys: Iterable[str], stack: str) -> Settings:
    """Check raw values; reads the preset, the kubeconfig and the data set file they name.

    Raises:
        pulumi.RunError: as `load_settings`.
    """
    reader = Reader(raw, secret_keys)
    settings = read_settings(reader, stack)
    reader.reject_unknown()
    if reader.problems or settings is None:
        lines = [f"  - {problem}" for problem in sorted(reader.problems)]
        raise pulumi.RunError("\n".join(["the settings of this stack are not valid:", *lines]))
    return settings


def read_settings(reader: Reader, stack: str) -> Settings | None:
    """Read every key; problems are left with `reader`, and None means that there are some."""
    host = _read_host(reader)
    cluster = _read_cluster(reader, host)
    compute = _read_compute(reader)
    gpu_operator = _read_gpu_operator(reader, cluster, compute)
    storage = _read_storage(reader)
    bundle = _read_bundle(reader)
    run, dataset_file = _read_run(reader, stack, compute, storage, bundle)
    image = _read_image(reader, host, cluster, compute)
    proxy = _read_proxy(reader, cluster)
    _refuse_shown_password(reader, gpu_operator, proxy)
    limits = LimitSettings(
        reader.integer("datasetTimeoutSeconds", at_least=10),
        reader.integer("trainingTimeoutSeconds", at_least=10),
        reader.integer("terminationGraceSeconds", at_least=5),
    )
    if re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", stack) is None:
        reader.problem("name of the stack", stack, "at most 63 characters, as it is a label")
    doctor = reader.choice("doctor", ("error", "warning", "none"))
    namespace = reader.text(
        "namespace", pattern=_DNS_LABEL, allowed="1 to 63 of a-z, 0-9 and -, as in a host name"
    )
    if namespace in ("default", "gpu-operator") or namespace.startswith("kube-"):
        reader.problem("namespace", namespace, "a namespace of its own: destroy deletes it")
    if run is None or image is None:
        return None
    if bundle:
        _check_bundle(reader, bundle, cluster, gpu_operator, image, run)
    return Settings(
        stack=stack,
        namespace=namespace,
        host=host,
        cluster=cluster,
        gpu_operator=gpu_operator,
        compute=compute,
        storage=storage,
        image=image,
        proxy=proxy,
        limits=limits,
        run=run,
        dataset_file=dataset_file,
        ranks_file=_ranks_file(bundle, run, storage),
        doctor=doctor,
        bundle=bundle,
    )


def _read_host(reader: Reader) -> HostSettings:
    kind = reader.choice("host", ("local", "ssh"))
    ssh = SshSettings(
        reader.text("sshHost", pattern=r"[A-Za-z0-9._:-]*", allowed="a host name or address"),
        reader.integer("sshPort", at_least=1, at_most=65535),
        reader.text("sshUser", pattern=r"[a-z_][a-z0-9_.-]*", allowed="a user name"),
        reader.secret("sshPrivateKey"),
        reader.text(
            "sshHostKey",
            pattern=_HOST_KEY,
            allowed="the host's public key, such as 'ssh-ed25519 AAAA...'",
        ),
        _read_jump(reader),
    )
    if kind == "ssh" and not ssh.host:
        reader.problem("sshHost", ssh.host, "the name or address of the node with host: ssh")
    if kind == "ssh" and not ssh.host_key:
        reader.problem(
            "sshHostKey", "", "with host: ssh, the host's public key (ssh-keyscan shows it)"
        )
    return HostSettings(
        ssh if kind == "ssh" else None, reader.secret("sudoPassword"), reader.boolean("hostGone")
    )


def _read_jump(reader: Reader) -> JumpSettings | None:
    jump = JumpSettings(
        reader.text("sshJumpHost", pattern=r"[A-Za-z0-9._:-]*", allowed="a host name or address"),
        reader.integer("sshJumpPort", at_least=1, at_most=65535),
        reader.text("sshJumpUser", pattern=r"[a-z_][a-z0-9_.-]*", allowed="a user name"),
        reader.text("sshJumpHostKey", pattern=_HOST_KEY, allowed="the jump host's public key"),
    )
    if jump.host and not jump.host_key:
        reader.problem("sshJumpHostKey", "", "with sshJumpHost, that host's public key")
    return jump if jump.host else None


def _read_cluster(reader: Reader, host: HostSettings) -> ClusterSettings:
    kind = cast(Literal["k3s", "existing"], reader.choice("cluster", ("k3s", "existing")))
    kubeconfig, context = reader.text("kubeconfig"), reader.text("kubeContext")
    address = reader.text("nodeAddress", pattern=r"[A-Za-z0-9.:-]*", allowed="a host or address")
    if kind == "existing" and not kubeconfig:
        reader.problem("kubeconfig", "", "the path of a kubeconfig with cluster: existing")
    elif kind == "existing":
        kubeconfig = str(Path(kubeconfig).expanduser())
        try:
            server = api_server_host(Path(kubeconfig), context)
        except ValueError as error:
            reader.problem("kubeconfig", kubeconfig, str(error))
        else:
            address = address or server
    elif kubeconfig or context:
        reader.problem("kubeconfig", kubeconfig or context, "empty with cluster: k3s")
    if not address and host.ssh:
        address = host.ssh.host
    pods, services = _read_cidr(reader, "podCidr"), _read_cidr(reader, "serviceCidr")
    if pods and services and pods.version == services.version and pods.overlaps(services):
        reader.problem("podCidr", str(pods), f"a network apart from serviceCidr {services}")
    tunnel = reader.choice("clusterAccess", ("direct", "tunnel")) == "tunnel"
    if tunnel and (kind == "existing" or host.ssh is None):
        reader.problem("clusterAccess", "tunnel", "direct, unless cluster: k3s and host: ssh")
    return ClusterSettings(
        kind=kind,
        kubeconfig=kubeconfig,
        context=context,
        kubectl=reader.text("kubectl", pattern=r"[^\r\n]+", allowed="a command"),
        k3s=_read_k3s(reader),
        tunnel=tunnel,
        pod_cidr=str(pods or ""),
        service_cidr=str(services or ""),
        node_address=address,
    )


def _read_k3s(reader: Reader) -> K3sSettings:
    sha256 = reader.text("k3sSha256", pattern=_SHA256, allowed="64 hex digits")
    installer = reader.text("k3sInstallerSha256", pattern=_SHA256, allowed="64 hex digits")
    mirror = reader.text("k3sMirror", pattern=r"(https?://[^\s@]+)?", allowed="an http(s) address")
    if mirror.startswith("http://") and not (sha256 and installer):
        reader.problem(
            "k3sMirror", mirror, "https, or http with k3sSha256 and k3sInstallerSha256 set"
        )
    return K3sSettings(
        version=reader.text(
            "k3sVersion", pattern=r"v\d+\.\d+\.\d+\+k3s\d+", allowed="a release: vX.Y.Z+k3sN"
        ),
        sha256=sha256,
        installer_sha256=installer,
        mirror=mirror.rstrip("/"),
        existing=cast(
            Literal["refuse", "adopt"], reader.choice("k3sExisting", ("refuse", "adopt"))
        ),
        force=reader.boolean("k3sForce"),
        registries=_read_registries(reader),
    )


def _read_registries(reader: Reader) -> Secret | None:
    """As YAML text; JSON is YAML too, and needs no library to be written."""
    content = reader.mapping("k3sRegistries")
    text = json.dumps(content, indent=2, sort_keys=True)
    if re.search(r'"(password|auth|identity_token)": "', text):
        reader.require_encrypted("k3sRegistries")
    return Secret(text) if content else None


def _read_cidr(reader: Reader, key: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    text = reader.text(key)
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        reader.problem(key, text, "a network such as 10.42.0.0/16")
        return None


def _read_compute(reader: Reader) -> ComputeSettings:
    topology = reader.choice("topology", ("single-pod", "multi-pod"))
    accelerator = reader.choice("accelerator", ("gpu", "cpu"))
    gpus = reader.integer("gpus", at_least=1)
    gpus_per_pod = reader.integer("gpusPerPod", at_least=1)
    processes = reader.integer("processesPerPod", at_least=1)
    all_pods = reader.integer("pods", at_least=1)
    pods = all_pods if topology == "multi-pod" else 1
    on_gpu = accelerator == "gpu"
    if on_gpu and pods * gpus_per_pod > gpus:
        keys = "gpusPerPod" if pods == 1 else "pods * gpusPerPod"
        reader.problem(
            keys,
            pods * gpus_per_pod,
            f"a world size of at most gpus = {gpus}: two nccl ranks cannot share a GPU",
        )
    if on_gpu and processes != 1:
        reader.problem(
            "processesPerPod", processes, "1 with accelerator gpu, where gpusPerPod counts"
        )
    return ComputeSettings(
        topology=cast(Literal["single-pod", "multi-pod"], topology),
        accelerator=cast(Literal["gpu", "cpu"], accelerator),
        pods=pods,
        ranks_per_pod=gpus_per_pod if on_gpu else processes,
        gpus_per_pod=gpus_per_pod if on_gpu else 0,
        shm_size=reader.text("shmSize", pattern=_SIZE, allowed="a size such as 1Gi"),
    )


def _read_gpu_operator(
    reader: Reader, cluster: ClusterSettings, compute: ComputeSettings
) -> GpuOperatorSettings | None:
    wanted = reader.boolean("gpuOperator") and compute.accelerator == "gpu"
    version = reader.text("gpuOperatorVersion")
    parts = HostParts(reader.boolean("gpuOperatorDriver"), reader.boolean("gpuOperatorToolkit"))
    regime = reader.choice("gpuOperatorRegime", ("auto", *REGIMES))
    sharing = Sharing(
        reader.integer("gpuTimeSlices", at_least=1, at_most=MOST_SLICES), reader.text("migProfile")
    )
    model = reader.text("gpuModel")
    if compute.accelerator == "gpu":
        ranks = compute.pods * compute.ranks_per_pod
        for key, value, allowed in sharing_problems(sharing, model, ranks):
            reader.problem(key, value, allowed)
    chosen: Regime = "cdi"
    chart = chart_version(version)
    if chart is None:
        reader.problem("gpuOperatorVersion", version, "vX.Y.Z, a tag of the chart")
    elif refusal := refuse_chart(chart):
        reader.problem("gpuOperatorVersion", version, refusal)
    else:
        k3s = k3s_version(cluster.k3s.version) if cluster.kind == "k3s" else ()
        try:
            chosen = choose_regime(regime, chart, k3s, parts)
        except ValueError as allowed:
            reader.problem("gpuOperatorRegime", regime, str(allowed))
    settings = GpuOperatorSettings(
        version,
        parts.driver,
        parts.toolkit,
        chosen,
        sharing,
        reader.boolean("gpuOperatorDcgmExporter"),
        reader.integer("gpuOperatorTimeoutSeconds", at_least=60),
    )
    return settings if wanted else None


def _read_storage(reader: Reader) -> StorageSettings:
    text = reader.text(
        "dataRoot", pattern=r"(/[A-Za-z0-9._-]+)+/?", allowed="an absolute path of plain names"
    )
    root = PurePosixPath(text or "/nowhere")
    for folder in map(PurePosixPath, K3S_FOLDERS):
        if root.is_relative_to(folder) or folder.is_relative_to(root) or ".." in root.parts:
            reader.problem(
                "dataRoot", text, f"a folder outside k3s' own ({', '.join(K3S_FOLDERS)})"
            )
            break
    purge = reader.choice("dataOnDestroy", ("keep", "purge")) == "purge"
    confirmed = reader.text("purgeConfirmed")
    if purge and confirmed != text:
        reader.problem("purgeConfirmed", confirmed, f"{text}, to confirm dataOnDestroy: purge")
    return StorageSettings(
        root, reader.text("dataSize", pattern=_SIZE, allowed="a size such as 50Gi"), purge
    )


def _read_run(
    reader: Reader,
    stack: str,
    compute: ComputeSettings,
    storage: StorageSettings,
    bundle: BundleSettings | None,
) -> tuple[RunConfig | None, DatasetFile | None]:
    file_text, url = reader.text("datasetFile"), reader.text("datasetUrl")
    sha256 = reader.text("datasetSha256", pattern=_SHA256, allowed="64 hex digits")
    if file_text and url:
        reader.problem("datasetFile", file_text, "empty when datasetUrl is set, or the reverse")
    if url and not sha256:
        reader.problem("datasetSha256", "", "the checksum of the text at datasetUrl")
    file = None
    if file_text:
        path = Path(file_text).expanduser().resolve()
        sha256 = sha256 or _checksum(reader, path)
        file = DatasetFile(path, storage.data_root / INCOMING / (sha256 or "unknown"))
    dataset = DatasetChoice(
        name=reader.text("datasetName", pattern=f"({_NAME})?", allowed="a folder name") or None,
        url=url or None,
        file=f"{DATA_MOUNT}/{INCOMING}/{sha256}" if file else None,
        sha256=sha256 or None,
        tokenizer=reader.text("datasetTokenizer") or None,
    )
    run_name = reader.text("runName", pattern=f"({_NAME})?", allowed="a folder name") or stack
    preset = reader.text("preset", pattern=_NAME, allowed="a name in trainer/presets")
    overrides = reader.mapping("run")
    config, problems = build_run_config(preset, run_name, compute.accelerator, dataset, overrides)
    if bundle and config and config.dataset.url and config.dataset.sha256:
        file = _bundled(bundle, DATASET, config.dataset.sha256, storage)
        if file:
            there = f"{DATA_MOUNT}/{INCOMING}/{file.incoming.name}"
            dataset = replace(dataset, url=None, file=there, sha256=config.dataset.sha256)
            config, problems = build_run_config(
                preset, run_name, compute.accelerator, dataset, overrides
            )
    reader.problems += problems
    return config, file


def _ranks_file(
    bundle: BundleSettings | None, run: RunConfig, storage: StorageSettings
) -> DatasetFile | None:
    """GPT-2's ranks, which tiktoken would download."""
    if bundle is None or run.dataset.tokenizer != GPT2:
        return None
    return _bundled(bundle, TOKENIZER, GPT2, storage)


def _bundled(
    bundle: BundleSettings, purpose: str, version: str, storage: StorageSettings
) -> DatasetFile | None:
    entries = bundle.manifest.of(purpose, version)
    if not entries:
        return None
    incoming = storage.data_root / INCOMING / entries[0].sha256
    return DatasetFile(bundle.path / entries[0].name, incoming)


def _checksum(reader: Reader, path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError as error:
        reader.problem("datasetFile", str(path), f"a file that can be read ({error.strerror})")
        return ""


def _read_image(
    reader: Reader, host: HostSettings, cluster: ClusterSettings, compute: ComputeSettings
) -> ImageSettings | None:
    repository, base = reader.text("imageRepository"), reader.text("imageBase")
    torch_index_url = reader.text(
        "torchIndexUrl", pattern=r"(https?://\S+)?", allowed="an http(s) address, or empty"
    )
    if refusal := refuse_index(torch_index_url, compute.accelerator == "gpu"):
        reader.problem("torchIndexUrl", torch_index_url, refusal)
    builder = reader.choice("imageBuilder", ("auto", "docker", "podman", "buildah"))
    build_on = cast(Literal["here", "node"], reader.choice("imageBuildOn", ("here", "node")))
    if build_on == "node" and (host.ssh is None or cluster.kind != "k3s"):
        reader.problem("imageBuildOn", build_on, "here, unless host: ssh and cluster: k3s")
    # k3s brings a ctr that knows its own socket
    ctr = reader.text("ctr") or ("k3s ctr" if cluster.kind == "k3s" else "ctr")
    address = reader.text("containerdAddress", pattern=r"(/\S+)?", allowed="an absolute path")
    if not re.fullmatch(r"\S+", base):
        reader.problem("imageBase", base, "the name of an image")
    try:
        plan = plan_image(PROJECT_ROOT, repository, base, torch_index_url or None)
    except ValueError as error:
        reader.problems.append(str(error))
        return None
    return ImageSettings(plan, base, builder, build_on, torch_index_url, ctr, address)


def _read_bundle(reader: Reader) -> BundleSettings | None:
    text = reader.text("bundle")
    sha256 = reader.text("bundleSha256", pattern=_SHA256, allowed="64 hex digits")
    if not text:
        return None
    path = Path(text).expanduser().resolve()
    try:
        manifest = read_manifest(path, sha256)
    except ValueError as error:
        reader.problem("bundle", text, f"the folder of a bundle ({error})")
        return None
    if missing := missing_files(path, manifest):
        more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        reader.problem("bundle", text, f"a complete bundle ({missing[0]}{more}); copy it again")
        return None
    return BundleSettings(path, manifest)


def _check_bundle(
    reader: Reader,
    bundle: BundleSettings,
    cluster: ClusterSettings,
    operator: GpuOperatorSettings | None,
    image: ImageSettings,
    run: RunConfig,
) -> None:
    """Whether it was packed for these settings."""
    k3s = cluster.k3s if cluster.kind == "k3s" else None
    wanted = needs(
        k3s_version=k3s.version if k3s else "",
        chart_version=operator.version if operator else "",
        deps_hash=image.plan.deps_hash,
        dataset_sha256=(run.dataset.sha256 or "") if run.dataset.url else "",  # a file is here
        tokenizer=run.dataset.tokenizer,
    )
    problems = lacks(bundle.manifest, wanted)
    if k3s:
        for key, given, purpose in (
            ("k3sSha256", k3s.sha256, K3S),
            ("k3sInstallerSha256", k3s.installer_sha256, INSTALLER),
        ):
            entry = bundle.one(purpose)
            if entry and given and entry.sha256 != given:
                problems.append(f"{entry.name}: sha256 is {entry.sha256}, {key} says {given}")
    if operator and not problems:
        problems += _operator_problems(bundle, operator)
    for problem in problems:
        reader.problem("bundle", str(bundle.path), f"a bundle of these settings; {problem}")


def _operator_problems(bundle: BundleSettings, operator: GpuOperatorSettings) -> list[str]:
    chart = bundle.one(CHART)
    if chart is None:
        return []
    if operator.driver:
        return ["gpuOperatorDriver must be false: the driver's container fetches packages"]
    if problems := damage(bundle.path, [chart]):
        return problems
    if left_out(bundle.manifest, OPERATOR_IMAGE):
        return []
    try:
        images = operator_images(
            bundle.path / chart.name, toolkit=operator.toolkit, dcgm_exporter=operator.dcgm_exporter
        )
    except ValueError as error:
        return [str(error)]
    there = {entry.version for entry in bundle.manifest.of(OPERATOR_IMAGE)}
    return [f"it lacks the operator's image {image}" for image in images if image not in there]


def _read_proxy(reader: Reader, cluster: ClusterSettings) -> ProxySettings:
    http, https = reader.proxy_url("httpProxy"), reader.proxy_url("httpsProxy")
    more = split_no_proxy(reader.text("noProxy"))
    override = split_no_proxy(reader.text("noProxyOverride"))
    scope = cast(Literal["all", "containerd"], reader.choice("proxyScope", ("all", "containerd")))
    ca_file, ca_bundle = _read_ca_bundle(reader)
    if http is None and https is None:
        return ProxySettings(None, None, "", scope, ca_bundle, ca_file)
    if not cluster.node_address:
        reader.problem(
            "nodeAddress", "", "the node's address when a proxy is set: NO_PROXY must hold it"
        )
    required = required_entries(cluster.node_address, cluster.pod_cidr, cluster.service_cidr)
    missing = missing_entries(override, required)
    if override and missing:
        reader.problem(
            "noProxyOverride",
            ",".join(override),
            f"a list that also holds {','.join(missing)} (or use noProxy, which adds to them)",
        )
    exceptions = ",".join(override) or no_proxy(required, more)
    return ProxySettings(http, https, exceptions, scope, ca_bundle, ca_file)


def _refuse_shown_password(
    reader: Reader, operator: GpuOperatorSettings | None, proxy: ProxySettings
) -> None:
    """The driver gets the proxy through the ClusterPolicy, which older charts fill in plain."""
    chart = chart_version(operator.version) if operator else None
    if not (operator and operator.driver and chart and chart < FIRST_SECRET_ENV_CHART):
        return
    if any(url is not None and url.url_has_password for url in (proxy.http, proxy.https)):
        reader.problem(
            "gpuOperatorDriver",
            "true",
            "false, or a chart (gpuOperatorVersion) from "
            f"{shown(FIRST_SECRET_ENV_CHART)} on, or a proxy without a password: "
            f"{operator.version} would show the password in the ClusterPolicy",
        )


def _read_ca_bundle(reader: Reader) -> tuple[Path | None, str]:
    text = reader.text("caBundle")
    if not text:
        return None, ""
    path = Path(text).expanduser().resolve()
    try:
        bundle = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reader.problem("caBundle", text, f"a file that can be read ({error})")
        return None, ""
    if "PRIVATE KEY" in bundle or "-----BEGIN CERTIFICATE-----" not in bundle:
        reader.problem("caBundle", text, "a file with certificates (PEM), and no private key")
        return None, ""
    return path, bundle
