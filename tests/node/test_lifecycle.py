"""k3s over its whole life: adoption, upgrade, pods with GPUs, access, data and secrets."""

import json
from pathlib import Path

import pytest

from tests.node.lab import (
    DATA_ROOT,
    NAMESPACE,
    OLD,
    UP,
    VERSION,
    CommandLines,
    Lab,
    counts,
    different,
    failure,
    kubeconfig,
    running_version,
    wait_for,
)
from tests.node.rootfs import PASSWORD

# --- adoption ---


@pytest.mark.slow
def test_k3s_of_somebody_else_is_refused_then_adopted_and_never_touched(lab: Lab) -> None:
    lab.install_by_hand(K3S_VERSION=OLD)
    lab.host.shell("mv /etc/rancher/disttrain /root/aside")  # makes it somebody else's
    before = lab.host.files()
    stack = lab.stack()
    output = failure(stack)
    assert "pulumi config set k3sExisting adopt" in output
    stack.set("k3sExisting", "adopt")
    output = stack.up()
    assert f"taken as it is: k3s version {OLD}" in output
    assert running_version(lab, kubeconfig(stack)) == OLD
    stack.destroy()
    theirs = {path: entry.lasting for path, entry in before.items()}
    now = {p: e.lasting for p, e in lab.host.files().items() if not p.startswith(DATA_ROOT)}
    assert now == theirs
    assert lab.host.shell("systemctl is-active k3s").strip() == "active"
    lab.host.shell("mv /root/aside /etc/rancher/disttrain")
    lab.remove_by_hand()


@pytest.mark.slow
def test_objects_in_an_adopted_k3s_are_deleted_by_destroy(lab: Lab) -> None:
    """`destroy` deletes what the stack has made in a k3s of somebody else, and leaves that k3s
    alone.
    """
    lab.install_by_hand(OWNER="somebody-else", STACK="organization/disttrain/theirs")
    stack = lab.stack(k3sExisting="adopt")
    stack.up()
    assert len(lab.objects()) == 5
    stack.destroy()
    assert lab.objects() == {}
    assert lab.host.shell("systemctl is-active k3s").strip() == "active"
    lab.remove_by_hand()


def test_what_was_on_the_host_before_outlives_k3s(lab: Lab) -> None:
    lab.host.shell(
        "mkdir -p /var/lib/cni /root/.kube /etc/rancher; echo theirs >/var/lib/cni/theirs; "
        "echo theirs >/root/.kube/config; ln -s /opt/theirs/kubectl /usr/local/bin/kubectl"
    )
    before = lab.host.files()
    lab.install_by_hand()
    lab.remove_by_hand()
    assert different(before, lab.host.files()) == []
    lab.host.shell("rm -r /var/lib/cni /root/.kube /etc/rancher /usr/local/bin/kubectl")


TOOLKIT = """
mkdir -p /usr/local/nvidia/toolkit /etc/containerd/conf.d
echo x >/usr/local/nvidia/toolkit/nvidia-container-runtime
echo x >/etc/containerd/conf.d/99-nvidia.toml"""


def test_what_the_operators_toolkit_leaves_goes_with_k3s(lab: Lab) -> None:
    lab.install_by_hand()
    lab.host.shell(TOOLKIT)
    lab.remove_by_hand()
    assert lab.differences() == []


@pytest.mark.slow
def test_toolkit_and_containerd_of_the_hosts_own_stay(lab: Lab) -> None:
    lab.host.shell(TOOLKIT)
    before = lab.host.files()
    lab.install_by_hand()
    lab.remove_by_hand()
    assert different(before, lab.host.files()) == []
    lab.host.shell("rm -r /usr/local/nvidia /etc/containerd")
    lab.install_by_hand()
    lab.host.shell(f"{TOOLKIT}; echo theirs >/etc/containerd/config.toml")  # made later, by others
    lab.remove_by_hand()
    assert lab.differences() == ["/etc/containerd", "/etc/containerd/config.toml"]
    lab.host.shell("rm -r /etc/containerd")


# --- upgrade, pods with GPUs ---


@pytest.mark.in_depth
def test_another_version_is_an_upgrade_in_place_but_not_under_pods_with_gpus(lab: Lab) -> None:
    stack = lab.stack(k3sVersion=OLD)
    stack.up()
    objects = lab.objects()
    authority = kubeconfig(stack)["clusters"][0]["cluster"]["certificate-authority-data"]
    put_gpu_pod(lab)
    before = lab.host.files()
    stack.set("k3sVersion", VERSION)
    output = failure(stack)
    assert "pods with GPUs run, and would lose them: disttrain/with-gpu" in output
    assert "pulumi config set k3sForce true" in output
    assert lab.host.files() == before
    lab.kubectl("delete", "pod", "with-gpu", "--namespace", NAMESPACE, "--now")
    output = stack.up()
    assert "starting k3s (changed: binary service)" in output
    assert {**counts(output), "unchanged": 0} == {"updated": 1, "unchanged": 0}, output
    assert running_version(lab, kubeconfig(stack)) == VERSION
    assert kubeconfig(stack)["clusters"][0]["cluster"]["certificate-authority-data"] == authority
    assert lab.objects() == objects
    stack.destroy()
    assert lab.differences() == []


