"""Adoption, upgrade, pods with GPUs, access, data, secrets: k3s from the first day to the last."""

import socket
import subprocess
from pathlib import Path

import pytest
import yaml

from sandbox.cluster_commands import programs
from tests.node.lab import (
    DATA_ROOT,
    OLD,
    VERSION,
    CommandLines,
    Lab,
    counts,
    different,
    failure,
    kubeconfig,
)
from tests.node.rootfs import PASSWORD


def kubectl(lab: Lab, config: dict[str, object], *arguments: str) -> str:
    """The real kubectl of this machine, with that kubeconfig."""
    file = lab.scratch / "kubeconfig"
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(config))
    options = (f"--kubeconfig={file}", "--cache-dir", str(lab.scratch))
    done = subprocess.run(
        [str(programs() / "kubectl"), *options, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    file.unlink()
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- adoption ---


def test_k3s_of_somebody_else_is_refused_then_adopted_and_never_touched(lab: Lab) -> None:
    lab.install_by_hand(K3S_VERSION=OLD)
    lab.host.shell("mv /etc/rancher/disttrain /root/aside")  # now it is somebody else's
    before = lab.host.files()
    stack = lab.stack()
    output = failure(stack)
    assert "allowed: k3sExisting: adopt" in output
    stack.set("k3sExisting", "adopt")
    output = stack.up()
    assert f"taken as it is: k3s version {OLD}" in output
    assert f'"gitVersion": "{OLD}"' in kubectl(lab, kubeconfig(stack), "get", "--raw", "/version")
    stack.destroy()
    theirs = {path: entry.lasting for path, entry in before.items()}
    now = {p: e.lasting for p, e in lab.host.files().items() if not p.startswith(DATA_ROOT)}
    assert now == theirs
    assert lab.host.shell("systemctl is-active k3s").strip() == "active"
    lab.host.shell("mv /root/aside /etc/rancher/disttrain")
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


def test_toolkit_and_containerd_of_the_hosts_own_stay(lab: Lab) -> None:
    lab.host.shell(TOOLKIT)
    before = lab.host.files()
    lab.install_by_hand()
    lab.remove_by_hand()
    assert different(before, lab.host.files()) == []
    lab.host.shell("rm -r /usr/local/nvidia /etc/containerd")
    lab.install_by_hand()
    lab.host.shell(f"{TOOLKIT}; echo theirs >/etc/containerd/config.toml")  # made since, by others
    lab.remove_by_hand()
    assert lab.differences() == ["/etc/containerd", "/etc/containerd/config.toml"]
    lab.host.shell("rm -r /etc/containerd")


# --- upgrade, pods with GPUs ---


def test_another_version_is_an_upgrade_in_place(lab: Lab) -> None:
    stack = lab.stack(k3sVersion=OLD)
    stack.up()
    authority = kubeconfig(stack)["clusters"][0]["cluster"]["certificate-authority-data"]
    stack.set("k3sVersion", VERSION)
    output = stack.up()
    assert "starting k3s (changed: binary service)" in output
    assert counts(output) == {"updated": 1, "unchanged": 6}, output
    assert f'"gitVersion": "{VERSION}"' in kubectl(
        lab, kubeconfig(stack), "get", "--raw", "/version"
    )
    assert kubeconfig(stack)["clusters"][0]["cluster"]["certificate-authority-data"] == authority
    stack.destroy()
    assert lab.differences() == []


@pytest.mark.stand_in("its switches")
def test_k3s_is_not_changed_under_pods_with_gpus_unless_forced(lab: Lab) -> None:
    stack = lab.stack(k3sVersion=OLD)
    stack.up()
    lab.host.shell("echo disttrain/train-singlepod-x >/lab/gpu-pods")
    before = lab.host.files()
    stack.set("k3sVersion", VERSION)
    output = failure(stack)
    assert "pods with GPUs run, and would lose them: disttrain/train-singlepod-x" in output
    assert "k3sForce: true" in output
    assert lab.host.files() == before
    stack.set("k3sForce", "true")
    assert f"k3s {VERSION} is up" in stack.up()


# --- access ---


def test_cluster_is_reached_through_the_ssh_server_alone(lab: Lab) -> None:
    stack = lab.stack("deploy", clusterAccess="tunnel")
    stack.up()
    config = kubeconfig(stack)
    cluster = config["clusters"][0]["cluster"]
    assert cluster["server"].startswith("https://127.0.0.1:2")
    lab.firewall("-I")
    try:
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((lab.host.address, 6443), timeout=5)
        with CommandLines() as watch:
            answer = kubectl(lab, config, "get", "--raw", "/version")
    finally:
        lab.firewall("-D")
    assert f'"gitVersion": "{VERSION}"' in answer
    assert not [line for line in watch.seen if b"PRIVATE KEY" in line]


def test_another_host_key_gets_no_tunnel(lab: Lab) -> None:
    stack = lab.stack("deploy", clusterAccess="tunnel")
    stack.up()
    config = kubeconfig(stack)
    lab.end_tunnels(config)
    lab.host.new_host_key()
    try:
        with pytest.raises(AssertionError, match="Host key verification failed"):
            kubectl(lab, config, "get", "--raw", "/version")
    finally:
        lab.restore_host_key()


def test_host_behind_a_jump_host_is_installed(lab: Lab) -> None:
    """The test host is its own jump host: two connections, the second through the first."""
    stack = lab.stack(
        "deploy",
        sshHost="127.0.0.1",
        sshJumpHost=lab.host.address,
        sshJumpUser="admin",
        sshJumpHostKey=lab.host_key,
        clusterAccess="tunnel",
    )
    assert f"k3s {VERSION} is up" in stack.up()
    answer = kubectl(lab, kubeconfig(stack), "get", "--raw", "/version")
    assert f'"gitVersion": "{VERSION}"' in answer
    stack.destroy()
    assert lab.differences() == []


# --- data ---


@pytest.mark.parametrize("purge", [False, True])
def test_destroy_keeps_the_data_unless_told_and_confirmed(lab: Lab, purge: bool) -> None:
    confirmed = {"dataOnDestroy": "purge", "purgeConfirmed": DATA_ROOT} if purge else {}
    stack = lab.stack(**confirmed)
    stack.up()
    lab.host.shell(f"echo precious >{DATA_ROOT}/runs/checkpoint; echo mine >{DATA_ROOT}/notes")
    stack.destroy()
    kept = lab.host.shell(f"cd {DATA_ROOT}; find . -type f").split()
    assert sorted(kept) == (["./notes"] if purge else ["./notes", "./runs/checkpoint"])
    assert lab.differences() == []


def test_purge_has_to_be_confirmed(lab: Lab) -> None:
    output = failure(lab.stack(dataOnDestroy="purge", purgeConfirmed="yes"))
    assert f"purgeConfirmed: 'yes' is not allowed; allowed: {DATA_ROOT}, to confirm" in output


def test_host_that_is_lost_is_forgotten(lab: Lab) -> None:
    stack = lab.stack()
    stack.up()
    lab.host.shell("systemctl stop ssh")
    try:
        stack.set("hostGone", "true")
        stack.up("--refresh=false")
        stack.destroy()
    finally:
        lab.host.shell("systemctl start ssh")
    assert lab.resources(stack) == []
    lab.remove_by_hand()


# --- secrets ---


def test_secrets_are_in_no_state_log_or_command_line_and_on_the_host_only_for_root(
    lab: Lab,
) -> None:
    proxy = "http://me:proxy-hunter3@127.0.0.1:3128"
    stack = lab.stack(
        "admin",
        sudoPassword=PASSWORD,
        httpProxy=proxy,
    )
    registry = 'k3sRegistries.configs["registry.test"].auth.password'
    stack.set(registry, "reg-hunter2", secret=True)
    with CommandLines() as watch:
        output = stack.up()
        output += stack.destroy() + stack.up()
    secrets = [PASSWORD, "reg-hunter2", "proxy-hunter3", lab.private_key.splitlines()[1]]
    state = lab.state(stack) + stack.export()
    for secret in secrets:
        assert secret not in output
        assert secret not in state
        assert not [line for line in watch.seen if secret.encode() in line]
    assert any(b"k3s" in line and b"server" in line for line in watch.seen), "nothing was watched"
    for path in ("/etc/rancher/k3s/registries.yaml", "/etc/default/k3s", "/etc/rancher/disttrain"):
        assert lab.host.shell(f"stat -c '%a %U' {path}").strip() == "600 root", path
    assert lab.host.shell("stat -c %a /etc/rancher/k3s/k3s.yaml").strip() == "600"
    journal = lab.host.shell("journalctl --no-pager --all --output=cat")
    assert not [secret for secret in secrets if secret in journal]
    assert "reg-hunter2" in lab.host.shell("cat /etc/rancher/k3s/registries.yaml")


FORBIDDEN = ("insecure-skip-tls-verify", "insecureSkipTlsVerify", "StrictHostKeyChecking")


def test_nothing_of_ours_turns_checks_off(lab: Lab) -> None:
    top = Path(__file__).parents[2]
    for path in (*top.glob("infra/**/*"), *top.glob("sandbox/**/*.py"), *top.glob("trainer/**/*")):
        if path.suffix in (".py", ".sh", ".yaml"):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                found = [word for word in FORBIDDEN if word.lower() in line.lower()]
                strict = '"StrictHostKeyChecking": "yes"' in line
                assert not found or strict, f"{path}:{number}: {line}"
                assert "curl -k" not in line
                assert "--insecure" not in line
    stack = lab.stack("deploy", clusterAccess="tunnel")
    stack.up()
    given = yaml.safe_dump(kubeconfig(stack)) + lab.host.shell("cat /etc/rancher/k3s/*.yaml")
    assert not [word for word in FORBIDDEN if word in given]
