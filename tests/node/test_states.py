"""States of k3s on the host, as the script that repairs and removes k3s finds them.

The look at k3s goes over SSH, as the program takes it. test_repair.py has the same by `pulumi up`.
"""

import re

import pytest

from infra.node.k3s_observation import K3sObservation, observe_k3s
from infra.node.shell_program import assemble_program, script_text
from tests.in_depth import in_depth
from tests.node.lab import OLD, UP, VERSION, Lab, rewritten

IDS = {"REPAIR_ID": "repair-1", "GENERATION_ID": "generation-1"}
NOTED = K3sObservation("repair-1", "generation-1", role="k3s")
DATA = "/var/lib/rancher/k3s/server/db"
SECRET = "/etc/rancher/k3s/disttrain-agent-secret"


def look(lab: Lab) -> K3sObservation:
    """Return what the host says about its k3s."""
    found = observe_k3s(lab.access)
    assert found.problem == ""
    return found


def test_k3s_that_is_as_it_was_installed_keeps_its_ids(lab: Lab) -> None:
    lab.install_by_hand(**IDS)
    before = lab.host.files()
    assert look(lab) == NOTED
    assert rewritten(before, lab.host.files()) == []
    lab.install_by_hand(**IDS)
    assert rewritten(before, lab.host.files()) == []


@pytest.mark.parametrize(
    "damage",
    [
        "systemctl stop k3s; truncate -s 1000 /usr/local/bin/k3s",
        "echo 'write-kubeconfig-mode: \"0644\"' >>/etc/rancher/k3s/config.yaml",
        in_depth("systemctl stop k3s"),
        in_depth("systemctl stop k3s; rm /etc/systemd/system/k3s.service"),
        in_depth("rm /usr/local/bin/k3s"),
        in_depth("rm /usr/local/bin/k3s-uninstall.sh"),
        in_depth("rm /etc/rancher/k3s/k3s.yaml"),
        in_depth(f"rm {SECRET}"),
    ],
)
def test_stopped_or_damaged_k3s_is_seen_and_repaired(lab: Lab, damage: str) -> None:
    """A stopped or damaged k3s gets another repair id, and the script repairs it.

    Otherwise `up` would not see the damage, because none of its own inputs has changed.
    """
    lab.install_by_hand(**IDS)
    secret = lab.host.path(SECRET).read_text()
    lab.host.shell(damage)
    found = look(lab)
    assert found.repair_id != NOTED.repair_id
    assert found.generation_id == NOTED.generation_id
    assert UP in lab.install_by_hand("update", REPAIR_ID=found.repair_id)
    assert look(lab) == found
    assert lab.host.shell("systemctl is-active k3s").strip() == "active"
    assert lab.host.path(SECRET).read_text() == secret  # machines that have joined know it


@pytest.mark.parametrize(
    "wipe",
    [
        f"systemctl stop k3s; rm -rf {DATA}; systemctl start k3s",
        in_depth("systemctl stop k3s; rm -rf /var/lib/rancher/k3s; systemctl start k3s"),
        in_depth("/usr/local/bin/k3s-uninstall.sh"),
    ],
)
def test_wiped_k3s_is_seen_and_not_only_repaired(lab: Lab, wipe: str) -> None:
    """A wiped k3s gets another generation id, and the script refuses to only repair it.

    What was in the cluster has to be made anew together with k3s.
    """
    lab.install_by_hand(**IDS)
    lab.host.shell(wipe)
    found = look(lab)
    assert found.repair_id != NOTED.repair_id
    assert found.generation_id != NOTED.generation_id
    done = lab.try_install("update", REPAIR_ID=found.repair_id)
    assert done.returncode == 1
    assert "the data of k3s on this host were wiped" in done.stderr
    # Pulumi's engine replaces the command: it runs first `delete`, then `create`.
    lab.remove_by_hand()
    lab.install_by_hand(REPAIR_ID=found.repair_id, GENERATION_ID=found.generation_id)
    assert look(lab) == found


