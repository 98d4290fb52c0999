"""Checks of the host's network: ports, firewall, routes, addresses and names."""

import ipaddress

from cli.check import Check, Fault, error, only_for_own_k3s, skip_unless, warning
from cli.doctor import api_facts
from cli.doctor.agent_facts import ANSWERS, NOT_NEEDED, NOT_SET
from cli.facts import Facts
from infra.node.expectations import Expectations


def port(number: int) -> Check:
    """Make the check that a port is free for k3s, or is used by k3s."""

    def judge(facts: Facts, expect: Expectations) -> Fault | str:
        only_for_own_k3s(expect)
        state, _, who = facts.one(f"port.{number}").partition(" ")
        if state == "taken" and not who.startswith("k3s") and facts.get("k3s_active") != "active":
            return error(
                f"port {number} is taken by {who}",
                f"stop that program (ss -ltnp 'sport = :{number}' shows it): k3s needs the port",
            )
        return f"{state} {who}".strip()

    about = f"No program except k3s listens on port {number}, which k3s needs."
    return Check(f"port-{number}", judge, about=about)


def firewall(facts: Facts, expect: Expectations) -> Fault | str:
    """An active firewall lets pods reach each other and the API server."""
    only_for_own_k3s(expect)
    nets = (expect.pod_cidr, expect.service_cidr)
    if facts.one("firewalld") == "active":
        missing = [net for net in nets if net not in facts.get("firewalld_trusted")]
        if missing:
            sources = " ".join(f"--add-source={net}" for net in missing)
            return warning(
                f"firewalld is active and does not trust {', '.join(missing)}",
                f"firewall-cmd --permanent --zone=trusted {sources} && firewall-cmd --reload",
            )
    if facts.one("ufw") == "active":
        missing = [net for net in nets if net not in facts.get("ufw_rules")]
        if missing:
            rules = " && ".join(f"ufw allow from {net} to any" for net in missing)
            return warning(f"ufw is active without a rule for {', '.join(missing)}", rules)
    return "no firewall is in the way"


def nm_cloud_setup(facts: Facts, expect: Expectations) -> Fault | str:
    """NetworkManager's nm-cloud-setup is off; many releases of k3s do not start beside it.

    https://github.com/k3s-io/k3s/pull/12889
    """
    only_for_own_k3s(expect)
    if facts.one("nm_cloud_setup") == "enabled":
        return warning(
            "nm-cloud-setup of NetworkManager is enabled: many releases of k3s, such as v1.34.1, "
            "do not start beside it, and before NetworkManager 1.32 it disturbs the pods' network",
            "systemctl disable --now nm-cloud-setup.timer nm-cloud-setup.service, and reboot",
        )
    return facts.one("nm_cloud_setup")


def ip_forward(facts: Facts, expect: Expectations) -> Fault | str:
    """IP forwarding is on; without it no packet leaves a pod."""
    only_for_own_k3s(expect)
    fact, setting = "ip_forward", "net.ipv4.ip_forward"
    if ":" in expect.pod_cidr:
        fact, setting = "ip6_forward", "net.ipv6.conf.all.forwarding"
    if facts.one(fact) != "1":
        if facts.get("k3s_active") != "active":
            return "off; k3s turns it on when it starts"
        return warning(
            f"{setting} is 0 though k3s turned it on: another program turned it off",
            f"echo {setting}=1 >/etc/sysctl.d/99-k3s.conf && sysctl --system",
        )
    return "on"


def default_route(facts: Facts, expect: Expectations) -> Fault | str:
    """There is a default route; k3s finds its own address with it, even without internet."""
    only_for_own_k3s(expect)
    if not any(route.startswith("default ") for route in facts.all("route")):
        return error(
            "this host has no default route",
            "ip link add dummy0 type dummy && ip addr add 203.0.113.254/31 dev dummy0 && "
            "ip link set dummy0 up && ip route add default via 203.0.113.255 dev dummy0",
        )
    return "present"


