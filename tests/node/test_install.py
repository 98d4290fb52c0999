"""`pulumi up` on a bare host over SSH, as root or by sudo, and `destroy`, which leaves it bare
again.
"""

import json

import pytest

from tests.in_depth import in_depth
from tests.node.lab import LIMITS, OLD, UP, VERSION, Lab, counts, kubeconfig, rewritten
from tests.node.rootfs import PASSWORD


@pytest.mark.parametrize(
    ("user", "password"), [in_depth("root", None), in_depth("deploy", None), ("admin", PASSWORD)]
)
def test_bare_host_gets_k3s_and_is_bare_again_after_destroy(
    lab: Lab, user: str, password: str | None
) -> None:
    stack = lab.stack(user, **({"sudoPassword": password} if password else {}))
    output = stack.up()
    assert UP in output
    assert lab.host.shell("systemctl is-active k3s; systemctl is-enabled k3s").split() == [
        "active",
        "enabled",
    ]
    cluster = kubeconfig(stack)["clusters"][0]["cluster"]
    assert cluster["server"] == f"https://{lab.host.address}:6443"
    assert cluster["certificate-authority-data"]
    before = lab.host.files()
    again = stack.up()
    assert set(counts(again)) == {"unchanged"}, again
    assert rewritten(before, lab.host.files()) == []
    stack.destroy()
    assert lab.differences() == []


@pytest.mark.stand_in("its recorded calls")
def test_dry_mode_tells_what_would_change_and_changes_nothing(lab: Lab) -> None:
    before = lab.host.files()
    said = lab.install_by_hand(DRY_RUN="1")
    assert said.splitlines() == [
        f"would change: {what}" for what in ("binary", "service", "config.yaml", "agent-secret")
    ]
    assert rewritten(before, lab.host.files()) == []
    assert lab.calls() == []
    lab.install_by_hand()
    before = lab.host.files()
    said = lab.install_by_hand("delete", DRY_RUN="1")
    assert f"would remove: k3s {VERSION}" in said
    assert rewritten(before, lab.host.files()) == []


def test_script_that_runs_again_writes_nothing(lab: Lab) -> None:
    """The install script writes and downloads nothing if k3s is as it should be.

    With `host: local`, root runs the same script on the host itself.
    """
    assert "downloading" in lab.install_by_hand()
    before, requests = lab.host.files(), len(lab.mirror.requests)
    assert "downloading" not in lab.install_by_hand()
    assert rewritten(before, lab.host.files()) == []
    assert len(lab.mirror.requests) == requests


def test_containers_of_k3s_may_pin_memory(lab: Lab) -> None:
    """k3s, whose limits all containers inherit, may pin as much memory as an RDMA device needs. By
    default systemd allows only a few MiB.

    A drop-in file that somebody has removed comes back. k3s of a version that did not set the limit
    is not restarted because of that alone, and gets the limit with its next version.
    """
    lab.install_by_hand(K3S_VERSION=OLD)
    assert lab.pinned_memory_limit() == "infinity"
    lab.host.shell(f"rm {LIMITS}; systemctl daemon-reload")
    assert lab.pinned_memory_limit() != "infinity"
    assert lab.install_by_hand(DRY_RUN="1", K3S_VERSION=OLD).strip() == "would change: service"
    lab.install_by_hand(K3S_VERSION=OLD)
    assert lab.pinned_memory_limit() == "infinity"
    note = "/etc/rancher/disttrain"  # as an older version has left it
    lab.host.shell(f"rm {LIMITS}; sed -i '/^limits /d' {note}; systemctl daemon-reload")
    assert lab.install_by_hand(DRY_RUN="1", K3S_VERSION=OLD).strip() == "would change: nothing"
    lab.install_by_hand("update")
    assert lab.pinned_memory_limit() == "infinity"
    lab.install_by_hand("delete")
    assert lab.differences() == []


def test_no_timer_of_the_host_starts(lab: Lab) -> None:
    """No timer of the distribution changes a test host. At midnight one that makes backups did, and
    the test that ran then found files that it had not made.
    """
    assert lab.host.shell("systemctl list-timers --no-legend").strip() == ""


@pytest.mark.stand_in("its recorded environment")
def test_installer_gets_no_proxy_and_k3s_does(lab: Lab) -> None:
    proxy = {"HTTP_PROXY": "http://proxy.test:3128", "NO_PROXY": "127.0.0.1,localhost"}
    lab.install_by_hand(**proxy)
    assert lab.host.shell("cat /etc/systemd/system/k3s.service.env").strip() == ""
    assert json.loads(lab.host.shell("cat /lab/environment")) == proxy
    assert "changed: environment" in lab.install_by_hand()
    assert json.loads(lab.host.shell("cat /lab/environment")) == {}
    assert not lab.host.exists("/etc/default/k3s")