@pytest.mark.stand_in("its certificates, of which one can be made to end")
@pytest.mark.parametrize("names", [in_depth("client.crt"), "*"])
def test_renewed_certificate_is_seen_and_no_new_cluster(lab: Lab, names: str) -> None:
    """New certificates of k3s give another repair id, so that the kubeconfig is fetched again.

    The generation id stays the same, because the cluster still has its data.
    """
    lab.install_by_hand(**IDS)
    lab.host.shell(f"cd /var/lib/rancher/k3s/server/tls && rm {names} && systemctl restart k3s")
    found = look(lab)
    assert found.repair_id != NOTED.repair_id
    assert found.generation_id == NOTED.generation_id
    lab.install_by_hand("update", REPAIR_ID=found.repair_id)
    assert look(lab) == found


def test_another_version_keeps_the_ids(lab: Lab) -> None:
    lab.install_by_hand(K3S_VERSION=OLD, **IDS)
    assert look(lab) == NOTED
    lab.install_by_hand("update", **IDS)
    assert look(lab) == NOTED


@pytest.mark.stand_in("a node whose kubelet does not come back")
def test_node_that_was_ready_before_the_restart_does_not_count(lab: Lab) -> None:
    """The script waits until the node has become Ready after the restart of k3s.

    A Ready from before the restart does not count. Otherwise a k3s without a working node would
    pass as healthy.
    """
    lab.install_by_hand(K3S_VERSION=OLD)
    lab.host.shell("touch /lab/stale-node")
    impatient = re.sub(r"READY_SECONDS=\d+", "READY_SECONDS=3", script_text("k3s-install.sh"))
    done = lab.try_install("update", text=impatient)
    assert done.returncode == 1
    assert "k3s did not get its node Ready in" in done.stderr
    lab.host.shell("rm /lab/stale-node; systemctl restart k3s")
    assert UP in lab.install_by_hand("update")


# --- whose k3s it is ---

MINE = {"OWNER": "11111111", "STACK": "organization/disttrain/dev"}
OTHERS = {"OWNER": "22222222", "STACK": "organization/disttrain/dev"}


def test_k3s_of_another_stack_of_the_same_name_is_left_alone(lab: Lab) -> None:
    """The script does not change or remove the k3s of somebody else's stack of the same name."""
    lab.install_by_hand(**MINE)
    before = lab.host.files()
    done = lab.try_install(**OTHERS)
    assert done.returncode == 1
    assert "belongs to another stack (organization/disttrain/dev)" in done.stderr
    assert "belongs to another stack" in lab.install_by_hand("delete", **OTHERS)
    assert rewritten(before, lab.host.files()) == []
    assert "it is not ours" in lab.install_by_hand(K3S_EXISTING="adopt", **OTHERS)
    assert rewritten(before, lab.host.files()) == []
    assert "k3s is removed" in lab.install_by_hand("delete", **MINE)
    assert lab.differences() == []


@pytest.mark.parametrize("first", [in_depth("true"), "systemctl stop k3s"])
def test_k3s_with_a_run_of_another_stack_is_not_removed(lab: Lab, first: str) -> None:
    """The script does not remove a k3s with a run of another stack, also if k3s was stopped.

    Otherwise a training would lose its cluster, and perhaps its data.
    """
    lab.install_by_hand(**MINE)
    lab.put_run("22222222", "organization/disttrain/multipod", "run-multipod")
    lab.put_run("11111111", "organization/disttrain/dev", "run-dev")
    lab.host.shell(first)
    before = lab.host.files()
    done = lab.try_install("delete", **MINE)
    assert done.returncode == 1
    assert "disttrain/run-multipod of stack organization/disttrain/multipod" in done.stderr
    assert "pulumi destroy --stack organization/disttrain/multipod" in done.stderr
    assert "run-dev" not in done.stderr
    if first == "true":
        assert rewritten(before, lab.host.files()) == []
    # A stopped k3s has been started to be asked.
    assert lab.host.shell("systemctl is-active k3s").strip() == "active"
    lab.take_run("run-multipod")
    assert "k3s is removed" in lab.install_by_hand("delete", **MINE)


