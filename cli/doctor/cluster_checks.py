"""Checks of the cluster: its kubeconfig, API server and nodes, and objects that are stuck."""

from datetime import UTC, datetime

from cli.check import Check, Fault, error, skip_unless, warning
from cli.doctor.cluster_facts import deployments_of, nodes_of, pods_of, require_api
from cli.doctor.cluster_gpu_checks import CLUSTER_GPU_CHECKS, OPERATOR_NAMESPACE
from cli.facts import Facts
from infra.kube.controllers.programs_of_runs import ALL, is_of, words_of_down
from infra.node.expectations import Expectations

CERTIFICATE_DAYS = 30
# Kubernetes sets these taints for a while, and would set one again that somebody removes.
OWN_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
IMAGE_REASONS = ("ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName")


def kubeconfig(facts: Facts, _: Expectations) -> Fault | str:
    """Only you can read the kubeconfig."""
    if facts.one("kubeconfig") != "readable":
        return error(
            "the kubeconfig cannot be read", "run this as its owner (sudo), or name another file"
        )
    mode = facts.one("kubeconfig_mode")
    if int(mode, 8) & 0o077:
        return warning(
            f"the kubeconfig has mode {mode}, so other users of this machine may read it",
            "chmod 600 FILE",
        )
    return f"mode {mode}"


def kubeconfig_ca(facts: Facts, _: Expectations) -> Fault | str:
    """The kubeconfig contains the cluster's certificate authority, and uses it."""
    fix = "copy it again from the node (/etc/rancher/k3s/k3s.yaml), with its certificate authority"
    if facts.one("kubeconfig_insecure") == "yes":
        return error("the kubeconfig switches TLS checks off (insecure-skip-tls-verify)", fix)
    if facts.one("kubeconfig_ca") != "yes":
        return warning("the kubeconfig has no certificate-authority", fix)
    return "present"


def client_certificate(facts: Facts, expect: Expectations) -> Fault | str:
    """The client certificate in the kubeconfig is valid for some weeks."""
    text = facts.get("client_certificate_until")
    skip_unless(text, "the kubeconfig holds no client certificate")
    until = datetime.strptime(text, "%b %d %H:%M:%S %Y %Z").replace(tzinfo=UTC)
    days = (until.timestamp() - facts.number("time")) / 86400
    if days < CERTIFICATE_DAYS:
        ends = f"ends in {days:.0f} days" if days > 0 else f"ended {-days:.0f} days ago"
        own = (
            "k3s renews its certificates when it starts: run `sudo systemctl restart k3s` on the "
            "first machine, `sudo systemctl restart k3s-agent` (a server: k3s) on each machine in "
            "nodes, whose certificates are as old, then `pulumi up`"
        )
        other = "renew it with the cluster's own tools, and give the new kubeconfig"
        return (error if days <= 0 else warning)(
            f"the client certificate {ends} ({text})", own if expect.provision else other
        )
    return f"{days:.0f} days left"


def api_server(facts: Facts, expect: Expectations) -> Fault | str:
    """The API server answers with a certificate signed by the kubeconfig's authority."""
    answer = facts.one("api")
    if answer == "ok":
        return "ready"
    if "x509" in answer or "certificate" in answer:
        return error(
            f"the API server's certificate is refused: {answer}",
            "either another cluster answers at that address, or its certificate does not name the "
            "address (k3s: tls-san); after a new installation, `pulumi up` fetches the new one",
        )
    if "proxy" in answer.lower():
        return error(
            f"a proxy is in the way to the API server: {answer}",
            "add the node's address to NO_PROXY",
        )
    start = "run `pulumi up`, which starts k3s again; " if expect.provision else ""
    return error(
        f"the API server does not answer: {answer[:200] or 'no answer in time'}",
        f"{start}check that port 6443 is open and that NO_PROXY has the node's address",
    )


