"""Checks of a Kubernetes that is already on the host.

It may be disttrain's own k3s, a k3s that is installed incompletely, or another Kubernetes.
"""

from cli.check import Check, Fault, error, only_for_own_k3s, skip_unless, warning
from cli.facts import Facts
from infra.node.expectations import Expectations

UNINSTALL = "/usr/local/bin/k3s-uninstall.sh (it deletes that cluster), or set cluster: existing"


def k3s_complete(facts: Facts, expect: Expectations) -> Fault | str:
    """The parts of k3s (binary, systemd unit, data) are all present or all absent."""
    only_for_own_k3s(expect)
    parts = {name: facts.one(f"k3s_{name}") == "yes" for name in ("binary", "unit", "data")}
    there = [name for name, is_there in parts.items() if is_there]
    if not there:
        return "not installed yet"
    # The data may be absent: the installation may have been killed before the first start of k3s.
    missing = [name for name in ("binary", "unit") if not parts[name]]
    if missing:
        evidence = f"k3s is half installed: {', '.join(there)} there, {', '.join(missing)} missing"
        if facts.one("k3s_ours") == "yes":
            return warning(evidence, "run `pulumi up`: it installs what is missing")
        return error(evidence, f"remove the rest ({', '.join(there)}) by hand, or run {UNINSTALL}")
    return "installed"


def k3s_owner(facts: Facts, expect: Expectations) -> Fault | str:
    """The k3s on the host was installed by disttrain, which changes no other."""
    only_for_own_k3s(expect)
    whole = facts.one("k3s_binary") == facts.one("k3s_unit") == "yes"
    skip_unless(whole, "k3s is not installed, or not all of it")
    if facts.one("k3s_ours") != "yes":
        return warning(
            "k3s is installed, but not by disttrain",
            "set cluster: existing and kubeconfig: /etc/rancher/k3s/k3s.yaml to use it as it is",
        )
    return "installed by disttrain"


def k3s_running(facts: Facts, expect: Expectations) -> Fault | str:
    """The service k3s is running, if it is installed."""
    only_for_own_k3s(expect)
    skip_unless(facts.one("k3s_unit") == "yes", "k3s is not installed yet")
    state = facts.one("k3s_active")
    if state == "active":
        return state
    start = "run `pulumi up`, which starts it" if facts.one("k3s_ours") == "yes" else "start it"
    return warning(
        f"the service k3s is {state}", f"{start}; `journalctl -u k3s -n 50` says why it stopped"
    )


def k3s_leftovers(facts: Facts, expect: Expectations) -> Fault | str:
    """No mounts are left of a Kubernetes that was removed."""
    only_for_own_k3s(expect)
    mounts = facts.number("kubelet_mounts")
    if mounts and facts.one("k3s_binary") == "no" and not facts.all("kubernetes"):
        return warning(
            f"{mounts} mounts of a Kubernetes that is gone (/run/k3s, /var/lib/kubelet)",
            "reboot, or umount them (grep -e /run/k3s -e /var/lib/kubelet /proc/self/mounts)",
        )
    return f"{mounts} mounts"


def other_kubernetes(facts: Facts, expect: Expectations) -> Fault | str:
    """No other Kubernetes is on the host; two would use the same ports, rules and groups."""
    only_for_own_k3s(expect)
    found = facts.all("kubernetes")
    if found:
        return error(
            f"another Kubernetes is on this host: {', '.join(found)}",
            "set cluster: existing and its kubeconfig, or remove that Kubernetes first",
        )
    return "none"


def other_containerd(facts: Facts, expect: Expectations) -> Fault | str:
    """The host's own containerd runs no pods; it may serve Docker."""
    only_for_own_k3s(expect)
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
