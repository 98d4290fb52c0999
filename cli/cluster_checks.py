"""Checks of the cluster: kubeconfig, API, node, GPUs it offers, what is stuck in it."""

from datetime import UTC, datetime

from cli.check import Check, Fault, asked_for, error, warning
from cli.facts import Facts, NotSeenError
from infra.expectations import Expectations

CERTIFICATE_DAYS = 30
TOLERATED = ("nvidia.com/gpu", "node-role.kubernetes.io")
RUNS = ("Running", "Succeeded")
IMAGE_REASONS = ("ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName")


def kubeconfig(facts: Facts, _: Expectations) -> Fault | str:
    """Readable by us and by nobody else."""
    if facts.one("kubeconfig") != "readable":
        return error("the kubeconfig cannot be read", "run it as its owner (sudo), or give another")
    mode = facts.one("kubeconfig_mode")
    if int(mode, 8) & 0o077:
        return warning(f"the kubeconfig has mode {mode}: others may read it", "chmod 600 FILE")
    return f"mode {mode}"


def kubeconfig_ca(facts: Facts, _: Expectations) -> Fault | str:
    """The server's certificate is checked against the cluster's own authority."""
    fix = "fetch it again from the node (/etc/rancher/k3s/k3s.yaml) with its CA"
    if facts.one("kubeconfig_insecure") == "yes":
        return error("the kubeconfig switches TLS checks off (insecure-skip-tls-verify)", fix)
    if facts.one("kubeconfig_ca") != "yes":
        return warning("the kubeconfig has no certificate-authority", fix)
    return "kept"


def client_certificate(facts: Facts, _: Expectations) -> Fault | str:
    """K3s renews its own at a start within 90 days of the end."""
    text = facts.get("client_certificate_until")
    asked_for(text, "the kubeconfig holds no client certificate")
    until = datetime.strptime(text, "%b %d %H:%M:%S %Y %Z").replace(tzinfo=UTC)
    days = (until.timestamp() - facts.number("time")) / 86400
    if days < CERTIFICATE_DAYS:
        return (error if days <= 0 else warning)(
            f"the client certificate ends in {days:.0f} days ({text})",
            "systemctl restart k3s (it renews them), then pulumi up --refresh",
        )
    return f"{days:.0f} days left"


def api_server(facts: Facts, _: Expectations) -> Fault | str:
    """It answers, and its certificate is the one that the kubeconfig expects."""
    answer = facts.one("api")
    if answer == "ok":
        return "ready"
    if "x509" in answer or "certificate" in answer:
        return error(
            f"the API server's certificate is refused: {answer}",
            "another cluster answers there, or the node's address is no name of it (tls-san)",
        )
    if "proxy" in answer.lower():
        return error(f"a proxy is in the way: {answer}", "add the node's address to NO_PROXY")
    return error(
        f"the API server does not answer: {answer[:200] or 'no answer in time'}",
        "systemctl status k3s on the node; then port 6443 and NO_PROXY on this machine",
    )


def node_ready(facts: Facts, _: Expectations) -> Fault | str:
    """Every node."""
    bad = [row[0] for row in _nodes(facts) if "Ready:True" not in row[1].split()]
    if bad:
        return error(
            f"not Ready: {', '.join(bad)}", "kubectl describe node (Conditions), journalctl -u k3s"
        )
    return ", ".join(row[0] for row in _nodes(facts))


def node_pressure(facts: Facts, _: Expectations) -> Fault | str:
    """Under pressure the kubelet ends pods and deletes images."""
    for name, conditions, *_rest in _nodes(facts):
        found = [c.split(":")[0] for c in conditions.split() if c.endswith("Pressure:True")]
        if found:
            return error(
                f"node {name} has {', '.join(found)}",
                "free disk or memory on the node (crictl rmi --prune), or use a larger one",
            )
    return "none"


def node_schedulable(facts: Facts, _: Expectations) -> Fault | str:
    """Not cordoned, no taint that our pods do not tolerate."""
    for name, _conditions, cordoned, taints, *_rest in _nodes(facts):
        if cordoned:
            return error(f"node {name} is cordoned", f"kubectl uncordon {name}")
        bad = [t for t in taints.split() if not t.endswith("PreferNoSchedule")]
        if bad:
            return error(
                f"node {name} has the taint {bad[0]}",
                f"kubectl taint nodes {name} {bad[0].split(':')[0]}-",
            )
    return "yes"