def node_ready(facts: Facts, _: Expectations) -> Fault | str:
    """The kubelet of every node reports that it is ready for pods."""
    nodes = nodes_of(facts)
    bad = [node.name for node in nodes if not node.is_ready]
    if bad:
        level = error if len(bad) == len(nodes) else warning
        return level(
            f"{len(bad)} of {len(nodes)} nodes are not Ready: {', '.join(bad)}",
            f"kubectl describe node {bad[0]} (Conditions); on the node: "
            "journalctl -u k3s (on an agent: k3s-agent)",
        )
    return ", ".join(node.name for node in nodes)


def node_pressure(facts: Facts, _: Expectations) -> Fault | str:
    """No node is short of disk, memory or processes; otherwise its kubelet evicts pods."""
    for node in nodes_of(facts):
        found = [c.split(":")[0] for c in node.conditions if c.endswith("Pressure:True")]
        if found:
            return error(
                f"node {node.name} has {', '.join(found)}",
                "free disk space or memory on the node (crictl rmi --prune), or use a larger one",
            )
    return "none"


def node_schedulable(facts: Facts, expect: Expectations) -> Fault | str:
    """At least one node takes training pods: it has no cordon, and the right labels and taints."""
    nodes = nodes_of(facts, expect.node_selector)
    usable = [node for node in nodes if node.takes_pods(expect.tolerated_taints)]
    if usable:
        return f"{len(usable)} of {len(nodes)} nodes take pods"
    selected = [node for node in nodes if node.is_selected]
    if not selected:
        wanted = ", ".join(expect.node_selector)
        return error(
            f"none of {len(nodes)} nodes has the labels of nodeSelector ({wanted})",
            "correct the setting nodeSelector, or give a node these labels: "
            f"kubectl label nodes {nodes[0].name} {' '.join(expect.node_selector)}",
        )
    node = selected[0]
    if node.cordoned:
        return error(f"node {node.name} is cordoned", f"kubectl uncordon {node.name}")
    taint = node.blocking_taint(expect.tolerated_taints)
    if taint.startswith(OWN_TAINTS):
        return error(
            f"node {node.name} has the taint {taint}, which Kubernetes removes when the cause is "
            "gone",
            f"see node-ready and node-pressure; kubectl describe node {node.name} (Conditions)",
        )
    return error(
        f"node {node.name} has the taint {taint}, which the training pods do not tolerate",
        f"kubectl taint nodes {node.name} {taint.split(':')[0]}-, or set tolerations",
    )


def stuck_namespace(facts: Facts, expect: Expectations) -> Fault | str:
    """No namespace of disttrain is stuck in its deletion because of a finalizer."""
    require_api(facts)
    facts.all("namespaces")
    for name, phase, why in facts.rows("namespace", 3):
        if phase == "Terminating" and name in (expect.namespace, OPERATOR_NAMESPACE):
            return error(
                f"namespace {name} is being deleted: {why.strip() or 'no reason given'}",
                f"kubectl get all,cm,pvc -n {name}; docs/operations.md says what to do then",
            )
    return "none"


def pending_release(facts: Facts, _: Expectations) -> Fault | str:
    """No Helm release was interrupted; Helm refuses every change of such a release."""
    require_api(facts)
    facts.all("releases")
    latest: dict[str, tuple[int, str]] = {}
    for name, status, version in facts.rows("release", 3):
        number = int(version) if version.isdigit() else 0
        latest[name] = max(latest.get(name, (0, "")), (number, status))
    for name, (number, status) in latest.items():
        if status.startswith("pending-"):
            namespace, release = name.split("/", 1)
            return error(
                f"Helm release {name} is {status}: an installation or upgrade was interrupted",
                f"kubectl -n {namespace} delete secret sh.helm.release.v1.{release}.v{number}",
            )
    return "none" if not latest else f"{len(latest)} releases"