@pytest.mark.slow
def test_k3s_is_changed_under_pods_with_gpus_if_forced(lab: Lab) -> None:
    lab.install_by_hand(K3S_VERSION=OLD)
    lab.kubectl("create", "namespace", NAMESPACE)
    put_gpu_pod(lab)
    done = lab.try_install("update")
    assert done.returncode == 1
    assert "pods with GPUs run, and would lose them: disttrain/with-gpu" in done.stderr
    assert UP in lab.install_by_hand("update", K3S_FORCE="true")


def put_gpu_pod(lab: Lab) -> None:
    """Make a pod that runs with a GPU according to the API. No scheduler or kubelet handles it."""
    account = ("get", "serviceaccounts", "--namespace", NAMESPACE, "-o", "name")
    wait_for("the service account", lambda: "default" in lab.kubectl(*account))
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "with-gpu", "namespace": NAMESPACE},
        "spec": {"schedulerName": "nobody", "containers": [container]},
    }
    lab.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    running = ("--subresource=status", "--type=merge", '--patch={"status":{"phase":"Running"}}')
    lab.kubectl("patch", "pod", "with-gpu", "--namespace", NAMESPACE, *running)


# --- access ---


@pytest.mark.in_depth
def test_host_behind_a_jump_host_is_installed(lab: Lab) -> None:
    """`up` installs k3s on a host that it reaches through a jump host.

    The test host is its own jump host: there are two connections, the second through the first.
    """
    stack = lab.stack(
        "deploy",
        sshHost="127.0.0.1",
        sshJumpHost=lab.host.address,
        sshJumpUser="admin",
        sshJumpHostKey=lab.host_key,
        clusterAccess="tunnel",
    )
    assert UP in stack.up()
    assert running_version(lab, kubeconfig(stack)) == VERSION
    stack.destroy()
    assert lab.differences() == []


# --- data ---


def test_purge_has_to_be_confirmed(lab: Lab) -> None:
    output = failure(lab.stack(dataOnDestroy="purge", purgeConfirmed="yes"))
    assert "purgeConfirmed: 'yes' cannot be used: " in output
    assert f"Set {DATA_ROOT}, the value of dataRoot" in output


# --- secrets ---


def test_secrets_are_in_no_state_log_or_command_line_and_on_the_host_only_for_root(
    lab: Lab, tmp_path: Path
) -> None:
    proxy = "http://me:proxy-hunter3@127.0.0.1:3128"
    stack = lab.stack(
        "admin",
        sudoPassword=PASSWORD,
        httpProxy=proxy,
    )
    registry = 'k3sRegistries.configs["registry.test"].auth.password'
    stack.set(registry, "reg-hunter2", secret=True)
    stack.environment["TMPDIR"] = str(tmp_path)
    with CommandLines() as watch:
        output = stack.up()
        state = lab.state(stack) + stack.export()
        for path in ("k3s/registries.yaml", "k3s/k3s.yaml", "disttrain"):
            assert lab.host.shell(f"stat -c '%a %U' /etc/rancher/{path}").strip() == "600 root"
        assert lab.host.shell("stat -c '%a %U' /etc/default/k3s").strip() == "600 root"
        assert "reg-hunter2" in lab.host.shell("cat /etc/rancher/k3s/registries.yaml")
        shown = lab.kubectl("get", "configmaps,pv,pvc", "--all-namespaces", "-o", "yaml")
        stack.preview()
        assert list(tmp_path.glob("kubeconfig*")), "the provider leaves no copies any more"
        output += stack.destroy()
    left = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert not [text for text in left if "client-key" in text or "PRIVATE KEY" in text]
    output += lab.host.shell("journalctl --no-pager --all --output=cat")
    assert "127.0.0.1:3128" not in shown  # A URL with a password is in the Secret only.
    for secret in (PASSWORD, "reg-hunter2", "proxy-hunter3", lab.private_key.splitlines()[1]):
        assert secret not in output
        assert secret not in state
        assert secret not in shown
        assert not [line for line in watch.seen if secret.encode() in line]
    assert any(b"k3s" in line and b"server" in line for line in watch.seen), "nothing was watched"
