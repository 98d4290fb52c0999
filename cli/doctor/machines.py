"""Gathers facts about several machines: about each one, and about what each sees of the others."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from cli.ask_host import SCRIPTS, UnreachableError, ask_host
from cli.check import PROBE_SECONDS, Result
from cli.doctor.gather import gather
from cli.doctor.pair import Machine
from cli.doctor.pair_ways import ports_to_reach
from cli.facts import Facts
from infra.node.doctor_plan import Plan
from infra.node.expectations import FIRST_NODE
from infra.node.shell_program import assemble_program

CONNECTION = "connection"
AGENT_SERVICE, SERVER_SERVICE = "k3s-agent", "k3s"


@dataclass(frozen=True)
class ExaminedMachine:
    """A machine with its own plan, and with its facts or the reason why there are none."""

    name: str
    plan: Plan
    facts: Facts | None
    fault: Result | None
    is_server: bool


def examine_machines(plan: Plan) -> list[ExaminedMachine]:
    """Examine the host and the further machines side by side; the host comes first."""
    plans = {first_name(plan): replace(plan, machines=()), **further_plans(plan)}
    servers = {first_name(plan), *(each.name for each in plan.machines if each.is_server)}
    with ThreadPoolExecutor(max_workers=len(plans)) as pool:
        return list(pool.map(_examine, plans, plans.values(), (name in servers for name in plans)))


def examine_pairs(examined: list[ExaminedMachine], expect_address: str) -> list[Machine]:
    """Gather what the machines that have answered see of each other.

    Args:
        examined: the machines, the first one first.
        expect_address: the address of the first machine in the settings; empty if it is not set.
    """
    known = {each.name: each for each in examined if each.facts is not None}
    first = examined[0].name
    addresses = {
        name: address
        for name, each in known.items()
        if (address := _address(each, expect_address if name == first else ""))
    }

    def ask(name: str) -> Mapping[str, Facts]:
        others = [(known[other], at) for other, at in addresses.items() if other != name]
        return _sees(known[name], others, first) if others else {}

    with ThreadPoolExecutor(max_workers=max(len(known), 1)) as pool:
        seen = dict(zip(known, pool.map(ask, known), strict=True))
    return [
        Machine(name, each.facts or Facts(), each.is_server, seen[name])
        for name, each in known.items()
    ]


def first_name(plan: Plan) -> str:
    """Return the name of the first machine in reports; the settings name only the further ones."""
    return plan.ssh.host if plan.ssh else "this machine"


def further_plans(plan: Plan) -> dict[str, Plan]:
    """Return the plan for each further machine, by its name."""
    # These settings are about the first machine only: it may build the image, has the API server,
    # and its address is the cluster's.
    expect = replace(
        plan.expect,
        api_host="",
        node_address="",
        interface_address="",
        image="",
        image_builder="",
    )
    return {
        machine.name: Plan(
            ssh=machine.ssh,
            sudo_password=machine.sudo_password,
            scope="host",
            expect=replace(
                expect,
                node_interface=machine.interface,
                service=SERVER_SERVICE if machine.is_server else AGENT_SERVICE,
                # k3s on a server is told the machine's address too.
                no_proxy=expect.no_proxy and f"{expect.no_proxy},{machine.ssh.host}",
            ),
        )
        for machine in plan.machines
    }


def _examine(name: str, plan: Plan, is_server: bool) -> ExaminedMachine:
    try:
        return ExaminedMachine(name, plan, gather(plan).facts, None, is_server)
    except UnreachableError as reason:
        fault = Result(CONNECTION, "error", reason.evidence, reason.fix, PROBE_SECONDS, name)
        return ExaminedMachine(name, plan, None, fault, is_server)


def _address(examined: ExaminedMachine, given: str) -> str:
    """Return where other machines reach this one: at the address that k3s takes for the node.

    It is the given address, or the one that the machine reports, or its address for SSH.
    """
    facts = examined.facts or Facts()
    ssh = examined.plan.ssh
    return given or facts.get("node_ip") or (ssh.host if ssh else "")


def _sees(
    examined: ExaminedMachine, others: list[tuple[ExaminedMachine, str]], first: str
) -> Mapping[str, Facts]:
    """Return what a machine sees of others, by their names; nothing if it does not answer now.

    Args:
        examined: the machine.
        others: the other machines, each with the address at which it should be reached.
        first: the name of the first machine, which may serve the data.
    """
    facts = examined.facts or Facts()
    lines: list[str] = []
    for number, (other, address) in enumerate(others):
        ports = ports_to_reach(
            from_server=examined.is_server,
            to_server=other.is_server,
            share_images=examined.plan.expect.embedded_registry,
            to_data=other.name == first and examined.plan.expect.nfs == FIRST_NODE,
        )
        # facts-pairs.sh explains the words: the route, each port such as `tcp 6443`, and the MTU.
        probes = ["way -", *(port.replace(".", " ") for port in ports)]
        if facts.get("mtu").isdigit():
            probes.append(f"mtu {facts.get('mtu')}")
        lines += [f"m{number} {address} {probe}" for probe in probes]
    variables = {"PROBE_SECONDS": str(PROBE_SECONDS), "PEERS": "\n".join(lines)}
    text = (SCRIPTS / "facts-pairs.sh").read_text()
    try:
        answer = ask_host(examined.plan, assemble_program(text, variables), "pairs_done")
    except UnreachableError:
        return {}
    return {
        other.name: Facts(
            {
                key.removeprefix(f"pair.m{number}."): values
                for key, values in answer.values.items()
                if key.startswith(f"pair.m{number}.")
            }
        )
        for number, (other, _) in enumerate(others)
    }
