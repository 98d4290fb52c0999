"""Several servers, in depth: from one to three, and what is refused so that etcd is never lost."""

import contextlib
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.node.host import Host
from tests.node.lab import background_up, counts, failure, output_file, wait_for
from tests.node.lan import BRIDGE, NAMES, Lan, switch_off, switch_on
from tests.node.test_nodes import SERVER, set_nodes

pytestmark = pytest.mark.stand_in("its servers, which need no other machine's container runtime")
TWO, THREE = NAMES
ALL = {SERVER: True, TWO: True, THREE: True}


def test_cluster_of_one_server_gets_three_and_keeps_what_is_in_it(lan: Lan) -> None:
    """The machines were agents before: each leaves as one and joins as a server. Nothing in the
    cluster is made anew, and all goes back again."""
    lab, stack = lan.lab, lan.stack(*NAMES)
    stack.up()
    before = lab.objects()
    generation = lab.host.shell("cat /var/lib/rancher/k3s/server/db/disttrain-generation")
    set_nodes(stack, lan.settings(*NAMES, role="server"))
    stack.up()
    assert lan.etcd() == ALL
    assert lab.objects() == before
    assert lab.host.shell("cat /var/lib/rancher/k3s/server/db/disttrain-generation") == generation
    assert not lab.host.exists("/var/lib/rancher/k3s/server/db/state.db")
    again = stack.up()
    assert set(counts(again)) == {"unchanged"}, again
    stack.refresh()
    set_nodes(stack, lan.settings(*NAMES))
    stack.up()
    assert lan.etcd() == {SERVER: True}
    assert lab.objects() == before
    stack.destroy()
    assert lab.differences() == []
    assert [m.differences() for m in lan.machines.values()] == [[], []]


def test_server_that_etcd_needs_stays_with_all_that_it_has(lan: Lan) -> None:
    """Of three one does not hear the others; without a second one the cluster would be lost."""
    stack = lan.stack(nodes=lan.settings(*NAMES, role="server"))
    stack.up()
    with deaf(lan.machines[THREE].host):
        wait_for("k3s to notice", lambda: not voter(lan, THREE))
        set_nodes(stack, [*lan.settings(THREE, role="server"), never(lan)])
        said = failure(stack)
        assert f"the server {TWO} cannot leave: of the 2 others 1 would be left that answer" in said
        assert f"Bring back: {THREE}." in said
        assert lan.etcd() == ALL
        assert lan.machines[TWO].host.exists("/usr/local/bin/k3s")
    wait_for("k3s to notice", lambda: voter(lan, THREE))
    set_nodes(stack, lan.settings(*NAMES, role="server"))
    stack.up()
    assert lan.etcd() == ALL
    stack.destroy()


@contextlib.contextmanager
def deaf(host: Host) -> Iterator[None]:
    """Nothing comes to it on the network of k3s; it is still reached by SSH."""
    network = ("nsenter", "--target", str(host.pid), "--net", "--", "iptables", "--wait")
    rule = ("INPUT", "--in-interface", BRIDGE, "--jump", "DROP")
    subprocess.run([*network, "--insert", *rule], check=True)
    try:
        yield
    finally:
        subprocess.run([*network, "--delete", *rule], check=True)


def never(lan: Lan) -> dict[str, Any]:
    """A lost server that was never there: the list has an odd number with it."""
    (item,) = lan.settings(TWO, role="server", gone=True)
    return {**item, "name": "never", "address": "192.0.2.99"}


def voter(lan: Lan, name: str) -> bool:
    """What k3s says of the member, by the Node."""
    conditions = lan.members()[name]["status"]["conditions"]
    return any(c["type"] == "EtcdIsVoter" and c["status"] == "True" for c in conditions)


