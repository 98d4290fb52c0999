"""Every check over a clean fact set, and over one with its fault alone."""

import json

import pytest

from cli.check import PROBE_SECONDS, Result
from cli.doctor import CHECKS, judge
from cli.facts import parse_facts
from cli.report import COULD_NOT_CHECK, FINDINGS, NO_FINDINGS, Report
from infra.doctor_plan import Plan
from tests.cli.fact_sets import FAULTS, Seeded, disk, expect_with, facts_with


def results_of(seeded: Seeded) -> list[Result]:
    return judge(
        Plan(expect=expect_with(seeded.expect)), facts_with(seeded.facts, bare=seeded.bare)
    )


def findings(results: list[Result]) -> dict[str, Result]:
    return {result.id: result for result in results if result.is_finding}


def test_there_are_many_checks_and_each_has_an_own_id_and_a_fault_to_find() -> None:
    ids = [check.id for check in CHECKS]
    assert len(ids) == len(set(ids)) >= 25
    assert set(ids) == set(FAULTS)
    assert all(check.limit_seconds <= PROBE_SECONDS for check in CHECKS)


@pytest.mark.parametrize("bare", [False, True], ids=["running", "bare"])
def test_clean_host_has_no_finding_and_nothing_unchecked(bare: bool) -> None:
    results = results_of(Seeded("", bare=bare))
    assert findings(results) == {}
    assert [result.id for result in results if result.status == "not checked"] == []
    assert Report("local", results, 1.0).exit_code() == NO_FINDINGS


@pytest.mark.parametrize("check_id", list(FAULTS))
def test_fault_is_named_by_exactly_its_check_with_evidence_and_a_fix(check_id: str) -> None:
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


OTHER_FAULTS = {
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
        Seeded("does not get out: curl 56, status 403", {"via.https": "56|403|000"}),
        Seeded("does not get out: curl 0, status 502", {"via.http": "0|000|502"}),
    ],
    "proxy-password": [
        Seeded(
            "none is given (407)",
            {"via.http": "0|000|407"},
            {"http_proxy": "http://proxy.example:3128"},
        )
    ],
    "no-proxy": [
        Seeded("k3s' environment file lacks 10.1.2.3", {"k3s_env.NO_PROXY": "10.42.0.0/16"}),
        Seeded("environment file lacks", {"k3s_env.NO_PROXY": None}),
    ],
    "nvidia-smi": [
        Seeded("hangs", {"nvidia_smi": "124"}),
        Seeded("missing", {"nvidia_smi": "absent", "gpu": ["A, N", "A, N", "A, N"]}),
        Seeded("ends with 18: mismatch", {"nvidia_smi": "18", "nvidia_smi_says": "mismatch"}),
        Seeded("shows 1 GPUs of 3", {"gpu": ["NVIDIA A10, Disabled"]}),
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
    "node-schedulable": [
        Seeded("has the taint disk:NoSchedule", {"node": "n|Ready:True||disk:NoSchedule |3|3|1||v"})
    ],
    "gpu-sharing": [
        Seeded(
            "shares each GPU 2 times",
            {"node": "n|Ready:True|||6|3|2|single|v"},
            severity="warning",
        )
    ],
    "operator-pods": [Seeded("no pod in the namespace", {"pod": []})],
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
        Seeded("ends in -", {"client_certificate_until": "Aug  1 12:00:00 2026 GMT"})
    ],
}


@pytest.mark.parametrize(
    ("check_id", "seeded"),
    [(check_id, seeded) for check_id, many in OTHER_FAULTS.items() for seeded in many],
    ids=lambda value: value.words if isinstance(value, Seeded) else value,
)
def test_other_faults_of_a_check_are_told_apart(check_id: str, seeded: Seeded) -> None:
    found = findings(results_of(seeded))
    assert list(found) == [check_id], {k: v.evidence for k, v in found.items()}
    assert seeded.words in found[check_id].evidence
    assert found[check_id].status == seeded.severity


def test_host_without_gpus_says_so_once_and_does_not_claim_to_have_checked_the_rest() -> None:
    results = {r.id: r for r in results_of(Seeded("", {"gpu_pci": [], "driver": ""}))}
    assert results["gpu-device"].status == "error"
    assert results["gpu-device"].evidence == "no NVIDIA GPU on the PCI bus, 3 asked for"
    assert {results[name].status for name in ("gpu-driver", "nouveau", "nvidia-smi")} == {
        "not checked"
    }
    cpu = {r.id: r.status for r in results_of(Seeded("", {"gpu_pci": []}, {"gpus": 0}))}
    assert cpu["gpu-device"] == cpu["nvidia-smi"] == cpu["gpus-allocatable"] == "not asked for"


def test_what_cannot_be_seen_is_neither_well_nor_a_finding() -> None:
    facts = facts_with({"image": None})
    facts.unseen["image"] = "ctr: permission denied"
    report = Report("local", judge(Plan(expect=expect_with({})), facts), 1.0)
    (result,) = [result for result in report.results if result.status == "not checked"]
    assert (result.id, result.evidence) == ("image-present", "ctr: permission denied")
    assert report.exit_code() == COULD_NOT_CHECK
    assert report.exit_code("error") == NO_FINDINGS


def test_no_result_shows_the_password_of_a_proxy() -> None:
    for seeded in (*FAULTS.values(), *(s for many in OTHER_FAULTS.values() for s in many)):
        report = Report("local", results_of(seeded), 1.0)
        assert "hunter2" not in report.json() + report.text(everything=True)


def test_json_has_every_check_and_the_exit_code() -> None:
    content = json.loads(Report("local", results_of(FAULTS["swap"]), 1.234).json())
    assert (content["exit_code"], content["seconds"], content["reached"]) == (1, 1.23, True)
    assert content["counts"]["warning"] == 1
    assert {check["id"] for check in content["checks"]} == set(FAULTS)
    assert set(content["checks"][0]) == {"id", "status", "evidence", "fix", "limit_seconds"}


def test_text_shows_errors_first_and_each_with_its_fix() -> None:
    both = Seeded("", {"SwapTotal_kib": "4194304", "ip_forward": "1", "nouveau": "loaded"})
    lines = Report("local", results_of(both), 1.0).text().splitlines()
    assert lines[0].startswith("error         nouveau")
    assert lines[1].strip().startswith("fix: ")
    assert lines[2].startswith("warning       swap")
    assert lines[-1].startswith("doctor: local: ")


def test_lines_of_another_form_are_no_facts() -> None:
    facts = parse_facts(["Welcome to host", "a=1", "a=2", "b?no such tool", "= x", "disk.tmp=/t|x"])
    assert facts.all("a") == ["1", "2"]
    assert facts.unseen == {"b": "no such tool"}
    assert set(facts.values) == {"a", "disk.tmp"}
