"""Every check of the doctor, on facts without a fault and on facts with the one fault that it must
find.
"""

import json
from collections.abc import Mapping

import pytest

from cli.check import PROBE_SECONDS, SMI_SECONDS, Result
from cli.doctor.command import CHECKS, judge
from cli.facts import parse_facts
from cli.report import COULD_NOT_CHECK, FINDINGS, NO_FINDINGS, Report
from infra.node.doctor_plan import Plan
from tests.cli.doctor.fact_sets import (
    FAULTS,
    NO_PROXY,
    Changes,
    Seeded,
    disk,
    expect_with,
    facts_with,
    node,
)


def results_of(seeded: Seeded) -> list[Result]:
    """Return the results of all checks on a host with this fault."""
    return judge(
        Plan(expect=expect_with(seeded.expect)), facts_with(seeded.facts, bare=seeded.bare)
    )


def findings(results: list[Result]) -> dict[str, Result]:
    """Return the results that are errors or warnings, by the id of their check."""
    return {result.id: result for result in results if result.is_finding}


def test_each_check_has_an_own_id_a_fault_and_a_sentence() -> None:
    """Each check has an id of its own, a limit of time, a sentence that says what it looks at, and
    a fault in the tests.
    """
    ids = [check.id for check in CHECKS]
    assert len(ids) == len(set(ids)) >= 25
    assert set(ids) == set(FAULTS)
    asks_smi = {"nvidia-smi", "gpu-errors", "gpu-mig"}
    for check in CHECKS:
        assert check.limit_seconds == (SMI_SECONDS if check.id in asks_smi else PROBE_SECONDS)
    for check in CHECKS:
        assert check.summary.endswith("."), check.id
        assert len(check.summary.split()) >= 6, check.id


@pytest.mark.parametrize("bare", [False, True], ids=["running", "bare"])
def test_clean_host_has_no_finding_and_nothing_unchecked(bare: bool) -> None:
    """On a host without a fault the doctor finds nothing and leaves nothing unchecked, before the
    first `up` and after it.
    """
    results = results_of(Seeded("", bare=bare))
    assert findings(results) == {}
    assert [result.id for result in results if result.status == "not checked"] == []
    assert Report("local", results, 1.0).exit_code() == NO_FINDINGS


def test_claim_that_waits_for_its_first_pod_is_no_fault() -> None:
    """A claim without a volume is no finding if its class waits for the first pod. Many classes do,
    because only then is it known on which node the volume is needed.
    """
    waits: Changes = {
        "claim": "disttrain/disttrain-pvc|Pending|gp3",
        "class": "gp3|WaitForFirstConsumer",
    }
    results = {result.id: result for result in results_of(Seeded("", waits))}
    assert findings([*results.values()]) == {}
    assert "when the first pod uses it" in results["volume-bound"].evidence


def test_missing_module_names_the_packages() -> None:
    """The packages with the modules that pods need are named for each family of Linux. In RHEL 10
    they are no longer in kernel-modules, which each machine has.
    """
    found = findings(results_of(FAULTS["module-br_netfilter"]))["module-br_netfilter"]
    assert "(linux-modules-extra-$(uname -r), kernel-modules-extra)" in found.fix


@pytest.mark.parametrize("check_id", list(FAULTS))
def test_fault_is_named_by_exactly_its_check_with_evidence_and_a_fix(check_id: str) -> None:
    """Each fault is found by its own check and by no other, with what was seen, a fix on one line,
    and an exit code for scripts.
    """
    seeded = FAULTS[check_id]
    results = results_of(seeded)
    found = findings(results)
    assert list(found) == [check_id], {k: v.evidence for k, v in found.items()}
    assert seeded.words in found[check_id].evidence
    assert found[check_id].status == seeded.severity
    assert found[check_id].fix
    assert "\n" not in found[check_id].fix
    report = Report("local", results, 1.0)
    assert report.exit_code() == FINDINGS
    assert report.exit_code("error") == (FINDINGS if seeded.severity == "error" else NO_FINDINGS)
    assert report.exit_code("none") == NO_FINDINGS