def cidr_overlap(facts: Facts, expect: Expectations) -> Fault | str:
    """No route of the host lies inside the cluster's networks and takes their packets."""
    only_for_own_k3s(expect)
    ours = [ipaddress.ip_network(net) for net in (expect.pod_cidr, expect.service_cidr)]
    for route in facts.all("route"):
        target, _, device = route.partition(" ")
        if target == "default" or device.startswith(("cni", "flannel", "veth", "kube")):
            continue
        try:
            network = ipaddress.ip_network(target, strict=False)
        except ValueError:
            continue  # the first word of the route is no network, as in `blackhole 10.0.0.0/8`
        for own in ours:
            if own.version == network.version and own.overlaps(network):
                return error(
                    f"the host routes {target} to {device}, inside the cluster's {own}",
                    "set podCidr and serviceCidr to networks that the host does not use",
                )
    return "no route of the host is inside"


def node_address(facts: Facts, expect: Expectations) -> Fault | str:
    """The setting nodeAddress is an address of the host; NO_PROXY and the certificate use it."""
    only_for_own_k3s(expect)
    skip_unless(expect.node_address, "nodeAddress is not set")
    try:
        wanted = str(ipaddress.ip_address(expect.node_address))
    except ValueError:
        return f"{expect.node_address} is a name, which is not looked up"
    if wanted not in facts.all("address"):
        return warning(
            f"{wanted} is not an address of this host",
            "set nodeAddress to the address by which pods reach the host; behind NAT this is fine",
        )
    return wanted


def node_interface(facts: Facts, expect: Expectations) -> Fault | str:
    """The interface named for k3s is up and has one address: nodeAddress, if that is set."""
    only_for_own_k3s(expect)
    name = expect.node_interface
    skip_unless(name, "k3s takes the interface of the default route")
    state = facts.one("interface")
    if state == "absent":
        there = facts.get("interfaces") or "none that could be seen"
        return error(
            f"this host has no network interface {name}; it has {there}",
            "set nodeInterface (of a further machine: interface in its item of nodes) to one of "
            "these, or remove it",
        )
    if state == "down":
        return error(f"the network interface {name} is off", f"ip link set {name} up")
    addresses = facts.all("interface_address")
    if not addresses:
        return error(
            f"the network interface {name} has no address",
            f"give it one in the host's network configuration, such as by ip address add ... "
            f"dev {name}",
        )
    old = [address for address in addresses if ":" not in address]
    if len(old) > 1:
        return error(
            f"the network interface {name} has several addresses: {', '.join(old)}; k3s would not "
            "know which is the node's",
            f"leave one on {name}, or name an interface that has one",
        )
    wanted = expect.interface_address
    if wanted and wanted not in addresses:
        return error(
            f"nodeAddress is {wanted}, and the network interface {name} (nodeInterface) has "
            f"{', '.join(addresses)}",
            f"set nodeAddress to an address of {name}, or nodeInterface to the interface that has "
            f"{wanted}",
        )
    return f"{name} has {', '.join(addresses)}"


def address_family(facts: Facts, expect: Expectations) -> Fault | str:
    """The node's own address is of the same kind (IPv4, IPv6) as podCidr; k3s starts only then."""
    only_for_own_k3s(expect)
    named = facts.all("interface_address") if expect.node_interface else []
    known = [address for address in named or [facts.get("node_ip")] if address]
    skip_unless(known, "the node's own address is not known")
    wanted = ipaddress.ip_network(expect.pod_cidr).version
    if wanted in [ipaddress.ip_address(address).version for address in known]:
        return f"both are of IPv{wanted}"
    other = {4: "IPv6, such as fd42::/56 and fd43::/112", 6: "IPv4"}[wanted]
    return error(
        f"k3s takes {known[0]} for the node's own address, and podCidr {expect.pod_cidr} is a "
        f"network of IPv{wanted}",
        f"set podCidr and serviceCidr to networks of {other}; or give the host a default route of "
        f"IPv{wanted}, or nodeInterface (of a further machine: interface in its item of nodes) an "
        f"interface with an address of IPv{wanted}",
    )


