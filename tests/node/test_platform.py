"""A platform that is up on a host: its outputs, the ways to its cluster, and its end."""

import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.stack import PulumiFailedError, Stack
from tests.crds import definition
from tests.in_depth import slow
from tests.node.lab import (
    DATA_ROOT,
    VERSION,
    CommandLines,
    counts,
    failure,
    kubeconfig,
    kubectl,
    running_version,
    wait_for,
)
from tests.node.standing import Platform

THEIRS = "organization/disttrain/multipod"


def test_outputs_lead_to_the_cluster_and_to_the_data(platform: Platform) -> None:
    """The outputs of a platform name the claim and the data folder, and its kubeconfig works.

    The kubeconfig needs only the host's SSH server: it opens the tunnel by itself.
    """
    lab, stack = platform.lab, platform.stack
    owner = stack.output("owner")
    config, namespace = kubeconfig(stack), stack.output("namespace")

    def claim() -> Any:
        claims = ("get", "pvc", "--namespace", namespace, "-o", "json")
        (item,) = json.loads(kubectl(lab, config, *claims))["items"]
        return item

    assert claim()["metadata"]["name"] == stack.output("claim")
    assert claim()["metadata"]["labels"]["disttrain.dev/owner"] == owner
    # `up` does not wait for the claim. If it stays unbound, the pod that waits for it shows that.
    wait_for("the claim to be bound", lambda: claim()["status"]["phase"] == "Bound")
    assert stack.output("hostDataPath") == DATA_ROOT
    assert lab.host.exists(f"{DATA_ROOT}/runs")


def test_stack_of_a_run_reads_the_platform_of_another(platform: Platform) -> None:
    """A preview of a run reads the platform of another stack, and reaches the cluster by its
    kubeconfig.

    That kubeconfig opens a tunnel.
    """
    lab = platform.lab
    run = lab.run_stack(platform.stack.name)
    output = run.preview()
    for made in ("ClusterAccess cluster create", "batch/v1:Job", "configMap"):
        assert made.lower() in output.lower(), output


def test_platform_that_is_not_up_is_said_with_both_ways_out(platform: Platform) -> None:
    """A run on a platform that is not up, or does not exist, is told so, with two ways out.

    For a missing stack, Pulumi's engine itself would only say "unknown stack".
    """
    lab = platform.lab
    for name in ("nobody", lab.stack().name):
        with pytest.raises(PulumiFailedError) as refusal:
            lab.run_stack(name).preview()
        said = re.sub(r"\s+", " ", str(refusal.value))
        assert f"platform: '{name}' cannot be used: no stack of this name is up" in said
        assert f"pulumi up --stack {name}" in said
        assert 'pulumi config set platform ""' in said
        assert "Traceback" not in said


def test_cluster_is_reached_through_the_ssh_server_alone(platform: Platform) -> None:
    lab = platform.lab
    config = kubeconfig(platform.stack)
    cluster = config["clusters"][0]["cluster"]
    assert cluster["server"].startswith("https://127.0.0.1:2")
    lab.end_tunnels(config)
    lab.firewall("-I")
    try:
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((lab.host.address, 6443), timeout=5)
        with CommandLines() as watch:
            version = running_version(lab, config)
    finally:
        lab.firewall("-D")
    assert version == VERSION
    assert not [line for line in watch.seen if b"PRIVATE KEY" in line]


def test_another_host_key_gets_no_tunnel(platform: Platform) -> None:
    lab = platform.lab
    config = kubeconfig(platform.stack)
    lab.end_tunnels(config)
    lab.host.new_host_key()
    try:
        with pytest.raises(AssertionError, match="Host key verification failed"):
            kubectl(lab, config, "get", "--raw", "/version")
    finally:
        lab.restore_host_key()


WAYS_AROUND_A_CHECK = (
    r"insecure-?skip-?tls-?verify\W+true",
    r"StrictHostKeyChecking\W+(no|off|accept-new)",
)


def test_kubeconfig_and_k3s_files_keep_every_check(platform: Platform) -> None:
    """The kubeconfig and the k3s files that `up` makes turn off no check of certificates or host
    keys.

    tests/cli/test_no_shortcuts.py searches the sources for the same.
    """
    files = platform.lab.host.shell("cat /etc/rancher/k3s/*.yaml")
    given = yaml.safe_dump(kubeconfig(platform.stack)) + files
    found = [way for way in WAYS_AROUND_A_CHECK if re.search(way, given, re.IGNORECASE)]
    assert found == []
    assert "StrictHostKeyChecking" in given  # The tunnel's program in it checks the key.