def test_slow_nvidia_smi_is_told_persistence_mode_first() -> None:
    """The first advice for an nvidia-smi without an answer is the persistence daemon. Without it, a
    healthy machine of eight GPUs needs many seconds for each answer.
    """
    (found,) = findings(results_of(Seeded("", {"nvidia_smi": "124"}))).values()
    assert found.fix.startswith("systemctl enable --now nvidia-persistenced")


IPV6 = {
    "pod_cidr": "fd42::/56",
    "service_cidr": "fd43::/112",
    "no_proxy": "10.1.2.3,fd42::/56,fd43::/112,.svc,.cluster.local,127.0.0.1,localhost",
}
BY_NAME = {
    "node_address": "gpu01.example",
    "no_proxy": NO_PROXY.replace("10.1.2.3", "gpu01.example"),
}
OTHER_FAULTS = {
    "node-interface": [
        Seeded("eth1 is off", {"interface": "down"}, {"node_interface": "eth1"}),
        Seeded("eth1 has no address", {"interface": "up"}, {"node_interface": "eth1"}),
        Seeded(
            "several addresses: 10.1.2.3, 10.1.2.9",
            {"interface": "up", "interface_address": ["10.1.2.3", "fd00::1", "10.1.2.9"]},
            {"node_interface": "eth1"},
        ),
        Seeded(
            "nodeAddress is 10.1.2.3, and the network interface eth1 (nodeInterface) has 10.9.9.9",
            {"interface": "up", "interface_address": ["10.9.9.9"]},
            {"node_interface": "eth1", "interface_address": "10.1.2.3"},
        ),
    ],
    "address-family": [
        Seeded(
            "k3s takes 10.1.2.3 for the node's own address, and podCidr fd42::/56 is a network of",
            {"ip6_forward": "1", "k3s_env.NO_PROXY": IPV6["no_proxy"]},
            IPV6,
        ),
        Seeded(
            "k3s takes fd00::9 for the node's own",
            {"interface": "up", "interface_address": ["fd00::9"]},
            {"node_interface": "eth1"},
        ),
    ],
    "ip-forward": [
        Seeded(
            "net.ipv6.conf.all.forwarding is 0",
            {"node_ip": "fd00::4", "k3s_env.NO_PROXY": IPV6["no_proxy"]},
            {**IPV6, "no_proxy": f"{IPV6['no_proxy']},fd00::4"},
            severity="warning",
        )
    ],
    "cgroup": [Seeded("cgroup v1", {"cgroup": "v1"}, {"k3s_version": "v1.35.0+k3s1"})],
    "memory": [Seeded("1.0 GiB of memory", {"MemTotal_kib": "1048576"}, {"shm_kib": 1024})],
    "data-root": [
        Seeded("read-only", {"disk.data": "/d|xfs|1|400000000|10000000|9000000|ro"}),
        Seeded("in memory", {"disk.data": "/d|tmpfs|1|400000000|0|0|rw"}, severity="warning"),
    ],
    "disk-system": [
        Seeded("/etc/rancher: 0 MiB free", disk("settings", "/etc/rancher", free="8")),
        Seeded("read-only", disk("programs", "/usr/local/bin", mode="ro")),
    ],
    "firewall": [
        Seeded("ufw is active", {"ufw": "active", "ufw_rules": "10.42.0.0/16"}, severity="warning")
    ],
    "clock": [
        Seeded("20 s apart", {"clock_skew": "20"}, severity="warning"),
        Seeded("not synchronised", {"clock_synchronised": "no"}, severity="warning"),
    ],
    "proxy-reachable": [
        Seeded("name cannot be resolved", {"via.https": "5|000|000"}),
        Seeded(
            "does not reach the internet: curl ended with 56, HTTP status 403",
            {"via.https": "56|403|000"},
        ),
        Seeded(
            "does not reach the internet: curl ended with 0, HTTP status 502",
            {"via.http": "0|000|502"},
        ),
    ],
    "proxy-password": [
        Seeded(
            "none is given (407)",
            {"via.http": "0|000|407"},
            {"http_proxy": "http://proxy.example:3128"},
        )
    ],
    "api-port": [
        Seeded("would connect to gpu01 through", {"api_port": "by proxy"}, severity="warning"),
    ],
    "no-proxy": [
        Seeded(
            "k3s' environment file lacks 10.1.2.3",
            {"k3s_env.NO_PROXY": "10.42.0.0/16"},
            severity="warning",
        ),
        Seeded("environment file lacks", {"k3s_env.NO_PROXY": None}, severity="warning"),
        Seeded("NO_PROXY of the settings lacks 10.1.2.3, this host's own", {}, BY_NAME, bare=True),
    ],
    "nvidia-smi": [
        Seeded("no answer in 30 s", {"nvidia_smi": "124"}),
        Seeded("no answer in 30 s", {"nvidia_smi": "137"}),
        Seeded("missing", {"nvidia_smi": "absent", "gpu": ["A, N", "A, N", "A, N"]}),
        Seeded("ends with 18: mismatch", {"nvidia_smi": "18", "nvidia_smi_says": "mismatch"}),
        Seeded("shows 1 GPUs of 3", {"gpu": ["NVIDIA A10, Disabled"]}),
    ],
    "gpu-errors": [
        Seeded("no spare ones left", {"gpu_rows": ["0000:17:00.0, 0, 0", "0000:65:00.0, 0, 1"]}),
        Seeded("at its next reset", {"gpu_rows": "0000:17:00.0, Yes, No"}, severity="warning"),
        Seeded("GPU 1 has had 2 errors", {"gpu_ecc": ["0, 0", "1, 2"]}, severity="warning"),
    ],
    "volume-bound": [
        Seeded(
            "claim lustre is Pending, it has no volume",
            {"claim": "disttrain/lustre|Pending|fsx", "class": "fsx|Immediate"},
            {"claim": "lustre"},
        )
    ],
    "k3s-complete": [
        Seeded("data there", {"k3s_data": "yes"}, bare=True),
        Seeded(
            "unit missing", {"k3s_binary": "yes", "k3s_ours": "yes"}, severity="warning", bare=True
        ),
    ],
    "api-server": [
        Seeded("certificate is refused", {"api": "x509: certificate signed by unknown authority"}),
        Seeded("a proxy is in the way", {"api": "proxyconnect tcp: EOF"}),
    ],
    "node-ready": [
        Seeded(
            "1 of 2 nodes are not Ready: cpu01",
            {"node": [str(node()["node"]), "cpu01|Ready:Unknown|||||||"]},
            severity="warning",
        )
    ],
    "gpus-allocatable": [
        Seeded(
            "gpu01 offers 3",
            {"node": [str(node(offered="3")["node"])] * 2},
            {"ranks": 6, "gpus": 3},
        ),
        Seeded(
            "gpu01 offers 1000",  # as Kubernetes writes a thousand time slices
            {"node": node(offered="1k")["node"]},
            {"ranks": 1001, "gpus": 3},
        ),
        Seeded(
            "room for 2 of 3 pods with 2 GPUs each",
            {"node": [str(node(offered="3")["node"])] * 2},
            {"ranks": 6, "gpus": 3, "pods": 3},
        ),
    ],
    "proxy-of-k3s": [
        Seeded(
            "k3s runs with the proxy http://old.example:3128, and pods get http://proxy.example:",
            {"k3s_env.HTTPS_PROXY": "http://old.example:3128/"},
            {"provision": False},
            "warning",
        ),
        Seeded(
            "k3s runs with the proxy http://old.example:3128, and pods get none for http",
            {"k3s_env.CONTAINERD_HTTP_PROXY": "http://old.example:3128"},
            {"provision": False, "http_proxy": ""},
            "warning",
        ),
    ],
    "gpu-driver-version": [
        Seeded(
            "older than 570.0, which a Blackwell GPU needs",
            {"gpu_pci": ["a 0x2901", "b 0x2901", "c 0x2901"]},
            {"cuda": "12.8"},
        )
    ],
    "image-builder": [
        Seeded(
            "podman does not work on the node",
            {"image_builder": "none", "image": "absent"},
            {"image_builder": "podman", "image_build_on": "node", "image": ""},
        ),
        Seeded(
            "does not work on the machine that runs Pulumi",
            {"image_builder": "none", "image": None},
            {"image": ""},
            severity="warning",
        ),
    ],
    "node-schedulable": [
        Seeded(
            "has the taint disk:NoSchedule", {"node": "n|Ready:True||disk:NoSchedule |3|3|1||v"}
        ),
        Seeded(
            "which Kubernetes removes when the cause is gone",
            {"node": node(taints="node.kubernetes.io/disk-pressure:NoSchedule ")["node"]},
        ),
        Seeded(
            "none of 1 nodes has the labels of nodeSelector (gpu=h100, zone=a)",
            {"selected_nodes": "0"},
            {"node_selector": ("gpu=h100", "zone=a")},
        ),
    ],
    "gpu-sharing": [
        Seeded(
            "shares each GPU 2 times",
            {"node": "n|Ready:True|||6|3|2|single|v"},
            severity="warning",
        )
    ],
    "operator-pods": [Seeded("there is no pod in the namespace", {"pod": []})],
    "waiting-pods": [
        Seeded(
            "crashes again",
            {
                "pod": [
                    "disttrain/t|Running|False|CrashLoopBackOff ||",
                    "gpu-operator/o|Running|True|||",
                ]
            },
        ),
        Seeded(
            "Insufficient nvidia.com/gpu",
            {
                "pod": [
                    'disttrain/t|Pending|||"0/1 nodes: Insufficient nvidia.com/gpu"|',
                    "gpu-operator/o|Running|True|||",
                ]
            },
        ),
    ],
    "client-certificate": [
        Seeded("ended 51 days ago", {"client_certificate_until": "Aug  1 12:00:00 2026 GMT"})
    ],
}


