"""Every check of several machines, on machines without a fault and on machines with its one
fault.
"""

from dataclasses import dataclass, field, replace

import pytest

from cli.check import Result
from cli.doctor.pair import Machine
from cli.doctor.pair_checks import PAIR_CHECKS, run_pair_checks
from cli.doctor.pair_ways import ports_to_reach
from cli.facts import Facts
from infra.node.expectations import FIRST_NODE, Expectations
from tests.cli.doctor.fact_sets import Changes, facts_with

SERVER, TWO, THREE = "10.1.2.3", "gpu2", "gpu3"
IPS = {SERVER: "198.51.100.1", TWO: "198.51.100.2", THREE: "198.51.100.3"}
EXPECT = Expectations(
    gpus=9,
    pods=3,
    ranks=9,
    several=True,
    shared_data=True,
    embedded_registry=True,
    nfs=FIRST_NODE,
)
ETCD = {"tcp.2379": "refused", "tcp.2380": "open"}
WELL = {"udp.8472": "refused", "tcp.6443": "open", "tcp.10250": "refused", "mtu": "fits"}
WELL |= {"tcp.5001": "refused", "tcp.2049": "open", "milliseconds": "0.181"}


@dataclass(frozen=True)
class Seeded:
    """One fault, and how the doctor must report it.

    `facts`: the facts of gpu2 that differ. `way`: the machine that looks and the machine that it
    looks at. `seen`: what it sees there that differs. `words` are in the evidence, `place` is the
    place of the finding.
    """

    words: str
    place: str
    facts: Changes = field(default_factory=dict[str, str | list[str] | None])
    way: tuple[str, str] = ("", "")
    seen: dict[str, str] = field(default_factory=dict[str, str])
    severity: str = "error"