def test_destroy_is_refused_while_runs_of_others_stand(platform: Platform) -> None:
    """`destroy` of a platform is refused and changes nothing while a run of another stack is there.

    Otherwise k3s would be removed under a training.
    """
    lab, stack = platform.lab, platform.stack
    lab.put_run("theirs", THEIRS, "run-theirs")
    before, objects, files = lab.resources(stack), lab.objects(), lab.host.files()
    output = refused(stack)
    assert f"pulumi destroy --stack {THEIRS}" in output
    assert "Nothing was deleted" in output
    assert lab.resources(stack) == before
    assert lab.objects() == objects
    assert lab.host.files() == files
    lab.take_run("run-theirs")


@pytest.mark.slow
def test_platform_stays_where_runs_of_others_stand(platform: Platform, tmp_path: Path) -> None:
    """`up` refuses to move the platform to another host while a run of another stack is there.

    It must do so before it makes anything on the new host.
    """
    lab, stack = platform.lab, platform.stack
    lab.put_run("theirs", THEIRS, "run-theirs")
    settings = stack.settings_file.read_text()
    before, objects, files = lab.resources(stack), lab.objects(), lab.host.files()
    here = tmp_path / "data"
    moved = {"host": "local", "sshHost": "", "clusterAccess": "direct", "dataRoot": str(here)}
    for key, value in moved.items():
        stack.set(key, value)
    output = failure(stack)
    assert "host or sshHost: it names another host now" in output
    assert f"pulumi destroy --stack {THEIRS}" in output
    assert not here.exists()
    stack.settings_file.write_text(settings)
    lab.take_run("run-theirs")
    stack.up()  # The failed `up` has let the doctor examine this machine instead.
    assert (lab.resources(stack), lab.host.files()) == (before, files)
    assert lab.objects() == {k: v for k, v in objects.items() if "run-theirs" not in k}


@pytest.mark.slow
def test_own_k3s_cannot_be_adopted(platform: Platform) -> None:
    """`k3sExisting: adopt` is refused by preview and `up` if this stack has installed the k3s
    itself.

    Otherwise `up` would remove that k3s.
    """
    lab, stack = platform.lab, platform.stack
    before, objects, files = lab.resources(stack), lab.objects(), lab.host.files()
    settings = stack.settings_file.read_text()
    stack.set("k3sExisting", "adopt")
    for command in (stack.preview, stack.up):
        with pytest.raises(PulumiFailedError) as refusal:
            command()
        output = re.sub(r"\s+", " ", str(refusal.value))
        assert "replace" not in output
        assert "k3sExisting: 'adopt' cannot be used: this stack has installed the k3s" in output
        assert "pulumi config set k3sExisting refuse" in output
    assert (lab.resources(stack), lab.objects(), lab.host.files()) == (before, objects, files)
    stack.settings_file.write_text(settings)
    assert counts(stack.up()).keys() == {"unchanged"}


@pytest.mark.in_depth
def test_monitoring_needs_the_operator_and_goes_with_its_setting(platform: Platform) -> None:
    """`monitoring: existing` is refused without the Prometheus operator's kinds, and works with
    them.

    When the setting is taken back, its objects are removed. The kinds are stand-ins here:
    definitions that accept anything, because the operator's own are not available.
    """
    lab, stack = platform.lab, platform.stack
    settings, before = stack.settings_file.read_text(), lab.resources(stack)
    stack.set("monitoring", "existing")
    output = re.sub(r"\s+", " ", failure(stack))
    assert "monitoring: 'existing' cannot be used: the cluster serves no monitoring" in output
    assert "pulumi config set monitoring none" in output
    kinds = {"podmonitors": "PodMonitor", "prometheusrules": "PrometheusRule"}
    group = "monitoring.coreos.com"
    made = [definition(f"{plural}.{group}", kind) for plural, kind in kinds.items()]
    for item in made:
        item["spec"]["scope"] = "Namespaced"
        lab.kubectl("apply", "-f", "-", stdin=json.dumps(item))
    stack.up()
    namespace = stack.output("namespace")

    def named(what: str) -> list[str]:
        return lab.kubectl("get", what, "--namespace", namespace, "-o", "name").split()

    assert named(f"podmonitors.{group}") == [f"podmonitor.{group}/disttrain"]
    assert named(f"prometheusrules.{group}") == [f"prometheusrule.{group}/disttrain"]
    assert "configmap/disttrain-dashboard" in named("configmaps")
    assert counts(stack.up()).keys() == {"unchanged"}
    stack.settings_file.write_text(settings)
    stack.up()
    assert named(f"podmonitors.{group}") == named(f"prometheusrules.{group}") == []
    assert "configmap/disttrain-dashboard" not in named("configmaps")
    assert lab.resources(stack) == before
    for plural in kinds:
        lab.kubectl("delete", "crd", f"{plural}.{group}")


def test_each_output_takes_one_line_of_the_screen(platform: Platform) -> None:
    """`pulumi up` shows each output on one line, also `platform`, which other stacks read."""
    screen = platform.stack.up()
    shown = screen.partition("Outputs:\n")[2].partition("\nResources:")[0].splitlines()
    assert len(shown) >= 8
    for line in shown:
        assert not line.strip() or re.match(r"    \w+ *: \S", line), screen