@pytest.mark.parametrize(
    ("check_id", "seeded"),
    [(check_id, seeded) for check_id, many in OTHER_FAULTS.items() for seeded in many],
    ids=lambda value: value.words if isinstance(value, Seeded) else value,
)
def test_other_faults_of_a_check_are_told_apart(check_id: str, seeded: Seeded) -> None:
    """A check that can find several faults names the one that is there, and no other check finds it
    too.
    """
    found = findings(results_of(seeded))
    assert list(found) == [check_id], {k: v.evidence for k, v in found.items()}
    assert seeded.words in found[check_id].evidence
    assert found[check_id].status == seeded.severity


def test_driver_older_than_every_build_needs_another_driver() -> None:
    """The doctor advises another `torchIndexUrl` only if the driver is new enough for it and it is
    not set already. Otherwise following the advice would change nothing.
    """
    known = "gpu-driver-version"
    facts: Changes = {"driver": "440.33.01"}
    for cuda in ("11.8", "12.6"):
        assert findings(results_of(Seeded("", facts, {"cuda": cuda})))[known].fix == (
            "update the driver"
        )
    newer = findings(results_of(Seeded("", {"driver": "470.82.01"}, {"cuda": "12.6"})))[known]
    assert newer.fix == "update the driver, or set torchIndexUrl to .../cu118"


