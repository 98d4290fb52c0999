"""What `./disttrain doctor` is told of a stack's settings, so that it checks what this stack
needs.
"""

from dataclasses import asdict
from pathlib import Path

import pytest

from cli.doctor.machines import further_plans
from infra.kinds import KINDS
from infra.node.doctor import make_plan, up_plan
from infra.node.expectations import HTTP_PROBE, HTTPS_PROBE
from infra.settings import parse_settings
from tests.unit.airgap.stocked import stock
from tests.unit.stacks import raw_settings

PROXY = "http://proxy:3128"
PROXIES = {"httpProxy": PROXY, "httpsProxy": PROXY, "nodeAddress": "10.1.2.3"}
SSH = {"host": "ssh", "sshHost": "gpu01", "sshUser": "admin", "sshHostKey": "ssh-ed25519 AAAA"}
SUMS = {"k3sSha256": "0" * 64, "k3sInstallerSha256": "1" * 64}


@pytest.mark.parametrize(
    ("changes", "http", "https"),
    [
        ({}, HTTP_PROBE, HTTPS_PROBE),
        ({"k3sMirror": "https://mirror.corp/k3s"}, HTTP_PROBE, "https://mirror.corp/k3s"),
        ({"k3sMirror": "http://mirror.corp", **SUMS}, HTTP_PROBE, "http://mirror.corp"),
        ({"k3sMirror": "https://mirror.corp", **PROXIES}, HTTP_PROBE, "https://mirror.corp"),
        ({"k3sMirror": "http://mirror.corp", **SUMS, **PROXIES}, "http://mirror.corp", HTTPS_PROBE),
        (
            {"k3sMirror": "https://mirror.corp", **PROXIES, "noProxy": ".corp"},
            HTTP_PROBE,
            HTTPS_PROBE,
        ),
    ],
)
def test_way_out_is_tried_where_k3s_comes_from(
    changes: dict[str, str], http: str, https: str
) -> None:
    """The doctor tries the way to the internet with the address from which k3s is downloaded. With
    a proxy, it tries a mirror only if the proxy is used for it.
    """
    settings = parse_settings(raw_settings("dev", changes), (), "dev", KINDS)
    expect = make_plan(settings.own_platform, settings.run).expect
    assert (expect.http_probe, expect.https_probe) == (http, https), asdict(expect)


def test_further_machine_is_in_its_own_no_proxy() -> None:
    """The doctor of a further machine is told NO_PROXY as k3s on a server has it, with the
    machine's address. Without a proxy there is none.
    """
    nodes = [{"name": "gpu2", "address": "gpu02", "host_key": "ssh-ed25519 AAAA"}]
    more = {
        **SSH,
        "nodeAddress": "10.1.2.3",
        "nodes": nodes,
        "storage": "nfs-first-node",
        "gpus": 6,
    }
    for proxies in (PROXIES, {}):
        settings = parse_settings(raw_settings("dev", {**more, **proxies}), (), "dev", KINDS)
        plan = make_plan(settings.own_platform, settings.run)
        expect = further_plans(plan)["gpu2"].expect
        shown = f"{plan.expect.no_proxy},gpu02" if proxies else ""
        assert (expect.no_proxy, expect.proxy_scope) == (shown, "all")
        assert (plan.expect.api_host, expect.api_host) == ("gpu01", "")
    scoped = raw_settings("dev", {**more, **PROXIES, "proxyScope": "containerd"})
    platform = parse_settings(scoped, (), "dev", KINDS).own_platform
    assert make_plan(platform).expect.proxy_scope == "containerd"


@pytest.mark.parametrize(
    ("changes", "host"),
    [
        ({}, ""),
        (SSH, "gpu01"),
        ({**SSH, "clusterAccess": "tunnel"}, ""),
        ({**SSH, "k3sExisting": "adopt"}, ""),
    ],
)
def test_port_of_the_api_is_tried_where_it_is_used(changes: dict[str, str], host: str) -> None:
    """The doctor is told to try port 6443 of a host behind SSH, where this stack installs k3s and
    reaches it directly.
    """
    settings = parse_settings(raw_settings("dev", changes), (), "dev", KINDS)
    assert make_plan(settings.own_platform).expect.api_host == host


def test_doctor_knows_the_run_s_pods_and_their_tolerations() -> None:
    """The doctor is told the number of ranks and pods, the node selector, and the taints that the
    pods tolerate. A toleration without a key tolerates all, which is `*`.
    """
    changes = {"topology": "multi-pod", "pods": 3, "gpus": 3, "gpusPerPod": 1}
    tolerations = [{"key": "dedicated", "operator": "Exists"}]
    selector = {"gpu": "h100", "zone": "a"}
    raw = raw_settings("dev", {**changes, "tolerations": tolerations, "nodeSelector": selector})
    settings = parse_settings(raw, (), "dev", KINDS)
    expect = make_plan(settings.own_platform, settings.run).expect
    assert (expect.ranks, expect.pods) == (3, 3)
    assert set(expect.tolerated_taints) == {"nvidia.com/gpu", "dedicated"}
    assert expect.node_selector == ("gpu=h100", "zone=a")
    everything = raw_settings("dev", {"tolerations": [{"operator": "Exists"}]})
    settings = parse_settings(everything, (), "dev", KINDS)
    assert "*" in make_plan(settings.own_platform, settings.run).expect.tolerated_taints


@pytest.mark.parametrize("build_on", ["here", "node"])
def test_doctor_asks_for_the_builder_where_the_image_is_built(build_on: str) -> None:
    """The doctor checks the image builder on the machine on which the image is built."""
    changes = {"imageBuilder": "podman", "imageBuildOn": build_on, **SSH}
    settings = parse_settings(raw_settings("dev", changes), (), "dev", KINDS)
    for plan in (make_plan(settings.own_platform), up_plan(settings.own_platform)):
        assert plan.expect.image_builder == "podman"
        assert plan.expect.image_build_on == build_on
        assert plan.expect.image_deps == settings.own_platform.image.plan.deps_hash


def test_doctor_asks_for_no_builder_where_a_bundle_has_the_image(tmp_path: Path) -> None:
    raw = raw_settings("dev", {"bundle": str(stock(tmp_path))})
    settings = parse_settings(raw, (), "dev", KINDS)
    assert make_plan(settings.own_platform).expect.image_builder == ""