def test_up_without_a_majority_of_servers_ends_and_says_so(lan: Lan) -> None:
    """And the way back is that one of them comes back; nothing was changed meanwhile."""
    stack = lan.stack(nodes=lan.settings(*NAMES, role="server"))
    stack.up()
    for name in NAMES:
        switch_off(lan.machines[name].host)
    try:
        set_nodes(stack, lan.settings(*NAMES, role="server", gone=True))
        said = failure(stack)
        assert "the k3s of the first machine does not answer, so nothing was done to the" in said
        assert "docs/node.md, Several servers" in said
    finally:
        for name in NAMES:
            switch_on(lan.machines[name].host)
    wait_for("the cluster", lambda: lan.lab.host.try_shell("k3s kubectl get nodes").returncode == 0)
    assert lan.etcd() == ALL
    set_nodes(stack, lan.settings(*NAMES, role="server"))
    stack.up()
    stack.destroy()


def test_server_that_is_installed_anew_joins_under_its_old_name(lan: Lan) -> None:
    """etcd forgets the member of before; k3s takes no second one of a name."""
    stack = lan.stack(nodes=lan.settings(*NAMES, role="server"))
    stack.up()
    uid = lan.members()[TWO]["metadata"]["uid"]
    lan.reinstall(TWO)
    output = stack.up()
    assert counts(output)["updated"] == 1, output
    assert lan.members()[TWO]["metadata"]["uid"] != uid
    assert lan.etcd() == ALL
    assert set(counts(stack.up())) == {"unchanged"}
    stack.destroy()


def test_up_that_is_killed_while_a_server_joins_is_finished_by_the_next(lan: Lan) -> None:
    stack = lan.stack(TWO)
    stack.up()
    set_nodes(stack, lan.settings(*NAMES, role="server"))
    host = lan.machines[THREE].host
    with background_up(stack) as process:
        started = "test -d /var/lib/rancher/k3s/server"
        wait_for("the third server", lambda: host.try_shell(started).returncode == 0)
        process.kill()
    assert "error" not in output_file(stack).read_text()
    stack.release_locks()
    stack.up()
    assert lan.etcd() == ALL
    stack.destroy()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("s/^K10[0-9a-f]*/K10deadbeef/", "token CA hash does not match"),
        ("s/::server:.*/::server:hunter2/", "this is not the token of servers"),
    ],
)
def test_stand_in_takes_no_server_with_another_token(lan: Lan, change: str, said: str) -> None:
    """The log of the machine says why it does not come up; tried on the machine that joins."""
    stack = lan.stack(nodes=lan.settings(*NAMES, role="server"))
    stack.up()
    host = lan.machines[THREE].host
    host.shell(
        f"systemctl stop k3s; sed -i '{change}' /etc/rancher/k3s/disttrain-token; "
        "rm -rf /var/lib/rancher/k3s/server; systemctl start --no-block k3s"
    )
    wait_for("the refusal", lambda: said in lan.machines[THREE].log())
    stack.up()  # the file is put right, and the machine joins again
    assert lan.etcd() == ALL
    stack.destroy()


def test_cluster_that_lives_on_without_the_first_machine_is_not_replaced(lan: Lan) -> None:
    """It was installed anew; a new cluster in its place comes when the old one is given up."""
    lab, stack = lan.lab, lan.stack(nodes=lan.settings(*NAMES, role="server"))
    stack.up()
    lab.host.shell("/usr/local/bin/k3s-uninstall.sh; rm -rf /etc/rancher /var/lib/rancher")
    assert lan.etcd(TWO) == ALL
    said = failure(stack)
    assert "the k3s of the first machine does not answer, so nothing was done to the server" in said
    assert not lab.host.exists("/usr/local/bin/k3s")
    assert lan.etcd(TWO) == ALL
    nodes = "KUBECACHEDIR=/run/k3s k3s kubectl get nodes --output=name"
    assert len(lan.machines[TWO].host.shell(nodes).split()) == 3
    stack.set("hostGone", "true")
    stack.up()
    stack.destroy()
    assert [m.differences() for m in lan.machines.values()] == [[], []]