def test_proxy_that_up_replaces_is_no_finding() -> None:
    """A proxy of k3s that differs from the settings is no finding where `pulumi up` manages k3s.
    `up` examines the host first, and then writes the proxy of the settings.
    """
    changes: Changes = {"k3s_env.HTTPS_PROXY": "http://old.example:3128"}
    results = results_of(Seeded("", changes, {"provision": True}))
    (found,) = (result for result in results if result.id == "proxy-of-k3s")
    assert found.status == "ok"
    assert "`pulumi up` replaces it" in found.evidence


def no_proxy_of(changes: Mapping[str, object], *, bare: bool = True) -> Result:
    """Return the result of the check `no-proxy` with these expectations."""
    (found,) = (r for r in results_of(Seeded("", {}, changes, bare=bare)) if r.id == "no-proxy")
    return found


def test_own_address_in_no_proxy_is_told_by_its_setting() -> None:
    """The API server reaches the kubelet of each machine by its IP address. If NO_PROXY has only
    the machine's name, the doctor names the setting that helps. After the installation it is a
    warning, because a proxy may let such connections pass.
    """
    found = no_proxy_of(BY_NAME)
    assert (found.status, found.fix) == ("error", "pulumi config set nodeAddress 10.1.2.3")
    assert no_proxy_of(BY_NAME, bare=False).status == "warning"
    for elsewhere in ("", "192.0.2.7"):  # of a further machine, and of a host behind NAT
        given = NO_PROXY.replace("10.1.2.3", elsewhere or "gpu02.example")
        found = no_proxy_of({"node_address": elsewhere, "no_proxy": given})
        assert found.fix == "add 10.1.2.3, or a network that it is in, to the setting noProxy"


