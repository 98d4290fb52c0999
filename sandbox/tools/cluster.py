"""The pinned programs that a demo needs: Pulumi with its plugins, and those of a cluster."""

from sandbox.downloads import Release
from sandbox.tools.tool import GoBuild, Tool

GITHUB = "https://github.com"
KUBERNETES = "1.34.2"
PULUMI = "3.259.0"
KUBERNETES_PROVIDER = "4.25.0"
COMMAND_PROVIDER = "1.2.1"
ETCD = "3.6.5"
COREDNS = "1.13.1"
LANGUAGE_HOST = "3.78.0"  # the newest version in a Go module; a release contains a newer one


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
        releases=(
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
        build=GoBuild(
            "pulumi",
            ("github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",),
            variables=(
                ("github.com/pulumi/pulumi/sdk/v3/go/common/version.Version", f"v{PULUMI}"),
            ),
        ),
    ),
    Tool(
        "kubernetes",
        KUBERNETES,
        _KUBERNETES_PROGRAMS,
        releases=tuple(_kubernetes_release(program) for program in _KUBERNETES_PROGRAMS),
        build=GoBuild(
            "kubernetes",
            tuple(f"k8s.io/kubernetes/cmd/{program}" for program in _KUBERNETES_PROGRAMS),
            variables=tuple(
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
        releases=(_provider_release("kubernetes", KUBERNETES_PROVIDER),),
        build=GoBuild(
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
        releases=(_provider_release("command", COMMAND_PROVIDER),),
        build=GoBuild("command"),  # no Go module is published; its README describes our stand-in
    ),
    Tool(
        "etcd",
        ETCD,
        ("etcd",),
        releases=(
            Release(
                f"{_ETCD_BASE}/etcd-v{ETCD}-linux-amd64.tar.gz",
                f"{_ETCD_BASE}/SHA256SUMS",
                {f"etcd-v{ETCD}-linux-amd64/etcd": "etcd"},
            ),
        ),
        build=GoBuild("etcd"),
    ),
    Tool(
        "coredns",
        COREDNS,
        ("coredns",),
        releases=(
            Release(
                f"{_COREDNS_BASE}/coredns_{COREDNS}_linux_amd64.tgz",
                f"{_COREDNS_BASE}/coredns_{COREDNS}_linux_amd64.tgz.sha256",
                {"coredns": "coredns"},
            ),
        ),
        build=GoBuild("coredns", ("github.com/coredns/coredns",)),
    ),
    Tool("pause", "1", ("pause",), GoBuild("pause")),
)

LANGUAGE_HOST_BUILD = GoBuild(
    "language-python",
    ("github.com/pulumi/pulumi/sdk/v3/python/cmd/pulumi-language-python",),
    variables=(("github.com/pulumi/pulumi/sdk/v3/go/common/version.Version", f"v{LANGUAGE_HOST}"),),
    module_files=(
        (
            "github.com/pulumi/pulumi/sdk/v3",
            "python/cmd/pulumi-language-python-exec",
        ),
    ),
)
