"""`pulumi up` with further machines: they join k3s, change, leave, and get lost on the way."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from infra.airgap.manifest import read_manifest
from infra.platform.airgap_files import STAGE
from tests.node.bundles import IMAGES, packed
from tests.node.bundles import settings as of_bundle
from tests.node.host import Host
from tests.node.lab import (
    CommandLines,
    background_up,
    counts,
    failure,
    output_file,
    rewritten,
    wait_for,
)
from tests.node.lan import (
    BRIDGE,
    NAMES,
    SERVER_ADDRESS,
    Lan,
    find_again,
    lose,
    other_address,
)
from tests.node.members import SERVER, TOKENS, holding, set_nodes
from tests.node.releases import VERSION

pytestmark = pytest.mark.stand_in("its agents, which need no other machine's container runtime")
NOTE = "/etc/rancher/k3s/disttrain-token"


def test_three_machines_come_up_and_leave_nothing_behind(lan: Lan) -> None:
    """Machines of `nodes` join with the server's version of k3s, and `destroy` leaves nothing on
    them.

    Only root can read the agents' token there, and it is in no log, state or command line. The
    servers' token is not on these machines, because a machine could make itself a server with it.
    """
    lab, stack = lan.lab, lan.stack(*NAMES)
    with CommandLines() as watch:
        output = stack.up()
        texts = [lab.host.shell(f"cat /var/lib/rancher/k3s/server/{name}") for name in TOKENS]
        own, of_agents = (text.strip().rpartition(":")[2] for text in texts)
        members = lan.members()
        assert sorted(members) == sorted([SERVER, *NAMES])
        versions = {item["status"]["nodeInfo"]["kubeletVersion"] for item in members.values()}
        assert versions == {VERSION}
        assert lan.passwords() == sorted(NAMES)
        for machine in lan.machines.values():
            assert machine.host.shell(f"stat -c '%a %U' {NOTE}").strip() == "600 root"
            assert holding(machine.host, of_agents) == [NOTE]
            assert holding(machine.host, own) == []
        before = {name: machine.host.files() for name, machine in lan.machines.items()}
        again = stack.up()
        assert set(counts(again)) == {"unchanged"}, again
        for name, machine in lan.machines.items():
            assert rewritten(before[name], machine.host.files()) == []
        refreshed = stack.refresh()
        state = lab.state(stack) + stack.export()
        output += again + refreshed + stack.destroy()
    output += lab.host.shell("journalctl --no-pager --all --output=cat")
    output += "".join(machine.log() for machine in lan.machines.values())
    for secret, length in ((own, 32), (of_agents, 64)):
        assert len(secret) == length
        assert secret not in output
        assert secret not in state
        assert not [line for line in watch.seen if secret.encode() in line]
    assert any(b"k3s" in line and b"agent" in line for line in watch.seen), "nothing was watched"
    assert lab.differences() == []
    assert [m.differences() for m in lan.machines.values()] == [[], []]


def test_machine_taken_out_of_the_list_leaves_the_cluster(lan: Lan) -> None:
    """A machine that is removed from `nodes` leaves the cluster, and can join again under its name.

    Labels and taints follow the list without a restart of k3s, and other machines are not touched.
    """
    two, three = NAMES
    marks = {"labels": {"rack": "a", "node-role.kubernetes.io/worker": ""}}
    settings = lan.settings(two, **marks, taints=["only=training:NoSchedule"])
    stack = lan.stack(nodes=[*settings, *lan.settings(three)])
    stack.up()
    assert {"rack": "a", "disttrain.dev/agent": "true"}.items() <= labels(lan, two).items()
    assert "only=training:NoSchedule" in taints(lan, two)
    host = lan.machines[two].host
    started = host.shell("systemctl show --property=MainPID --value k3s-agent")
    set_nodes(stack, lan.settings(two, labels={"rack": "b"}, taints=["only:NoExecute"]))
    output = stack.up()
    changed = counts(output)
    # Two components, for the machine and for its examination, and their four commands.
    assert (changed["updated"], changed["deleted"]) == (1, 6), output
    assert not {"created", "replaced"} & changed.keys(), output
    assert labels(lan, two)["rack"] == "b"
    assert "node-role.kubernetes.io/worker" not in labels(lan, two)
    assert [taint for taint in taints(lan, two) if "only" in taint] == ["only=:NoExecute"]
    assert host.shell("systemctl show --property=MainPID --value k3s-agent") == started
    assert sorted(lan.members()) == [SERVER, two]
    assert lan.passwords() == [two]
    assert lan.machines[three].differences() == []
    # The removed machine joins again under its old name, and nothing else changes.
    again = lan.settings(two, labels={"rack": "b"}, taints=["only:NoExecute"])
    set_nodes(stack, [*again, *lan.settings(three)])
    output = stack.up()
    assert counts(output)["created"] == 6, output
    assert not {"updated", "deleted", "replaced"} & counts(output).keys(), output
    assert host.shell("systemctl show --property=MainPID --value k3s-agent") == started
    assert lan.passwords() == sorted(NAMES)
    stack.destroy()
    assert lan.lab.differences() == []


def test_up_after_a_machine_was_lost_on_the_way_is_finished_by_the_next(lan: Lan) -> None:
    """If a machine is lost while it joins, `up` fails and names it, and the next `up` finishes."""
    two, three = NAMES
    lost = lan.machines[three].host
    stack = lan.stack(two)
    stack.up()
    set_nodes(stack, lan.settings(*NAMES))
    lan.lab.mirror.slow(True)
    with background_up(stack) as process:
        loading = "test -s /var/lib/rancher/disttrain-scratch/k3s"
        wait_for("the download", lambda: lost.try_shell(loading).returncode == 0)
        lose(lost)
        process.wait(timeout=300)
        assert process.returncode != 0
    assert f"{lost.address} cannot be reached" in output_file(stack).read_text()
    assert sorted(lan.members()) == [SERVER, two]
    lan.lab.mirror.slow(False)
    find_again(lost)
    output = stack.up()
    assert counts(output)["created"] == 2, output  # the machine's files, and its joining
    assert sorted(lan.members()) == sorted([SERVER, *NAMES])
    stack.destroy()


@pytest.mark.slow
def test_marks_of_an_older_version_are_the_same(lan: Lan) -> None:
    """The marks of machines (resources `*-begun`) that an older version made are taken over.

    Their names had no address. If they counted as other resources, they would be deleted, and the
    deletion of a mark removes its machine from the cluster.
    """
    stack = lan.stack(NAMES[0])
    stack.up()
    before, (state, times) = lan.members(), re.subn(r"-begun-[0-9.]+", "-begun", stack.export())
    assert times >= 4  # The marks of both machines, each in its own URN and in another one.
    stack.import_state(state)
    output = stack.up()
    assert set(counts(output)) == {"unchanged"}, output
    assert uids(lan.members()) == uids(before)
    assert re.search(r"-begun-[0-9.]+", stack.export())
    stack.destroy()


@pytest.mark.in_depth
def test_machine_by_another_address_keeps_its_k3s(lan: Lan) -> None:
    """A machine that the settings name by another address keeps its k3s.

    To Pulumi's engine it is another machine, and the deletion of the former one comes last.
    Otherwise that deletion would remove the k3s that has just been installed by the new address.
    """
    two, host = NAMES[0], lan.machines[NAMES[0]].host
    stack = lan.stack(two)
    stack.up()
    set_nodes(stack, [{**lan.settings(two)[0], "address": other_address(host)}])
    stack.up()
    assert sorted(lan.members()) == [SERVER, two]
    assert host.try_shell("systemctl is-active --quiet k3s-agent").returncode == 0
    stack.set("sshHost", other_address(lan.lab.host))
    stack.up()
    assert sorted(lan.members()) == [SERVER, two]
    assert lan.lab.host.try_shell("systemctl is-active --quiet k3s").returncode == 0
    assert set(counts(again := stack.up())) == {"unchanged"}, again
    stack.destroy()


def uids(members: dict[str, Any]) -> dict[str, str]:
    """Return the uid of each Node by its name."""
    return {name: item["metadata"]["uid"] for name, item in members.items()}


@pytest.mark.in_depth
def test_machines_get_k3s_while_the_first_one_is_being_installed(lan: Lan) -> None:
    """Further machines install k3s at the same time as the first one; only their start waits for
    it.

    If the first machine fails, `destroy` also removes k3s from machines that have never joined.
    """
    lab, stack = lan.lab, lan.stack(*NAMES)
    hosts = [machine.host for machine in lan.machines.values()]
    installed = "grep -q '^installed ' /etc/rancher/disttrain"

    def up_with_a_first_one_that_is_held(status: int) -> None:
        hold = "flock --no-fork /run/disttrain-k3s.lock sleep infinity"
        lab.host.shell(f"systemd-run --unit=holder {hold}")
        with background_up(stack) as process:

            def has_it(host: Host) -> bool:
                assert process.poll() is None, output_file(stack).read_text()
                return host.try_shell(installed).returncode == 0

            for host in hosts:
                wait_for("k3s", lambda host=host: has_it(host))
                assert not host.exists(NOTE)
            assert lan.lab.host.try_shell("systemctl is-active k3s").returncode != 0
            lab.host.shell("systemctl stop holder")
            process.wait(timeout=300)
            assert (process.returncode == 0) is (status == 0), output_file(stack).read_text()

    lab.host.shell("touch /lab/fail-to-start")
    up_with_a_first_one_that_is_held(1)
    assert not any(host.exists(NOTE) for host in hosts)
    lab.host.shell("rm /lab/fail-to-start")
    stack.destroy()
    assert [machine.differences() for machine in lan.machines.values()] == [[], []]
    assert lab.differences() == []
    up_with_a_first_one_that_is_held(0)
    assert sorted(lan.members()) == sorted([SERVER, *NAMES])
    binaries = [path for path in lab.mirror.requests if path.endswith("/k3s")]
    assert len(binaries) == 6  # one for each machine and `up`
    stack.destroy()
    assert lab.differences() == []


@pytest.mark.slow
@pytest.mark.parametrize("role", ["agent", "server"])
def test_deleted_node_comes_back_with_its_labels(lan: Lan, role: str) -> None:
    """`up` brings back a Node that somebody has deleted, with its labels.

    The kubelet makes its Node only when it starts, so `up` has to restart a k3s that runs.
    """
    machines = NAMES if role == "server" else NAMES[:1]
    two = machines[0]
    stack = lan.stack(nodes=lan.settings(*machines, role=role, labels={"rack": "a"}))
    stack.up()
    lan.lab.kubectl("delete", "node", two)
    assert two not in lan.members()
    assert f"node-{two}-k3s" in stack.preview()
    stack.up()
    assert lan.members()[two]["metadata"]["labels"]["rack"] == "a"
    assert set(counts(stack.up())) == {"unchanged"}
    stack.destroy()


@pytest.mark.in_depth
@pytest.mark.timeout(1800)  # ten installations
def test_machine_that_is_installed_anew_joins_under_its_old_name(lan: Lan, tmp_path: Path) -> None:
    """A machine that was installed from scratch joins again under its old name, as a new Node.

    k3s refuses such a machine until the server has forgotten the password of the old one. Nothing
    of the old Nodes is left, and the machine gets the authorities of `caBundle` again.
    """
    two = NAMES[0]
    authority = tmp_path / "authority.pem"
    authority.write_text(lan.lab.mirror.certificate)
    stack, host = lan.stack(two, caBundle=str(authority)), lan.machines[two].host
    trusted = "/usr/local/share/ca-certificates/disttrain.crt"
    stack.up()
    assert host.exists(trusted)
    # An agent tells systemd that it is up once it has joined, so a start that waits would not end.
    restart = "systemctl restart --no-block k3s-agent"
    host.shell(f"echo of-another >/etc/rancher/node/password; {restart}")
    wait_for("the refusal", lambda: "Node password rejected" in lan.machines[two].log())
    uids = {lan.members()[two]["metadata"]["uid"]}
    for number in range(10):
        lan.reinstall(two)
        host.shell(f"rm -f {trusted} /var/lib/disttrain-trust; update-ca-certificates --fresh")
        if number == 0:
            assert f"node-{two}-k3s" in stack.preview()
        output = stack.up()
        assert counts(output)["updated"] == 2, output
        assert host.exists(trusted)
        uids.add(lan.members()[two]["metadata"]["uid"])
        assert len(uids) == number + 2
        assert lan.passwords() == [two]
    assert set(counts(stack.up())) == {"unchanged"}
    stack.destroy()


@pytest.mark.in_depth
def test_cluster_that_was_wiped_is_joined_anew_by_every_machine(lan: Lan) -> None:
    """After the first machine's k3s was wiped, `up` lets every machine join the new cluster.

    The new cluster has another authority and another token.
    """
    two = NAMES[0]
    lab, stack = lan.lab, lan.stack(two)
    stack.up()
    lab.host.shell("systemctl stop k3s; rm -rf /var/lib/rancher/k3s; systemctl start k3s")
    assert list(lan.members()) == [SERVER]
    stack.up()
    assert sorted(lan.members()) == [SERVER, two]
    assert set(counts(stack.up())) == {"unchanged"}
    stack.destroy()
    assert lab.differences() == []


@pytest.mark.in_depth
def test_machine_that_is_gone_is_forgotten_without_being_asked(lan: Lan) -> None:
    """A machine with `gone: true` is removed from the cluster without a connection to it.

    Without that setting, `up` fails for a machine that does not answer, and names the setting.
    """
    two = NAMES[0]
    stack, host = lan.stack(two), lan.machines[two].host
    stack.up()
    lose(host)
    try:
        preview = stack.preview()
        assert f"{host.address} could not be asked about its k3s" in preview
        assert set(counts(preview)) == {"unchanged"}
        assert "set `gone: true` in its item of nodes" in failure(stack)
        set_nodes(stack, lan.settings(two, gone=True))
        stack.up()
        assert list(lan.members()) == [SERVER]
        assert lan.passwords() == []
        set_nodes(stack, [])
        stack.up()
        stack.destroy()
    finally:
        find_again(host)


@pytest.mark.in_depth
def test_name_of_a_lost_machine_goes_to_another_one(lan: Lan) -> None:
    """The name of a lost machine can go to another one, once the list says that the first is lost.

    Before, `up` refuses, because it would have to ask the lost machine, and names the steps.
    """
    two, three = NAMES
    stack, host = lan.stack(two), lan.machines[two].host
    stack.up()
    instead = [{**lan.settings(three)[0], "name": two}]
    lose(host)
    try:
        set_nodes(stack, instead)
        said = failure(stack)
        assert f"put it back into nodes as it was (name: {two}, address: {host.address})" in said
        assert lan.machines[three].differences() == []
        set_nodes(stack, lan.settings(two, gone=True))
        stack.up()
        assert list(lan.members()) == [SERVER]
        set_nodes(stack, instead)
        stack.up()
        assert sorted(lan.members()) == [SERVER, two]
        assert lan.machines[three].node() == two
        assert set(counts(stack.up())) == {"unchanged"}
        stack.destroy()
    finally:
        find_again(host)


@pytest.mark.in_depth
def test_nodes_are_known_by_the_addresses_of_their_named_interfaces(lan: Lan) -> None:
    """With `nodeInterface` and `interface`, nodes have the addresses of these network interfaces.

    An interface that a machine lacks is named by the doctor and by `up` before k3s is changed.
    """
    two = NAMES[0]
    host = lan.machines[two].host
    stack = lan.stack(nodes=lan.settings(two, interface=BRIDGE), nodeInterface=BRIDGE)
    stack.up()
    assert own_addresses(lan) == {SERVER: SERVER_ADDRESS, two: f"192.0.2.{2 + NAMES.index(two)}"}
    stack.set("nodeAddress", lan.lab.host.address)  # the address of the link to this machine
    assert (
        f"nodeAddress is {lan.lab.host.address}, and the network interface {BRIDGE} (nodeInterface)"
        in failure(stack)
    )
    stack.set("nodeAddress", SERVER_ADDRESS)
    started = host.shell("systemctl show --property=MainPID --value k3s-agent")
    set_nodes(stack, lan.settings(two, interface="ib7"))
    said = failure(stack)
    assert re.search(
        rf"error +node-interface +{two}: this host has no network interface ib7;", said
    ), said
    assert "this host has no network interface ib7. It is set by nodeInterface, and" in said
    assert host.shell("systemctl show --property=MainPID --value k3s-agent") == started
    set_nodes(stack, lan.settings(two, interface=BRIDGE))
    stack.up()
    stack.destroy()


@pytest.mark.in_depth
def test_machine_behind_the_first_one_is_reached_through_it_alone(lan: Lan, tmp_path: Path) -> None:
    """A machine with `jump_host` is only reached through the jump host.

    The SSH log of the machine shows where each connection came from: those of the doctor, of the
    look at k3s, of the authorities that Pulumi's command plugin brings, of the bundle's files, and
    of joining and leaving. With a bundle nothing comes from the release host, which both machines
    could reach.
    """
    two = NAMES[0]
    lab, host = lan.lab, lan.machines[two].host
    address = f"192.0.2.{2 + NAMES.index(two)}"
    jump = {"jump_host": lab.host.address, "jump_host_key": lab.host_key}
    authority = tmp_path / "authority.pem"
    authority.write_text(lab.mirror.certificate)
    folder = tmp_path / "bundle"
    packed(lab, folder)
    before, asked = logins(host), lab.mirror.requests
    nodes = lan.settings(two, address=address, **jump)
    more = {**of_bundle(lab), "bundle": str(folder)}
    stack = lan.stack(nodes=nodes, caBundle=str(authority), **more)
    stack.up()
    assert sorted(lan.members()) == sorted([SERVER, two])
    assert lab.mirror.requests == asked
    assert host.shell(f"stat -c '%U %a' {STAGE}").split() == ["root", "700"]
    (images,) = read_manifest(folder).of("k3s-images")
    there = host.shell(f"cd {IMAGES}; sha256sum *").split()
    assert there == [images.sha256, f"disttrain-{images.sha256[:16]}-{Path(images.name).name}"]
    again = stack.up()
    assert set(counts(again)) == {"unchanged"}, again
    stack.destroy()
    assert list(lan.machines[two].differences()) == []
    came = Counter(logins(host)) - Counter(before)
    assert set(came) == {SERVER_ADDRESS}
    assert came[SERVER_ADDRESS] >= 5, came


def logins(host: Host) -> list[str]:
    """Return the addresses from which somebody has logged in by SSH so far, in their order."""
    log = host.shell("journalctl --unit=ssh --no-pager --output=cat")
    return re.findall(r"^Accepted publickey for \w+ from (\S+)", log, re.MULTILINE)


def own_addresses(lan: Lan) -> dict[str, str]:
    """Return `{name: address}`, as the machines themselves have told the cluster."""
    return {name: item["status"]["addresses"][0]["address"] for name, item in lan.members().items()}


def labels(lan: Lan, name: str) -> dict[str, str]:
    return lan.members()[name]["metadata"]["labels"]


def taints(lan: Lan, name: str) -> list[str]:
    """Return the taints of a node as texts `key=value:effect`."""
    found = lan.members()[name]["spec"].get("taints", [])
    return [f"{taint['key']}={taint.get('value', '')}:{taint['effect']}" for taint in found]