def test_own_address_that_needs_no_exception_is_no_finding() -> None:
    """The host's own address need not be in NO_PROXY if one of its networks is, or if only the
    containerd of k3s uses the proxy.
    """
    network = f"{BY_NAME['no_proxy']},10.0.0.0/8"
    assert no_proxy_of({**BY_NAME, "no_proxy": network}).status == "ok"
    assert no_proxy_of({**BY_NAME, "proxy_scope": "containerd"}).status == "ok"


def test_exceptions_that_up_writes_do_not_stop_it() -> None:
    """After a change of `nodeAddress`, NO_PROXY of the installed k3s lacks the new address until
    `pulumi up` has written it. The doctor says so, and does not stop that `up`.
    """
    changed = {"node_address": "10.9.9.9", "no_proxy": NO_PROXY.replace("10.1.2.3", "10.9.9.9")}
    moved = Seeded("", {"node_ip": "10.9.9.9"}, changed)
    (found,) = (result for result in results_of(moved) if result.id == "no-proxy")
    assert (found.status, found.fix) == ("warning", "run `pulumi up`, which writes it again")
    assert "k3s' environment file lacks 10.9.9.9" in found.evidence


SHARED_CLUSTER: dict[str, tuple[Changes, dict[str, object]]] = {
    "a control plane with its own taint": (
        {
            "node": [
                "cp|Ready:True||node-role.kubernetes.io/control-plane:NoSchedule |||||",
                str(node()["node"]),
            ]
        },
        {},
    ),
    "GPU nodes with NVIDIA's usual taint": (node(taints="nvidia.com/gpu:NoSchedule "), {}),
    "a taint that the settings tolerate": (
        node(taints="dedicated:NoExecute "),
        {"tolerated_taints": ("dedicated",)},
    ),
    "any taint, where the settings tolerate all": (
        node(taints="dedicated:NoExecute "),
        {"tolerated_taints": ("nvidia.com/gpu", "*")},
    ),
    "one cordoned node beside one that is free": (
        {"node": [str(node(cordoned="cordoned")["node"]), str(node()["node"])]},
        {},
    ),
    "three pods of one GPU on three nodes": (
        {"node": [str(node(offered="1", count="1")["node"])] * 3},
        {"pods": 3},
    ),
}


@pytest.mark.parametrize("name", SHARED_CLUSTER)
def test_ordinary_cluster_of_several_nodes_has_no_finding(name: str) -> None:
    """Taints that pods tolerate, a cordoned node beside a free one, and GPUs spread over nodes are
    no findings on a cluster of several nodes.
    """
    facts, expect = SHARED_CLUSTER[name]
    assert findings(results_of(Seeded("", dict(facts), expect))) == {}


def test_gpus_without_the_selected_labels_do_not_count() -> None:
    """The doctor counts only GPUs of nodes that have the labels of `nodeSelector`. Otherwise it
    would find room in a cluster with two kinds of GPUs, and the pods would stay Pending.
    """
    small = str(node(offered="1", count="1")["node"]).replace("gpu01", "gpu02")
    facts: Changes = {
        "node": [str(node()["node"]), small],
        "selected_nodes": "1",
        "selected_node": "gpu02",
    }
    expect = {"node_selector": ("gpu=small",)}
    assert list(findings(results_of(Seeded("", facts, expect)))) == ["gpus-allocatable"]
    assert findings(results_of(Seeded("", {**facts, "selected_node": "gpu01"}, expect))) == {}


def test_gpus_without_a_device_plugin_are_no_finding() -> None:
    """A node that hands out its GPUs by Dynamic Resource Allocation offers no nvidia.com/gpu. The
    doctor cannot tell whether pods may ask for them, and says so instead of finding none.
    """
    facts: Changes = {**node(offered=""), "gpu_slice": "gpu01|gpu-0 gpu-1 "}
    results = results_of(Seeded("", facts))
    assert findings(results) == {}
    (found,) = (result for result in results if result.id == "gpus-allocatable")
    assert found.status == "not checked"
    assert "2 GPUs by Dynamic Resource Allocation" in found.evidence
    elsewhere: Changes = {**node(offered=""), "gpu_slice": "gpu02|gpu-0 "}
    assert list(findings(results_of(Seeded("", elsewhere)))) == ["gpus-allocatable"]