def gpus_allocatable(facts: Facts, expect: Expectations) -> Fault | str:
    """What Kubernetes can give out covers what the pods ask for."""
    asked_for(expect.gpus, "no GPU is asked for")
    offered = sum(int(row[4]) for row in _nodes(facts) if row[4].isdigit())
    if offered < expect.ranks:
        return error(
            f"the node offers {offered} of nvidia.com/gpu, {expect.ranks} asked for",
            "kubectl -n gpu-operator get pods (operator-pods says what is wrong with them)",
        )
    return f"{offered} offered, {expect.ranks} asked for"


def gpu_sharing(facts: Facts, expect: Expectations) -> Fault | str:
    """Two nccl ranks never on one physical GPU: time slices do not count."""
    asked_for(expect.gpus, "no GPU is asked for")
    for (
        name,
        _conditions,
        _cordoned,
        _taints,
        _offered,
        count,
        replicas,
        strategy,
        *_rest,
    ) in _nodes(facts):
        if replicas.isdigit() and int(replicas) > 1 and count.isdigit():
            if expect.ranks > int(count):
                return error(
                    f"node {name}: {count} GPUs, {replicas} time slices each; {expect.ranks} ranks",
                    f"at most {count} ranks: nccl refuses two on one GPU (gpusPerPod, pods)",
                )
            if expect.time_slices == 1:
                return warning(
                    f"node {name} shares each GPU {replicas} times, not by these settings",
                    "pulumi config set gpuTimeSlices, or remove the device plugin's config",
                )
        if strategy == "mixed" and not expect.mig:
            return warning(
                f"node {name} has MIG strategy mixed: slices have other resource names",
                "pulumi config set migProfile, or set mig.strategy to single",
            )
    return "whole GPUs"


def operator_pods(facts: Facts, expect: Expectations) -> Fault | str:
    """Each runs; the first that does not is named with its reason."""
    asked_for(expect.gpus and expect.operator, "no GPU Operator is asked for")
    rows = [row for row in _pods(facts) if row[0].startswith("gpu-operator/")]
    if not rows:
        return error("no pod in the namespace gpu-operator", "pulumi up (the chart is not there)")
    bad = [row for row in rows if row[1] not in RUNS or (row[1] == "Running" and row[2] != "True")]
    if bad:
        name, phase, _ready, waiting, unscheduled, *_rest = bad[0]
        pod = name.partition("/")[2]
        why = waiting.strip() or unscheduled or phase
        return error(
            f"{len(bad)} of {len(rows)} operator pods do not run; {pod}: {why}",
            f"kubectl -n gpu-operator logs {pod} --all-containers --tail=20",
        )
    return f"{len(rows)} run"


def cluster_policy(facts: Facts, expect: Expectations) -> Fault | str:
    """The operator's own verdict."""
    asked_for(expect.gpus and expect.operator, "no GPU Operator is asked for")
    state = facts.one("cluster_policy")
    if state != "ready":
        return warning(
            f"ClusterPolicy is {state or 'without a state'}",
            "it takes minutes; then: kubectl -n gpu-operator get pods",
        )
    return state


def stuck_namespace(facts: Facts, expect: Expectations) -> Fault | str:
    """Deleted and not gone: a finalizer waits for a controller that is gone."""
    _api(facts)
    for name, phase, why in facts.rows("namespace", 3):
        if phase == "Terminating" and name in (expect.namespace, "gpu-operator"):
            return error(
                f"namespace {name} is being deleted: {why.strip() or 'no reason given'}",
                f"kubectl get all,cm,pvc -n {name}; docs/operations.md has the way out",
            )
    return "none"


def pending_release(facts: Facts, _: Expectations) -> Fault | str:
    """Helm refuses every change of a release that was cut off in the middle."""
    _api(facts)
    latest: dict[str, tuple[int, str]] = {}
    for name, status, version in facts.rows("release", 3):
        number = int(version) if version.isdigit() else 0
        latest[name] = max(latest.get(name, (0, "")), (number, status))
    for name, (number, status) in latest.items():
        if status.startswith("pending-"):
            namespace, release = name.split("/", 1)
            return error(
                f"Helm release {name} is {status}",
                f"kubectl -n {namespace} delete secret sh.helm.release.v1.{release}.v{number}",
            )
    return "none" if not latest else f"{len(latest)} releases"