FAULTS = {
    "same-machine": Seeded(
        "both names lead to 198.51.100.1, one machine",
        f"{SERVER}, {TWO}",
        {"node_ip": IPS[SERVER], "machine_id": f"id-{SERVER}"},
    ),
    "machine-id": Seeded(
        "one is a copy", f"{SERVER}, {TWO}", {"machine_id": f"id-{SERVER}"}, severity="warning"
    ),
    "same-architecture": Seeded(
        "x86_64 and aarch64", f"{SERVER}, {TWO}", {"architecture": "aarch64"}
    ),
    "same-driver": Seeded(
        "drivers 550.144.03 and 535.1",
        f"{SERVER}, {TWO}",
        {"driver": "535.1"},
        severity="warning",
    ),
    "gpus-of-all": Seeded(
        "room for 2 of 3 pods with 3 GPUs (10.1.2.3: 3, gpu2: 2, gpu3: 3)",
        "all",
        {"gpu_pci": ["0000:17:00.0 0x2236", "0000:65:00.0 0x2236"]},
    ),
    "data-is-shared": Seeded(
        "a disk of this machine (/dev/sda1, xfs)", TWO, {"data_source": "xfs /dev/sda1"}
    ),
    "pair-api-port": Seeded(
        "port 6443 cannot be reached: packets are lost",
        f"{TWO} -> {SERVER}",
        way=(TWO, SERVER),
        seen={"tcp.6443": "silent"},
    ),
    "pair-kubelet-port": Seeded(
        "port 10250 cannot be reached: the way is refused",
        f"{SERVER} -> {TWO}",
        way=(SERVER, TWO),
        seen={"tcp.10250": "unreachable"},
    ),
    "pair-etcd-ports": Seeded(
        "port 2380 cannot be reached: packets are lost",
        f"{TWO} -> {SERVER}",
        way=(TWO, SERVER),
        seen={"tcp.2380": "silent"},
    ),
    "pair-flannel-port": Seeded(
        "UDP packets to port 8472 are lost",
        f"{TWO} -> {THREE}",
        way=(TWO, THREE),
        seen={"udp.8472": "silent"},
        severity="warning",
    ),
    "pair-sharing-ports": Seeded(
        "port 5001 cannot be reached: packets are lost",
        f"{TWO} -> {SERVER}",
        way=(TWO, SERVER),
        seen={"tcp.5001": "silent"},
    ),
    "same-address": Seeded(
        f"k3s would take {IPS[SERVER]} for the address of both (eth0 and docker0)",
        f"{SERVER}, {TWO}",
        {"node_ip": IPS[SERVER], "device": "docker0"},
    ),
    "same-name": Seeded(
        f"both have the host name host-{SERVER}: NFS takes them for one client",
        f"{SERVER}, {TWO}",
        {"hostname": f"host-{SERVER}"},
    ),
    "same-hardware-address": Seeded(
        f"eth0 and eth0 have the hardware address mac-{SERVER}",
        f"{SERVER}, {TWO}",
        {"mac": f"mac-{SERVER}"},
    ),
    "same-kernel": Seeded(
        "kernels 5.14 and 6.1",
        f"{SERVER}, {TWO}",
        {"kernel": "6.1.0-28-amd64"},
        severity="warning",
    ),
    "same-k3s": Seeded(
        "k3s v1.34 and v1.33",
        f"{SERVER}, {TWO}",
        {"k3s_version": "v1.33.6+k3s1"},
        severity="warning",
    ),
    "same-gpu": Seeded(
        "GPUs NVIDIA A10 and NVIDIA L4",
        f"{SERVER}, {TWO}",
        {"gpu": ["NVIDIA L4, [N/A]"] * 3},
        severity="warning",
    ),
    "same-gpu-count": Seeded(
        "numbers of GPUs 3 and 4",
        f"{SERVER}, {TWO}",
        {"gpu_pci": [f"0000:{bus}:00.0 0x2236" for bus in ("17", "65", "ca", "e3")]},
        severity="warning",
    ),
    "same-speed": Seeded(
        "links of 100000 Mb/s and 1000 Mb/s",
        f"{SERVER}, {TWO}",
        {"link_speed": "1000"},
        severity="warning",
    ),
    "pair-clock": Seeded("their clocks are 70 s apart", f"{SERVER}, {TWO}", {"clock_skew": "-70"}),
    "pair-name": Seeded(
        "gpu3 does not know the name gpu01.example.com",
        f"{THREE} -> {SERVER}",
        way=(THREE, SERVER),
        seen={"name": "gpu01.example.com", "tcp.6443": "unreachable"},
    ),
    "pair-source": Seeded(
        "gpu3 sends packets to gpu2 from 192.0.2.9 (interface eth1), but k3s would know gpu3 by "
        "198.51.100.3 (interface eth0). Pods would then use another network than the machines",
        f"{THREE} -> {TWO}",
        way=(THREE, TWO),
        seen={"source": "192.0.2.9 eth1"},
        severity="warning",
    ),
    "pair-nfs-port": Seeded(
        "port 2049 cannot be reached: packets are lost",
        f"{TWO} -> {SERVER}",
        way=(TWO, SERVER),
        seen={"tcp.2049": "silent"},
    ),
    "pair-latency": Seeded(
        "a packet and its answer take 31.2 ms",
        f"{TWO} -> {THREE}",
        way=(TWO, THREE),
        seen={"milliseconds": "31.2"},
        severity="warning",
    ),
    "pair-mtu": Seeded(
        "a packet of 9000 bytes, which eth0 allows, is lost",
        f"{THREE} -> {TWO}",
        way=(THREE, TWO),
        seen={"mtu": "too large"},
        severity="warning",
    ),
}


def machines(changes: Changes, way: tuple[str, str], seen: dict[str, str]) -> list[Machine]:
    """Return two servers and an agent. gpu2 has these changes, and on `way` this was `seen`."""
    made: list[Machine] = []
    for name in (SERVER, TWO, THREE):
        own: Changes = {
            "node_ip": IPS[name],
            "machine_id": f"id-{name}",
            "data_source": "nfs nas:/exports/training",
            "device": "eth0",
            "mtu": "9000",
            "hostname": f"host-{name}",
            "mac": f"mac-{name}",
            "link_speed": "100000",
            "k3s_version": "v1.34.2+k3s1",
            **(changes if name == TWO else {}),
        }
        sees = {
            other: {
                **WELL,
                **ETCD,
                "source": f"{own['node_ip']} eth0",
                "name": f"{other}.example.com 10.1.2.3",
                **(seen if (name, other) == way else {}),
            }
            for other in (SERVER, TWO, THREE)
            if other != name
        }
        views = {other: Facts({k: [v] for k, v in view.items()}) for other, view in sees.items()}
        made.append(Machine(name, facts_with(own), name in (SERVER, TWO), views))
    return made