def dns(facts: Facts, expect: Expectations) -> Fault | str:
    """The host can resolve names; behind a proxy the proxy resolves them instead."""
    skip_unless(
        expect.internet and not expect.has_proxy, "no outside name has to be resolved on this host"
    )
    names = [name.removeprefix("dns.") for name in facts.values if name.startswith("dns.")]
    skip_unless(names, "no outside name has to be resolved on this host")
    failed = [name for name in names if facts.one(f"dns.{name}") != "found"]
    if failed:
        return error(
            f"this host cannot resolve {', '.join(failed)}",
            "correct /etc/resolv.conf, or set httpProxy/httpsProxy if there is a proxy",
        )
    return f"resolves {', '.join(names)}"


def pod_dns(facts: Facts, expect: Expectations) -> Fault | str:
    """Pods can use the host's name servers; k3s replaces those that they cannot by 8.8.8.8."""
    only_for_own_k3s(expect)
    files = [line.split() for line in facts.all("name_servers")]
    skip_unless(files, "the host has no name servers")
    for servers in files:
        if all(_is_for_pods(server) for server in servers):
            return f"pods ask {', '.join(servers)}"
    shown = ", ".join(dict.fromkeys(server for servers in files for server in servers))
    return warning(
        f"pods cannot use the host's name servers ({shown}), so k3s lets them ask 8.8.8.8, which "
        "knows no names of your network",
        "name servers in /etc/resolv.conf that are neither on the loopback nor link-local, and "
        "restart k3s if it runs; or open 8.8.8.8 for the pods",
    )


def _is_for_pods(server: str) -> bool:
    """Whether k3s takes the address for a name server that pods reach. It wants this of each."""
    try:
        address = ipaddress.ip_address(server)
    except ValueError:
        return False
    local = address.is_loopback or address.is_link_local
    return not (local or address.is_multicast or address.is_unspecified)


def ssh_agent(facts: Facts, _: Expectations) -> Fault | str:
    """An SSH agent that SSH_AUTH_SOCK names answers; the commands of `up` connect to it first.

    Pulumi's command plugin connects to the agent even if it has a private key, and gives up if
    nobody answers (tests/sandbox/test_command_over_ssh.py).
    """
    state = facts.one("ssh_agent")
    skip_unless(state != NOT_NEEDED, "the host is this machine and is not reached over SSH")
    if state in (NOT_SET, ANSWERS):
        return "no agent is named" if state == NOT_SET else "the agent answers"
    return error(
        f"SSH_AUTH_SOCK of this machine names a socket where no agent answers ({state}), and "
        "every command that `pulumi up` runs over SSH would fail, even with a private key",
        "run `unset SSH_AUTH_SOCK` in this shell, or log in again so that the agent is there",
    )


def api_port(facts: Facts, expect: Expectations) -> Fault | str:
    """This machine reaches port 6443 of the host, unless clusterAccess is tunnel."""
    state, host = facts.one("api_port"), expect.api_host
    skip_unless(state != api_facts.NOT_NEEDED, "the API server is not reached there from here")
    if state == api_facts.REACHED:
        return f"port {api_facts.API_PORT} of {host} is reached from here"
    if state == api_facts.BY_PROXY:
        return warning(
            f"`pulumi up` would connect to {host} through the proxy that HTTPS_PROXY of this shell "
            "names",
            f"put {host} into the variable NO_PROXY of this shell, if it is reached without a "
            "proxy; or pulumi config set clusterAccess tunnel",
        )
    return error(
        f"this machine does not reach port {api_facts.API_PORT} of {host} ({state}), where `pulumi "
        "up` connects to the cluster",
        "open the port for this machine, or let everything go through the SSH server: pulumi "
        "config set clusterAccess tunnel",
    )


NETWORK_CHECKS = (
    port(6443),
    port(10250),
    Check("firewall", firewall),
    Check("nm-cloud-setup", nm_cloud_setup),
    Check("ip-forward", ip_forward),
    Check("default-route", default_route),
    Check("cidr-overlap", cidr_overlap),
    Check("node-address", node_address),
    Check("node-interface", node_interface),
    Check("address-family", address_family),
    Check("dns", dns),
    Check("pod-dns", pod_dns),
    Check("ssh-agent", ssh_agent),
    Check("api-port", api_port),
)