@pytest.mark.in_depth
def test_destroy_of_an_unreachable_host_ends_with_an_error(platform: Platform) -> None:
    """`destroy` of a host that does not answer fails, and the next `up` makes the platform whole
    again.
    """
    lab, stack = platform.lab, platform.stack
    lab.host.shell("systemctl stop ssh.socket ssh 2>/dev/null; true")
    lab.host.try_shell("pkill -KILL -x sleep")  # This ends the tunnel.
    try:
        assert "refused" in refused(stack)
        assert lab.findings() == ["connection"]
    finally:
        lab.host.shell("systemctl start ssh")
    stack.up()
    assert set(counts(stack.up())) == {"unchanged"}


@pytest.mark.slow
@pytest.mark.stand_in("its certificates, of which one can be made to end")
def test_k3s_that_does_not_answer_is_asked_on_its_host_and_may_be_gone(
    platform: Platform,
) -> None:
    """If k3s does not answer the stack's kubeconfig, `destroy` asks on the host for runs of other
    stacks.

    Here k3s has new certificates. When k3s itself is gone, what was in it is gone too, and
    `destroy` does not wait for it.
    """
    lab, stack = platform.lab, platform.stack
    lab.put_run("theirs", THEIRS, "run-theirs")
    lab.host.shell("cd /var/lib/rancher/k3s/server/tls && rm * && systemctl restart k3s")
    output = refused(stack)
    assert "the node itself is asked next" in output
    assert f"pulumi destroy --stack {THEIRS}" in output
    assert lab.host.shell("systemctl is-active k3s").strip() == "active"
    lab.host.shell("/usr/local/bin/k3s-uninstall.sh")
    assert lab.findings() == []  # The host is as before an `up`.
    stack.destroy()
    assert lab.resources(stack) == []
    assert lab.differences() == []


@pytest.mark.parametrize("purge", [False, slow(True)])
def test_destroy_keeps_the_data_unless_told_and_confirmed(platform: Platform, purge: bool) -> None:
    lab, stack = platform.lab, platform.stack
    if purge:
        stack.set("dataOnDestroy", "purge")
        stack.set("purgeConfirmed", DATA_ROOT)
        assert counts(stack.up())["updated"] == 2  # the folder, and the note about it on the claim
    lab.host.shell(f"echo precious >{DATA_ROOT}/runs/checkpoint; echo mine >{DATA_ROOT}/notes")
    stack.destroy()
    kept = lab.host.shell(f"cd {DATA_ROOT}; find . -type f").split()
    ours = [] if purge else ["./.disttrain", "./runs/checkpoint"]  # the folder's mark, and the data
    assert sorted(kept) == sorted(["./notes", *ours])
    assert lab.differences() == []


@pytest.mark.slow
def test_data_outlive_a_change_of_storage(platform: Platform) -> None:
    """A change of `storage` together with `dataOnDestroy: keep` keeps the data of the former
    storage.

    Otherwise the folder's command would be deleted with the former settings, and would purge the
    data.
    """
    lab, stack = platform.lab, platform.stack
    stack.set_all({"dataOnDestroy": "purge", "purgeConfirmed": DATA_ROOT})
    stack.up()
    lab.host.shell(f"echo precious >{DATA_ROOT}/runs/checkpoint")
    elsewhere = {
        "storage": "nfs",
        "storageOptions.server": "192.0.2.9",  # No pod is started, so nothing mounts it.
        "storageOptions.path": "/data",
        "dataOnDestroy": "keep",
        "purgeConfirmed": None,
    }
    stack.set_all(elsewhere)
    stack.up()
    assert lab.host.shell(f"cat {DATA_ROOT}/runs/checkpoint").strip() == "precious"
    stack.destroy()
    assert lab.host.shell(f"cat {DATA_ROOT}/runs/checkpoint").strip() == "precious"


@pytest.mark.slow
def test_host_that_is_lost_is_forgotten(platform: Platform) -> None:
    """With `hostGone`, `up` and `destroy` succeed without the host.

    They do so even if the inputs of commands for the host have changed, as with a new version.
    """
    lab, stack = platform.lab, platform.stack
    lab.host.shell("systemctl stop ssh")
    try:
        stack.set("sudoPassword", "another", secret=True)
        stack.set("hostGone", "true")
        stack.up()
        stack.destroy()
    finally:
        lab.host.shell("systemctl start ssh")
    assert lab.resources(stack) == []
    lab.remove_by_hand()


def refused(stack: Stack) -> str:
    """Run a `destroy` that must fail, and return what it says on one line."""
    with pytest.raises(PulumiFailedError) as error:
        stack.destroy()
    return re.sub(r"\s+", " ", str(error.value))
