"""Servers join, are lost, are refused and leave, with a real etcd on three hosts.

These are the steps of `up` without Pulumi's engine; test_servers.py has both.
"""

import contextlib
import subprocess
from collections.abc import Iterator

import pytest

from infra.node.agent import StepError, join, leave
from tests.node.host import Host
from tests.node.lab import wait_for
from tests.node.lan import BRIDGE, NAMES, Lan, switch_off, switch_on
from tests.node.members import SERVER
from tests.node.steps import Steps

pytestmark = pytest.mark.stand_in("its servers, which need no other machine's container runtime")
TWO, THREE = NAMES
ALL = {SERVER: True, TWO: True, THREE: True}
DATABASE = "/var/lib/rancher/k3s/server/db"


@pytest.fixture
def steps(lan: Lan) -> Steps:
    """Return the steps of `up` on these hosts."""
    return Steps(lan)


def refusal_of(step: object, *arguments: object) -> str:
    """Run a step that must be refused, and return the reason."""
    with pytest.raises(StepError) as refused:
        step(*arguments)  # pyright: ignore[reportCallIssue]
    return str(refused.value)


@contextlib.contextmanager
def deaf(host: Host) -> Iterator[None]:
    """Let no packet reach the host on the network of k3s during the block. SSH still works."""
    network = ("nsenter", "--target", str(host.pid), "--net", "--", "iptables", "--wait")
    rule = ("INPUT", "--in-interface", BRIDGE, "--jump", "DROP")
    subprocess.run([*network, "--insert", *rule], check=True)
    try:
        yield
    finally:
        subprocess.run([*network, "--delete", *rule], check=True)


def test_one_server_with_sqlite_gets_etcd_and_goes_on_with_it_alone(steps: Steps) -> None:
    """A single server changes from sqlite to etcd and keeps its content; servers can join and leave
    then.

    The server goes on with etcd when it is alone again.
    """
    lan, lab = steps.lan, steps.lan.lab
    steps.install(GENERATION_ID="of-the-beginning")
    lab.put_run("owner", "stack", "a-run")
    assert lab.host.exists(f"{DATABASE}/state.db")
    steps.install(CLUSTER_INIT="1", GENERATION_ID="of-the-beginning")
    assert not lab.host.exists(f"{DATABASE}/state.db")
    assert lan.etcd() == {SERVER: True}
    for name in NAMES:
        join(steps.job(name))
    assert lan.etcd() == ALL
    lab.take_run("a-run")  # This fails if the record is gone.
    assert lab.host.shell(f"cat {DATABASE}/disttrain-generation").strip() == "of-the-beginning"
    for name in reversed(NAMES):
        leave(steps.job(name))
        assert lan.machines[name].differences() == []
    assert lan.etcd() == {SERVER: True}
    started = lab.host.shell("systemctl show --property=MainPID --value k3s")
    steps.install(GENERATION_ID="of-the-beginning")  # No further server is wanted any more.
    assert lab.host.shell("systemctl show --property=MainPID --value k3s") == started
    lab.remove_by_hand()
    assert lab.differences() == []


def test_server_that_etcd_needs_stays_with_all_that_it_has(steps: Steps) -> None:
    """A server cannot leave if too few of the others would answer, and nothing is removed from it.

    First one of three servers does not hear the others; then one of two is off.
    """
    lan = steps.lan
    steps.three_servers()
    with deaf(lan.machines[THREE].host):
        wait_for("k3s to notice", lambda: not steps.votes(THREE))
        said = refusal_of(leave, steps.job(TWO))
        assert f"the server {TWO} cannot leave: of the 2 others 1 would be left that answer" in said
        assert f"Bring back: {THREE}." in said
        assert lan.etcd() == ALL
        assert lan.machines[TWO].host.exists("/usr/local/bin/k3s")
    wait_for("k3s to notice", lambda: steps.votes(THREE))
    leave(steps.job(THREE))
    assert lan.etcd() == {SERVER: True, TWO: True}
    switch_off(lan.machines[TWO].host)
    said = refusal_of(leave, steps.job(TWO, gone=True))
    assert f"does not answer, so nothing was done to the server {TWO}" in said
    assert "docs/node.md, Several servers" in said
    switch_on(lan.machines[TWO].host)
    wait_for("the cluster", steps.answers)
    wait_for("its second member", lambda: steps.votes(TWO))
    assert lan.etcd() == {SERVER: True, TWO: True}


def test_lost_server_is_forgotten_and_one_that_is_new_joins_under_its_name(steps: Steps) -> None:
    """A lost server is removed from etcd, and a new machine can join under its name.

    k3s accepts no second member of a name, so the former member is removed first.
    """
    lan = steps.lan
    steps.three_servers()
    switch_off(lan.machines[THREE].host)
    assert sorted(lan.members()) == sorted(ALL)  # Two of three servers answer.
    assert "set `gone: true` in its item of nodes" in refusal_of(join, steps.job(THREE))
    join(steps.job(THREE, gone=True))
    assert lan.etcd() == {SERVER: True, TWO: True}
    switch_on(lan.machines[THREE].host)
    for _ in range(2):  # first forgotten by the cluster, then still a member of it
        lan.reinstall(THREE)
        join(steps.job(THREE))
        assert lan.etcd() == ALL


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("s/^K10[0-9a-f]*/K10deadbeef/", "token CA hash does not match"),
        ("s/::server:.*/::server:hunter2/", "not the token of servers"),
    ],
)
def test_server_with_another_token_is_let_in_by_nobody(
    steps: Steps, change: str, said: str
) -> None:
    """A server with a wrong token, or that of another cluster, is refused by the servers of the
    cluster.
    """
    lan = steps.lan
    steps.install(CLUSTER_INIT="1")
    join(steps.job(TWO))
    lan.machines[TWO].host.shell(
        f"systemctl stop k3s; sed -i '{change}' /etc/rancher/k3s/disttrain-token; "
        "rm -rf /var/lib/rancher/k3s/server; systemctl start --no-block k3s"
    )
    wait_for("the refusal", lambda: said in lan.machines[TWO].log())
