"""Further machines that are servers: the order in which they join, and what all servers have in
common.
"""

from pathlib import Path

from infra.node.doctor_plan import Plan
from tests.unit.platform.machines import MARK, SERVERS, THREE, TWO, before, changed, deployed, job


def test_servers_join_one_after_the_other_and_agents_after_them(tmp_path: Path) -> None:
    """Servers join one after the other, and agents join after them, beside each other. A server
    that is lost is forgotten before another one joins. The engine removes them in the reverse
    order.
    """
    result = deployed(tmp_path, *SERVERS)
    first = {name: before(result, f"node-{name}-k3s") for name in ("gpu2", "gpu3", "gpu4", "gpu5")}
    assert "cluster-k3s" in first["gpu2"]
    assert not [name for name in first["gpu2"] if name.startswith(("node-gpu3-k3s", "node-gpu4"))]
    assert "node-gpu2-k3s" in first["gpu3"]
    for name, other in (("gpu4", "gpu5"), ("gpu5", "gpu4")):
        assert {"node-gpu2-k3s", "node-gpu3-k3s"} <= first[name]
        assert f"node-{other}-k3s" not in first[name]
    assert "node-gpu3-k3s" in before(result, "destroy-guard-look")
    # A lost server is forgotten before another one joins, wherever it is in the list.
    lost = deployed(tmp_path, SERVERS[0], {**SERVERS[1], "gone": True}, SERVERS[2])
    assert "node-gpu3-k3s" in before(lost, "node-gpu2-k3s")


def test_first_machine_keeps_its_data_in_etcd_where_others_are_servers(tmp_path: Path) -> None:
    """The first machine keeps the cluster's data in etcd if there are further servers. A further
    machine more changes nothing of the first one, so it is not restarted.
    """
    none, both = (deployed(tmp_path, *nodes) for nodes in (SERVERS[2:], SERVERS))
    assert "export CLUSTER_INIT" not in none.one("cluster-k3s").program
    assert "export CLUSTER_INIT=1\n" in both.one("cluster-k3s").program
    more = [
        {**node, "name": f"{node['name']}0", "address": f"{node['address']}0"} for node in SERVERS
    ]
    assert changed(both, deployed(tmp_path, *SERVERS, *more[:2])) == set()


def test_server_gets_what_servers_have_to_agree_in_and_agents_do_not(tmp_path: Path) -> None:
    """A further server gets the networks of the cluster and the addresses for its certificate, and
    reaches all kubelets without the proxy. An agent gets none of these.
    """
    changes = {"nodeAddress": "10.9.9.9", "podCidr": "10.44.0.0/16", "httpProxy": "http://proxy:1"}
    result = deployed(tmp_path, *SERVERS, **changes)
    server = job(result, "gpu2")
    variables = server["variables"]["agent"]
    assert variables["POD_CIDR"] == "10.44.0.0/16"
    assert variables["SERVICE_CIDR"] == "10.43.0.0/16"
    assert variables["TLS_SAN"] == "10.9.9.9 10.1.2.4"
    assert variables["SERVER_URL"] == "https://10.9.9.9:6443"
    for address in ("10.1.2.4", "10.1.2.5", "10.1.2.6", "10.1.2.7"):
        assert address in variables["NO_PROXY"]  # its API server asks the kubelets of all machines
    assert "K3S_EXEC=server" in server["scripts"]["agent"]
    assert (server["role"], server["variables"]["look"]) == ("server", {"ROLE": "server"})
    assert server["variables"]["member"]["ROLE"] == "server"
    agent = job(result, "gpu4")
    assert not {"POD_CIDR", "TLS_SAN", "ROLE"} & agent["variables"]["agent"].keys()
    assert "K3S_EXEC=agent" in agent["scripts"]["agent"]
    assert "role" not in agent


def test_machine_leaves_in_its_old_role_before_it_joins_in_another(tmp_path: Path) -> None:
    """Another role of a machine replaces its command, so that it leaves before it joins in its new
    role.
    """
    agent, server = (deployed(tmp_path, *nodes) for nodes in ((TWO, THREE), SERVERS[:2]))
    triggers = [each.one("node-gpu2-k3s").inputs["triggers"] for each in (agent, server)]
    assert triggers == [
        ["gpu2", "10.1.2.4", f"{MARK}-id"],
        ["gpu2", "10.1.2.4", f"{MARK}-id", "server"],
    ]


def test_server_is_examined_with_the_servers_before_it(tmp_path: Path) -> None:
    """A server is examined together with the servers before it, because their etcds talk to each
    other. A server that is added later changes no plan of an earlier one.
    """
    result = deployed(tmp_path, *SERVERS)
    plans = {
        name: Plan.from_json(result.one(f"node-{name}-doctor-host").inputs["stdin"])
        for name in ("gpu2", "gpu3", "gpu4")
    }
    names = {
        name: [(machine.name, machine.is_server) for machine in plan.machines]
        for name, plan in plans.items()
    }
    assert names == {
        "gpu2": [("gpu2", True)],
        "gpu3": [("gpu2", True), ("gpu3", True)],
        "gpu4": [("gpu4", False)],
    }