def findings(results: list[Result]) -> list[tuple[str, str, str]]:
    """Return the id, the place and the severity of each finding."""
    return [(r.id, r.place, r.status) for r in results if r.is_finding]


def test_machines_that_fit_have_no_finding_and_each_check_looks() -> None:
    """Machines that fit have no finding, and each check says that it has looked. Checks of what is
    alike say nothing of each pair, so that the report stays short.
    """
    results = run_pair_checks(machines({}, ("", ""), {}), EXPECT)
    assert findings(results) == []
    # The checks that compare two machines say nothing of a pair that fits.
    quiet = {id for id in FAULTS if id.startswith("same-")} - {"same-machine"} | {"machine-id"}
    assert {result.id for result in results} == {check.id for check in PAIR_CHECKS} - quiet


def test_every_check_has_a_fault_and_a_sentence() -> None:
    """Each check of several machines has a sentence that says what it looks at, and a fault in the
    tests.
    """
    assert {check.id for check in PAIR_CHECKS} == set(FAULTS)
    for check in PAIR_CHECKS:
        assert check.summary.endswith("."), check.id
        assert len(check.summary.split()) >= 6, check.id


@pytest.mark.parametrize("check_id", list(FAULTS))
def test_fault_is_named_once_with_its_machines_and_a_fix(check_id: str) -> None:
    """Each fault is found once, by its own check, with the pair of machines and a fix."""
    seeded = FAULTS[check_id]
    results = run_pair_checks(machines(seeded.facts, seeded.way, seeded.seen), EXPECT)
    found = [result for result in results if result.is_finding]
    if check_id in ("same-machine", "machine-id"):
        found = [result for result in found if TWO in result.place and SERVER in result.place]
    assert findings(found) == [(check_id, seeded.place, seeded.severity)]
    assert seeded.words in found[0].evidence
    assert found[0].fix


def test_nodes_that_share_images_reach_every_nodes_port_6443() -> None:
    """Where nodes share images, each node must reach the ports 5001 and 6443 of each other node,
    because each has a registry there. The way to a server's port 6443 belongs to `pair-api-port`.

    Where images come in another way, neither port is asked for between agents.
    """
    blocked = {"tcp.6443": "silent", "tcp.5001": "unreachable"}
    between_agents = machines({}, (TWO, THREE), blocked)
    found = findings(run_pair_checks(between_agents, EXPECT))
    assert found == [("pair-sharing-ports", f"{TWO} -> {THREE}", "error")] * 2
    alone = replace(EXPECT, embedded_registry=False)
    assert findings(run_pair_checks(between_agents, alone)) == []
    to_server = machines({}, (TWO, SERVER), {"tcp.6443": "silent"})
    found = findings(run_pair_checks(to_server, EXPECT))
    assert found == [("pair-api-port", f"{TWO} -> {SERVER}", "error")]
    asked = ports_to_reach(from_server=False, to_server=False, share_images=True)
    assert {"tcp.5001", "tcp.6443"} <= set(asked)
    assert ports_to_reach(from_server=False, to_server=False) == ["udp.8472"]


def test_ports_that_pods_do_not_need_are_not_asked_for() -> None:
    """Agents need no way to each other's kubelets and to etcd, and so these ports are no finding.
    Ports of a cluster that the project has not installed are not judged.
    """
    alone = replace(EXPECT, embedded_registry=False)
    blocked = {f"tcp.{port}": "silent" for port in (10250, 6443, 2379, 2380)}
    two_agents = [
        replace(machine, is_server=machine.name == SERVER)
        for machine in machines({}, (TWO, THREE), blocked)
    ]
    assert findings(run_pair_checks(two_agents, alone)) == []
    etcd_only = {f"tcp.{port}": "silent" for port in (2379, 2380)}
    assert findings(run_pair_checks(machines({}, (THREE, TWO), etcd_only), alone)) == []
    way = (TWO, THREE)
    seen = {"udp.8472": "silent"}
    foreign = replace(EXPECT, provision=False)
    assert findings(run_pair_checks(machines({}, way, seen), foreign)) == []


