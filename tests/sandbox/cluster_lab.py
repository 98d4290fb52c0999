"""Helpers of the tests of clusters: commands for a cluster, and what it may leave behind."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sandbox import mountpoints
from sandbox.cluster import Cluster
from sandbox.layout import Layout
from sandbox.namespaces import KUBELET_SYSCTLS, MARK, Holder, find_holder
from sandbox.waiting import wait_until
from tests.node.host import HOST_LINKS, machine_lock
from tests.node.outbound import OUTBOUND_CHAINS

PODS = Path(__file__).parent / "pods.yaml"
# The names of the clusters in the tests of this folder, and the numbers of their nodes.
CLUSTERS = ("first", "second", "third", "fourth", "several")
NODES = (1, 2, 3)
CLUSTER_LINKS = "dts-"  # the names of clusters' links begin with it (Layout.host_link)
Machine = dict[str, set[str]]
IPTABLES_FRAME = (
    "#",
    "*",
    "COMMIT",
    ":INPUT",
    ":OUTPUT",
    ":FORWARD",
    ":PREROUTING",
    ":POSTROUTING",
)


class ClusterUser:
    """A cluster and the commands that the tests give it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def try_kubectl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.cluster.kubectl, *arguments],
            env=self.cluster.environment(),
            capture_output=True,
            text=True,
            timeout=400,  # longer than the timeouts that tests give to kubectl
            check=False,
        )

    def kubectl(self, *arguments: str) -> str:
        done = self.try_kubectl(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ctr(self, *arguments: str) -> str:
        head = ["ctr", "--address", str(self.cluster.containerd_address), "--namespace", "k8s.io"]
        return subprocess.run(
            [*head, *arguments], capture_output=True, text=True, check=True
        ).stdout

    def run_pods(self, file: Path = PODS) -> None:
        """Apply the file of pods, and wait until they are ready."""
        self.kubectl("apply", "-f", str(file))
        self.kubectl("-n", "probe", "rollout", "status", "statefulset/web", "--timeout=300s")

    def probe(self, pod: str, *arguments: str) -> str:
        """Run the probe program in a pod, and return what it prints."""
        return self.kubectl("-n", "probe", "exec", pod, "--", "/probe", *arguments)

    def fetch(self, pod: str, url: str) -> str:
        """Return the answer of `url`, asked from the pod. It waits, because kube-proxy and DNS see
        new pods late.
        """
        answer = ""

        def no_answer() -> str | None:
            nonlocal answer
            done = self.try_kubectl("-n", "probe", "exec", pod, "--", "/probe", "get", url)
            answer = done.stdout
            return done.stderr if done.returncode else None

        wait_until(f"an answer of {url}", no_answer, timeout_seconds=300)
        return answer

    def uid(self) -> str:
        """Return a text that is another one after each new start of the cluster."""
        return self.kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")

    def holder(self) -> Holder:
        """Return the process that holds the cluster's namespaces."""
        holder = find_holder(self.cluster.layout)
        assert holder is not None
        return holder


def lines(*command: str) -> set[str]:
    """Return the lines that a command prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines())


def machine(state_root: Path) -> Machine:
    """Return everything on this machine that a cluster below `state_root` could leave behind, by
    kind.
    """
    places = ("/var/log/pods", "/var/log/containers", "/run/containerd", "/run/netns")
    places += ("/opt/containerd", "/usr/libexec/kubernetes", "/etc/cni", "/etc/kubernetes")
    sysctls = (*KUBELET_SYSCTLS, "net/ipv4/ip_forward", "net/netfilter/nf_conntrack_max")
    with machine_lock():  # so that no other cluster is starting or ending
        used_by_others = any(holder_of_others(state_root))
        return {
            "processes": {
                line for line in lines("ps", "-eww", "-o", "args") if str(state_root) in line
            },
            "mounts": lines("findmnt", "--raw", "--noheadings", "--output", "TARGET,FSTYPE"),
            "links": {line.split("@")[0] for line in lines("ip", "-oneline", "link")},
            "routes": lines("ip", "-4", "route", "show", "table", "all"),
            # os.walk, unlike glob, does not fail when groups of other clusters come and go.
            "cgroups": {
                folder
                for folder, _, _ in os.walk("/sys/fs/cgroup")
                if "/disttrain-sandbox/" in folder
                or (folder.endswith("/disttrain-sandbox") and not used_by_others)
            },
            "named network namespaces": lines("ip", "netns", "list"),
            "iptables": lines("iptables-save", "-t", "nat")
            | lines("iptables-save", "-t", "filter"),
            "sysctls": {
                f"{name}={path.read_text()}"
                for name in sysctls
                if (path := Path("/proc/sys") / name).exists()
            },
            "folders": {place for place in places if Path(place).exists()},
            # The mount points stay while any cluster uses them.
            "mount points": set()
            if used_by_others
            else {str(folder) for folder in mountpoints.FIXED if folder.exists()},
            "state": {str(path) for path in state_root.glob("*/*")},
        }


def holder_of_others(state_root: Path) -> Iterator[str]:
    """Yield the folders of the clusters that run beside those of this test."""
    for command in lines("ps", "-eww", "-o", "args"):
        _, mark, folder = command.partition(f" {MARK} ")
        if mark and not Path(folder).is_relative_to(state_root):
            yield folder


def left_behind(before: Machine, after: Machine, state_root: Path) -> Machine:
    """Return what is new, and may have been left by a cluster below `state_root`.

    Other test processes make clusters, hosts and mounts at the same time. They are recognized by
    their names: links by the beginning of a name that no cluster of this test has, control groups
    by the cluster's identity, and mounts by a temporary folder that is not `state_root`.
    """
    new = {kind: after[kind] - before[kind] for kind in before}
    layouts = [Layout(name, state_root, number) for name in CLUSTERS for number in NODES]
    our_links = tuple(layout.host_link for layout in layouts)
    identities = tuple(layout.identity for layout in layouts)

    def is_of_others(kind: str, line: str) -> bool:
        if kind in ("links", "routes"):
            others = HOST_LINKS in line or CLUSTER_LINKS in line
            return others and not any(link in line for link in our_links)
        if kind == "cgroups":
            path = line.partition("/disttrain-sandbox/")[2]
            return path != "" and not path.startswith(identities)
        if kind == "mounts":
            return line.startswith(tempfile.gettempdir()) and str(state_root) not in line
        # Comments with times and the frame of the listing come with any program's first rule.
        return kind == "iptables" and (OUTBOUND_CHAINS in line or line.startswith(IPTABLES_FRAME))

    kept = {kind: {e for e in new[kind] if not is_of_others(kind, e)} for kind in new}
    return {kind: entries for kind, entries in kept.items() if entries}