def volume_bound(facts: Facts, expect: Expectations) -> Fault | str:
    """The claim of the data volume."""
    _api(facts)
    claims = {row[0]: row[1] for row in facts.rows("claim", 2)}
    phase = claims.get(f"{expect.namespace}/disttrain-pvc")
    asked_for(phase, "there is no claim disttrain-pvc yet")
    if phase != "Bound":
        volumes = [
            r for r in facts.rows("volume", 3) if r[2] == f"{expect.namespace}/disttrain-pvc"
        ]
        state = f"its volume is {volumes[0][1]}" if volumes else "it has no volume"
        return error(f"claim disttrain-pvc is {phase}, {state}", "pulumi up (it frees the volume)")
    return "Bound"


def image_present(facts: Facts, expect: Expectations) -> Fault | str:
    """Containerd has the image under the name that pods ask for."""
    asked_for(expect.image, "which image is not known without --stack")
    if facts.one("image") != "present":
        return error(
            f"{expect.image} is not in containerd's namespace k8s.io",
            "python -m infra.imaging ensure --repository REPOSITORY --ctr CTR (docs/image.md)",
        )
    return expect.image


def waiting_pods(facts: Facts, expect: Expectations) -> Fault | str:
    """Pods of ours that will not start by themselves."""
    for name, _phase, _ready, waiting, unscheduled, *_rest in _pods(facts):
        if not name.startswith(f"{expect.namespace}/"):
            continue
        pod, reasons = name.partition("/")[2], waiting.split()
        if any(reason in IMAGE_REASONS for reason in reasons):
            return error(f"pod {pod}: {reasons[0]}", "see image-present; docs/image.md brings it")
        if "CrashLoopBackOff" in reasons:
            return error(
                f"pod {pod} crashes again and again",
                f"kubectl -n {expect.namespace} logs {pod} --previous --tail=30",
            )
        if unscheduled:
            return error(f"pod {pod} has no node: {unscheduled}", "see gpus-allocatable, node-*")
    return "none"


def cluster_dns(facts: Facts, _: Expectations) -> Fault | str:
    """Ranks find each other by it."""
    rows = [row for row in _pods(facts) if row[5] == "kube-dns"]
    asked_for(rows, "the DNS is no pod labelled k8s-app=kube-dns")
    if not any(row[2] == "True" for row in rows):
        return error(
            f"no DNS pod is ready ({rows[0][0]}: {rows[0][3].strip() or rows[0][1]})",
            "kubectl -n kube-system logs -l k8s-app=kube-dns --tail=20",
        )
    return "ready"


def _api(facts: Facts) -> None:
    if facts.one("api") != "ok":
        raise NotSeenError("the API server does not answer (api-server)")


def _nodes(facts: Facts) -> list[list[str]]:
    _api(facts)
    facts.all("nodes")
    facts.one("node")
    return facts.rows("node", 9)


def _pods(facts: Facts) -> list[list[str]]:
    _api(facts)
    for name in ("pods", "operator_pods", "dns_pods"):
        facts.all(name)
    return facts.rows("pod", 6)


CLUSTER_CHECKS = (
    Check("kubeconfig", kubeconfig),
    Check("kubeconfig-ca", kubeconfig_ca),
    Check("client-certificate", client_certificate),
    Check("api-server", api_server),
    Check("node-ready", node_ready),
    Check("node-pressure", node_pressure),
    Check("node-schedulable", node_schedulable),
    Check("gpus-allocatable", gpus_allocatable),
    Check("gpu-sharing", gpu_sharing),
    Check("operator-pods", operator_pods),
    Check("cluster-policy", cluster_policy),
    Check("stuck-namespace", stuck_namespace),
    Check("pending-release", pending_release),
    Check("volume-bound", volume_bound),
    Check("image-present", image_present),
    Check("waiting-pods", waiting_pods),
    Check("cluster-dns", cluster_dns),
)