@pytest.mark.parametrize(
    ("namespace", "existing", "refused"),
    [
        ("disttrain", "refuse", True),
        ("elsewhere", "refuse", True),  # k3s would go with it
        ("disttrain", "adopt", True),
        ("elsewhere", "adopt", False),
    ],
)
def test_host_is_left_unless_runs_would_be_lost(
    lab: Lab, namespace: str, existing: str, refused: bool
) -> None:
    """A stack whose `sshHost` changes may not leave the former host while others' runs would be
    lost.

    From an adopted k3s only the stack's own namespace is removed, so runs elsewhere do not matter.
    tests/e2e has the same by `pulumi up`.
    """
    lab.install_by_hand(OWNER="ours" if existing == "refuse" else "somebody-else")
    lab.put_run("ours", "organization/disttrain/dev", "mine")
    lab.put_run("theirs", "organization/disttrain/other", "r", namespace)
    given = {"NAMESPACE": "disttrain", "OWNER": "ours", "K3S_EXISTING": existing}
    program = assemble_program(script_text("k3s-guard.sh"), given, "root")
    done = lab.host.try_shell("sh -s -- delete", program)
    assert (done.returncode != 0) == refused, done.stdout + done.stderr
    assert ("pulumi destroy --stack organization/disttrain/other" in done.stderr) == refused
    assert "disttrain/dev" not in done.stderr


@pytest.mark.parametrize(
    ("noted_owner", "existing", "words"),
    [
        ("ours", "refuse", ""),
        ("ours", "adopt", "this stack has installed the k3s of this host itself"),
        ("theirs", "refuse", "belongs to another stack"),
        ("theirs", "adopt", ""),
    ],
)
def test_setting_that_does_not_fit_the_k3s_is_refused_first(
    lab: Lab, noted_owner: str, existing: str, words: str
) -> None:
    """A value of `k3sExisting` that does not fit the host's k3s is refused before any change."""
    lab.install_by_hand(OWNER=noted_owner)
    before = lab.host.files()
    given = {"NAMESPACE": "disttrain", "OWNER": "ours", "K3S_EXISTING": existing}
    program = assemble_program(script_text("k3s-guard.sh"), given, "root")
    done = lab.host.try_shell("sh -s -- create", program)
    assert (done.returncode != 0) == bool(words), done.stdout + done.stderr
    assert words in done.stderr
    assert rewritten(before, lab.host.files()) == []


@pytest.mark.stand_in("its switches")
def test_k3s_that_cannot_be_started_any_more_can_be_removed(lab: Lab) -> None:
    lab.install_by_hand(**MINE)
    lab.host.shell("touch /lab/fail-to-start; systemctl stop k3s")
    short = re.sub(r"ANSWER_SECONDS=\d+", "ANSWER_SECONDS=2", script_text("k3s-install.sh"))
    done = lab.try_install("delete", text=short, **MINE)
    assert done.returncode == 0, done.stderr
    assert "k3s does not answer, so it was not asked" in done.stdout
    assert "k3s is removed" in done.stdout
    assert lab.differences() == []


def test_disk_that_is_mounted_among_the_folders_is_not_emptied(lab: Lab) -> None:
    """The removal of k3s does not delete files of a disk that is mounted below its folders."""
    lab.install_by_hand()
    disk = "/var/log/pods/disk"
    lab.host.shell(f"mkdir -p {disk}; mount -t tmpfs tmpfs {disk}; echo mine >{disk}/precious")
    try:
        lab.install_by_hand("delete")
        assert lab.host.shell(f"cat {disk}/precious") == "mine\n"
    finally:
        lab.host.shell(f"umount {disk}; rm -rf /var/log/pods")
    assert lab.differences() == []


def test_environment_of_the_host_does_not_reach_the_install(lab: Lab) -> None:
    """Variables in root's environment on the host do not change the installation.

    Otherwise, for example, a proxy with its password would be written into the settings of k3s.
    """
    noise = "DRY_RUN=1 K3S_EXISTING=adopt HTTPS_PROXY=http://me:secret@corp:3128 K3S_TOKEN=x"
    done = lab.try_install(environment=noise)
    assert f"k3s {VERSION} is up" in done.stdout, done.stderr
    assert not lab.host.exists("/etc/default/k3s")