def test_gpus_of_a_node_that_takes_no_pods_do_not_count() -> None:
    """The doctor does not count the GPUs of a cordoned node."""
    facts: Changes = {
        "node": [str(node(cordoned="cordoned")["node"]), str(node(offered="")["node"])]
    }
    assert list(findings(results_of(Seeded("", facts)))) == ["gpus-allocatable"]


REPAIRS = {
    "k3s-running": {"k3s_active": "failed"},
    "k3s-complete": {"k3s_binary": "yes", "k3s_unit": "no", "k3s_ours": "yes"},
    "api-server": {"api": "dial tcp 10.1.2.3:6443: connection refused"},
    "client-certificate": {"client_certificate_until": "Oct  1 12:00:00 2026 GMT"},
}


@pytest.mark.parametrize("check_id", REPAIRS)
def test_fix_of_our_own_k3s_is_what_up_really_does(check_id: str) -> None:
    """For faults of a k3s that the project has installed, the doctor advises a plain `pulumi up`,
    which repairs k3s and fetches its kubeconfig anew. `--refresh` is not needed, and is not
    advised.
    """
    seeded = Seeded("", dict(REPAIRS[check_id]), bare=check_id == "k3s-complete")
    fix = findings(results_of(seeded))[check_id].fix
    assert "`pulumi up`" in fix
    assert "--refresh" not in fix


def test_log_of_an_agent_is_named() -> None:
    """The advice for a node that is not Ready names the log of k3s on an agent too, which is
    another one: `journalctl -u k3s` shows nothing there.
    """
    fix = findings(results_of(Seeded("", node(conditions="Ready:Unknown "))))["node-ready"].fix
    assert "journalctl -u k3s (on an agent: k3s-agent)" in fix


def test_certificates_are_renewed_on_every_machine() -> None:
    """The advice for a certificate that ends soon is about further machines too. Their certificates
    are as old, and k3s renews them only when it starts there: their nodes would be lost.
    """
    seeded = Seeded("", dict(REPAIRS["client-certificate"]))
    fix = findings(results_of(seeded))["client-certificate"].fix
    assert "`sudo systemctl restart k3s` on the first machine" in fix
    assert "`sudo systemctl restart k3s-agent` (a server: k3s) on each machine in nodes" in fix


@pytest.mark.parametrize("check_id", ["api-server", "client-certificate"])
def test_fix_of_an_existing_cluster_sends_nobody_to_our_k3s(check_id: str) -> None:
    """For an existing cluster, which the project has not installed, no advice speaks of k3s."""
    plan = Plan(kubeconfig="/home/me/kubeconfig", expect=expect_with({"provision": False}))
    found = findings(judge(plan, facts_with(dict(REPAIRS[check_id]))))
    assert list(found) == [check_id]
    assert "k3s" not in found[check_id].fix


def test_host_without_gpus_says_so_once_and_does_not_claim_to_have_checked_the_rest() -> None:
    """On a host without GPUs one check says so, and the other GPU checks are `not checked`. If no
    GPU is wanted, they are all `not applicable`.
    """
    results = {r.id: r for r in results_of(Seeded("", {"gpu_pci": [], "driver": ""}))}
    assert results["gpu-device"].status == "error"
    assert results["gpu-device"].evidence == "there is no NVIDIA GPU on the PCI bus; 3 asked for"
    assert {results[name].status for name in ("gpu-driver", "nouveau", "nvidia-smi")} == {
        "not checked"
    }
    cpu = {r.id: r.status for r in results_of(Seeded("", {"gpu_pci": []}, {"gpus": 0}))}
    assert cpu["gpu-device"] == cpu["nvidia-smi"] == cpu["gpus-allocatable"] == "not applicable"


def test_what_cannot_be_seen_is_neither_well_nor_a_finding() -> None:
    """What the doctor may not look at is `not checked`, with the reason, and the exit code
    says so.
    """
    facts = facts_with({"image": None})
    facts.unseen["image"] = "ctr: permission denied"
    report = Report("local", judge(Plan(expect=expect_with({})), facts), 1.0)
    (result,) = [result for result in report.results if result.status == "not checked"]
    assert (result.id, result.evidence) == ("image-present", "ctr: permission denied")
    assert report.exit_code() == COULD_NOT_CHECK
    assert report.exit_code("error") == NO_FINDINGS