def test_every_server_is_asked_what_the_first_one_is_asked() -> None:
    """The doctor looks at the same ports of every server, not only of the first. Each server has an
    API server, which agents come to and which asks all kubelets.
    """
    assert ports_to_reach(from_server=False, to_server=False) == ["udp.8472"]
    assert ports_to_reach(from_server=False, to_server=True) == ["udp.8472", "tcp.6443"]
    assert ports_to_reach(from_server=True, to_server=False) == ["udp.8472", "tcp.10250"]
    of_servers = {"udp.8472", "tcp.6443", "tcp.10250", "tcp.2379", "tcp.2380"}
    assert set(ports_to_reach(from_server=True, to_server=True)) == of_servers
    seen = machines({}, (THREE, TWO), {"tcp.6443": "silent"})
    assert findings(run_pair_checks(seen, EXPECT)) == [
        ("pair-api-port", f"{THREE} -> {TWO}", "error")
    ]


def test_pod_network_that_is_there_answers_no_probe() -> None:
    """Lost packets to flannel's port are no finding on a machine that already has the pod network.
    Its device takes such packets without an answer.
    """
    there: Changes = {"route": ["default eth0", "10.42.1.0 flannel.1"]}
    seen = {"udp.8472": "silent"}
    assert findings(run_pair_checks(machines(there, (THREE, TWO), seen), EXPECT)) == []


def test_data_of_one_machine_matter_only_where_they_are_shared() -> None:
    """Data on a machine's own disk are no finding if the settings do not say that data are
    shared.
    """
    local: Changes = {"data_source": "xfs /dev/sda1"}
    alone = replace(EXPECT, shared_data=False)
    assert findings(run_pair_checks(machines(local, ("", ""), {}), alone)) == []


def test_machine_that_saw_nothing_makes_no_finding() -> None:
    """A machine without bash or ping, which cannot look at the others, causes no finding about the
    ways between them.
    """
    made = machines({}, ("", ""), {})
    made[1] = replace(made[1], sees={})
    assert findings(run_pair_checks(made, EXPECT)) == []


def test_one_machine_under_two_names_is_said_once() -> None:
    """One machine under two names is one finding. That its name, addresses and clock are alike is
    not reported too.
    """
    alike: Changes = {
        **{"node_ip": IPS[SERVER], "machine_id": f"id-{SERVER}"},
        **{"hostname": f"host-{SERVER}", "mac": f"mac-{SERVER}"},
    }
    found = findings(run_pair_checks(machines(alike, ("", ""), {}), EXPECT))
    assert [id for id, place, _ in found if place == f"{SERVER}, {TWO}"] == ["same-machine"]


def test_name_of_the_first_machines_node_is_taken() -> None:
    """A further machine whose name is the first machine's host name is an error, whatever the
    capitals. The first node has the name of its host, and a second node of this name could not
    join.
    """
    made = machines({}, ("", ""), {})
    made[0] = replace(made[0], facts=facts_with({"hostname": "GPU2", "gpu": [], "gpu_pci": []}))
    found = findings(run_pair_checks(made[:2], replace(EXPECT, gpus=0)))
    assert ("same-name", f"{SERVER}, {TWO}", "error") in found


def test_what_others_look_after_or_nobody_knows_is_no_fault() -> None:
    """The version of a k3s that the project has not installed, a link that tells no speed, and the
    port of an NFS server elsewhere are no findings.
    """
    other: Changes = {"k3s_version": "v1.33.6+k3s1", "link_speed": "-1"}
    foreign = replace(EXPECT, provision=False)
    assert findings(run_pair_checks(machines(other, ("", ""), {}), foreign)) == []
    blocked = {"tcp.2049": "silent"}
    alone = replace(EXPECT, nfs="other")
    assert findings(run_pair_checks(machines({}, (TWO, SERVER), blocked), alone)) == []
    assert findings(run_pair_checks(machines({}, (TWO, THREE), blocked), EXPECT)) == []


def test_name_that_leads_to_another_machine_is_named() -> None:
    """A machine's name that leads to another address is a warning, because behind NAT it is no
    fault.
    """
    elsewhere = {"name": "gpu01.example.com 203.0.113.9"}
    found = run_pair_checks(machines({}, (THREE, SERVER), elsewhere), EXPECT)
    assert findings(found) == [("pair-name", f"{THREE} -> {SERVER}", "warning")]
