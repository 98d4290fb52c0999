"""Checks of what Kubernetes there is on the host already: ours, half of it, somebody else's."""

from cli.check import Check, Fault, asked_for, error, warning
from cli.facts import Facts
from infra.expectations import Expectations

UNINSTALL = "/usr/local/bin/k3s-uninstall.sh (it deletes that cluster), or cluster: existing"


def k3s_complete(facts: Facts, expect: Expectations) -> Fault | str:
    """Binary, unit and data belong together."""
    asked_for(expect.provision, "the cluster exists already: its own business")
    parts = {name: facts.one(f"k3s_{name}") == "yes" for name in ("binary", "unit", "data")}
    there = [name for name, is_there in parts.items() if is_there]
    if not there:
        return "not installed yet"
    # data alone is what `kill -9` leaves between unit and first start, or an uninstall with a rest
    missing = [name for name in ("binary", "unit") if not parts[name]]
    if missing:
        evidence = f"k3s is half installed: {', '.join(there)} there, {', '.join(missing)} missing"
        if facts.one("k3s_ours") == "yes":
            return warning(evidence, "pulumi up (it finishes what was cut off)")
        return error(evidence, f"remove the rest ({', '.join(there)}) by hand, or {UNINSTALL}")
    return "installed"


def k3s_owner(facts: Facts, expect: Expectations) -> Fault | str:
    """A k3s that we did not install is used, not changed."""
    asked_for(expect.provision, "the cluster exists already: its own business")
    whole = facts.one("k3s_binary") == facts.one("k3s_unit") == "yes"
    asked_for(whole, "k3s is not installed, or not all of it")
    if facts.one("k3s_ours") != "yes":
        return warning(
            "k3s is there and was not installed by this program",
            "set cluster: existing and kubeconfig: /etc/rancher/k3s/k3s.yaml to use it as it is",
        )
    return "installed by this program"


def k3s_running(facts: Facts, expect: Expectations) -> Fault | str:
    """A unit that is there is up."""
    asked_for(expect.provision, "the cluster exists already: its own business")
    asked_for(facts.one("k3s_unit") == "yes", "k3s is not installed yet")
    state = facts.one("k3s_active")
    if state == "active":
        return state
    return warning(f"k3s is {state}", "journalctl -u k3s -n 50 says why; pulumi up starts it")


def k3s_leftovers(facts: Facts, expect: Expectations) -> Fault | str:
    """Mounts of pods that no kubelet looks after."""
    asked_for(expect.provision, "the cluster exists already: its own business")
    mounts = facts.number("kubelet_mounts")
    if mounts and facts.one("k3s_binary") == "no" and not facts.all("kubernetes"):
        return warning(
            f"{mounts} mounts of a Kubernetes that is gone (/run/k3s, /var/lib/kubelet)",
            "reboot, or umount them (grep -e /run/k3s -e /var/lib/kubelet /proc/self/mounts)",
        )
    return f"{mounts} mounts"


def other_kubernetes(facts: Facts, expect: Expectations) -> Fault | str:
    """Two of them fight for ports, iptables rules and control groups."""
    asked_for(expect.provision, "the cluster exists already: its own business")
    found = facts.all("kubernetes")
    if found:
        return error(
            f"another Kubernetes is on this host: {', '.join(found)}",
            "set cluster: existing and its kubeconfig, or remove that Kubernetes first",
        )
    return "none"


def other_containerd(facts: Facts, expect: Expectations) -> Fault | str:
    """Docker's containerd is fine beside k3s' own; one that runs pods is not."""
    asked_for(expect.provision, "the cluster exists already: its own business")
    pods = facts.number("containerd_pods")
    if pods:
        return warning(
            f"the host's own containerd runs {pods} containers of a Kubernetes",
            "end that Kubernetes first (ctr -n k8s.io containers ls shows them)",
        )
    return ", ".join(facts.all("containerd")) or "none"


K3S_CHECKS = (
    Check("k3s-complete", k3s_complete),
    Check("k3s-owner", k3s_owner),
    Check("k3s-running", k3s_running),
    Check("k3s-leftovers", k3s_leftovers),
    Check("other-kubernetes", other_kubernetes),
    Check("other-containerd", other_containerd),
)