@pytest.mark.parametrize(
    ("listing", "fact", "check_id"),
    [
        ("namespaces", "namespace", "stuck-namespace"),
        ("releases", "release", "pending-release"),
        ("claims", "claim", "volume-bound"),
        ("classes", "class", "volume-bound"),
        ("deployments", "deployment", "controllers"),
    ],
)
def test_forbidden_listing_is_not_well(listing: str, fact: str, check_id: str) -> None:
    """A check whose objects the user may not list is `not checked`. Otherwise the doctor would call
    namespaces well that it has not seen, or find a fault in a claim that only waits for its first
    pod.
    """
    changes: Changes = {fact: None}
    if listing == "classes":
        changes = {fact: None, "claim": "disttrain/disttrain-pvc|Pending|gp3"}
    facts = facts_with(changes)
    facts.unseen[listing] = f"Error from server (Forbidden): {listing} is forbidden"
    results = judge(Plan(expect=expect_with({})), facts)
    (result,) = [result for result in results if result.status == "not checked"]
    assert (result.id, result.evidence) == (check_id, facts.unseen[listing])
    assert findings(results) == {}


def test_cluster_without_controllers_of_runs_has_no_finding() -> None:
    """A cluster without Kueue and the like has nothing to check, whatever else is scaled to 0."""
    seeded = Seeded("", {"deployment": ["team/web||app=web,", "kube-system/coredns|1|"]})
    results = {result.id: result for result in results_of(seeded)}
    assert findings([*results.values()]) == {}
    assert results["controllers"].status == "not applicable"


def test_no_result_shows_the_password_of_a_proxy() -> None:
    """No report shows the password of a proxy, whatever the fault."""
    for seeded in (*FAULTS.values(), *(s for many in OTHER_FAULTS.values() for s in many)):
        report = Report("local", results_of(seeded), 1.0)
        assert "hunter2" not in report.json() + report.text(everything=True)


def test_json_has_every_check_and_the_exit_code() -> None:
    content = json.loads(Report("local", results_of(FAULTS["swap"]), 1.234).json())
    assert (content["exit_code"], content["seconds"], content["reached"]) == (1, 1.23, True)
    assert content["counts"]["warning"] == 1
    assert {check["id"] for check in content["checks"]} == set(FAULTS)
    words = {"id", "status", "evidence", "fix", "limit_seconds", "place"}
    assert set(content["checks"][0]) == words


def test_text_shows_errors_first_and_each_with_its_fix() -> None:
    """The text lists errors before warnings, each with its fix below it."""
    both = Seeded("", {"SwapTotal_kib": "4194304", "ip_forward": "1", "nouveau": "loaded"})
    lines = Report("local", results_of(both), 1.0).text().splitlines()
    assert lines[0].startswith("error          nouveau")
    assert lines[1].strip().startswith("fix: ")
    assert lines[2].startswith("warning        swap")
    assert lines[-1].startswith("doctor: local: ")


def test_lines_of_another_form_are_no_facts() -> None:
    """Lines that are no facts, such as a greeting at login, are passed over. A line with `?` gives
    the reason why a fact could not be seen.
    """
    facts = parse_facts(["Welcome to host", "a=1", "a=2", "b?no such tool", "= x", "disk.tmp=/t|x"])
    assert facts.all("a") == ["1", "2"]
    assert facts.unseen == {"b": "no such tool"}
    assert set(facts.values) == {"a", "disk.tmp"}


def test_words_of_a_host_do_not_steer_the_terminal() -> None:
    """What a host or a pod has said is shown without sequences that steer a terminal. The doctor is
    used on machines that are not trusted yet, where a program may have any name.
    """
    evidence = "port 6443: \033]0;title\007\033[2Jnc\033[1A"
    results = [Result("port-6443", "error", evidence, "end\033[8m it", 0)]
    text = Report("host", results, 0.0).text()
    assert "port 6443: nc\n" in text
    assert "fix: end it\n" in text