def volume_bound(facts: Facts, expect: Expectations) -> Fault | str:
    """The claim of the data volume is bound to its volume."""
    require_api(facts)
    facts.all("claims")
    claim = f"{expect.namespace}/{expect.claim}"
    claims = {row[0]: (row[1], row[2]) for row in facts.rows("claim", 3)}
    phase, class_name = claims.get(claim, ("", ""))
    skip_unless(phase, f"there is no claim {expect.claim} yet")
    if phase == "Pending" and class_name:
        facts.all("classes")
        if [class_name, "WaitForFirstConsumer"] in facts.rows("class", 2):
            return f"Pending: storage class {class_name} binds it when the first pod uses it"
    if phase != "Bound":
        volumes = [row for row in facts.rows("volume", 3) if row[2] == claim]
        state = f"its volume is {volumes[0][1]}" if volumes else "it has no volume"
        return error(
            f"claim {expect.claim} is {phase}, {state}",
            "run `pulumi up --refresh` of the stack that owns the platform, which frees the volume",
        )
    return "Bound"


def image_present(facts: Facts, expect: Expectations) -> Fault | str:
    """The node's containerd has the trainer image with the name that the pods ask for."""
    skip_unless(expect.image, "the image's name is known only with --stack")
    if facts.one("image") != "present":
        return error(
            f"{expect.image} is not in containerd's namespace k8s.io",
            "run `pulumi up`, which brings it back, or see docs/image.md for the way by hand",
        )
    return expect.image


def waiting_pods(facts: Facts, expect: Expectations) -> Fault | str:
    """No pod of disttrain waits for something that needs your help."""
    for pod in pods_of(facts):
        if pod.namespace != expect.namespace:
            continue
        if any(reason in IMAGE_REASONS for reason in pod.waiting):
            return error(
                f"pod {pod.name} waits for its image: {pod.waiting[0]}",
                "see image-present; docs/image.md says how the image gets there",
            )
        if "CrashLoopBackOff" in pod.waiting:
            return error(
                f"pod {pod.name} crashes again and again",
                f"kubectl -n {expect.namespace} logs {pod.name} --previous --tail=30",
            )
        if pod.unscheduled:
            return error(
                f"pod {pod.name} has no node: {pod.unscheduled}",
                "see gpus-allocatable, node-schedulable and node-pressure",
            )
    return "none"


def cluster_dns(facts: Facts, _: Expectations) -> Fault | str:
    """The cluster's DNS works; the ranks of a multi-pod training find each other with it."""
    pods = [pod for pod in pods_of(facts) if pod.k8s_app == "kube-dns"]
    skip_unless(pods, "the cluster's DNS is not a pod with the label k8s-app=kube-dns")
    if not any(pod.is_ready for pod in pods):
        first = pods[0]
        reason = " ".join(first.waiting) or first.phase
        return error(
            f"no DNS pod is ready ({first.namespace}/{first.name}: {reason})",
            "kubectl -n kube-system logs -l k8s-app=kube-dns --tail=20",
        )
    return "ready"


def controllers(facts: Facts, _: Expectations) -> Fault | str:
    """Each installed controller that runs may need, such as Kueue's, has an available pod."""
    deployments = deployments_of(facts)
    own = {each.title: [d for d in deployments if is_of(each, d)] for each in ALL}
    there = [title for title, found in own.items() if found]
    skip_unless(there, "no controller that runs may need was found")
    if down := [words for title in there if (words := words_of_down(title, own[title]))]:
        return warning(
            "; ".join(down),
            "kubectl describe shows why its pods do not run; until they do, runs that need the "
            "controller cannot start, stop or end (docs/clusters.md)",
        )
    return ", ".join(there)


CLUSTER_CHECKS = (
    Check("kubeconfig", kubeconfig),
    Check("kubeconfig-ca", kubeconfig_ca),
    Check("client-certificate", client_certificate),
    Check("api-server", api_server),
    Check("node-ready", node_ready),
    Check("node-pressure", node_pressure),
    Check("node-schedulable", node_schedulable),
    *CLUSTER_GPU_CHECKS,
    Check("stuck-namespace", stuck_namespace),
    Check("pending-release", pending_release),
    Check("volume-bound", volume_bound),
    Check("image-present", image_present),
    Check("waiting-pods", waiting_pods),
    Check("cluster-dns", cluster_dns),
    Check("controllers", controllers),
)
