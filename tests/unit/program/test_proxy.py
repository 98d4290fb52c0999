"""A corporate proxy reaches everything that needs it, and only if it is set."""

from pathlib import Path

from tests.unit.stacks import deploy


def test_proxy_reaches_every_consumer_in_both_cases(tmp_path: Path) -> None:
    """The proxy's variables reach pods, driver, build and k3s, in lower and upper case, with the
    cluster's own addresses as exceptions.
    """
    proxy = "http://proxy.corp.example:3128"
    changes = {"httpProxy": proxy, "httpsProxy": proxy, "noProxy": "git.corp.example"}
    more = {"nodeAddress": "10.1.2.3", "gpuOperatorDriver": True}
    result = deploy("dev", tmp_path, {**changes, **more})
    data = result.one("proxy-config-map").inputs["data"]
    assert data["HTTP_PROXY"] == data["https_proxy"] == proxy
    assert data["NO_PROXY"] == data["no_proxy"]
    assert data["NO_PROXY"].split(",") == [
        *("10.1.2.3", "10.42.0.0/16", "10.43.0.0/16", ".svc", ".cluster.local"),
        *("127.0.0.1", "localhost", "git.corp.example"),
    ]
    assert len(data) == 6
    operator = result.one("gpu-operator-release").inputs["values"]["driver"]["env"]
    assert {e["name"]: e["value"] for e in operator} == data
    assert data.items() <= result.one("image-ensure").inputs["environment"].items()
    for name, value in data.items():
        assert f"export {name}={value}\n" in result.one("cluster-k3s").program


def test_without_a_proxy_the_pods_environment_has_none(tmp_path: Path) -> None:
    assert deploy("sandbox", tmp_path).one("proxy-config-map").inputs["data"] == {}


def test_node_address_of_an_existing_cluster_comes_from_its_kubeconfig(tmp_path: Path) -> None:
    """The exceptions of an existing cluster begin with the address of the server in its
    kubeconfig.
    """
    result = deploy("sandbox", tmp_path, {"httpProxy": "http://proxy.corp.example:3128"})
    data = result.one("proxy-config-map").inputs["data"]
    assert data["NO_PROXY"].startswith("198.18.0.2,10.244.0.0/24,10.96.0.0/16,")
