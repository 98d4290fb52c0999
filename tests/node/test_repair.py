"""`pulumi up` on a host whose k3s was stopped, damaged, wiped or given other certificates."""

import pytest

from sandbox.stack import Stack
from tests.in_depth import in_depth
from tests.node.lab import DATA_ROOT, UP, counts, kubeconfig
from tests.node.standing import Platform


def authority(stack: Stack) -> str:
    """Return the certificate authority in the stack's kubeconfig."""
    return kubeconfig(stack)["clusters"][0]["cluster"]["certificate-authority-data"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [in_depth("systemctl stop k3s"), "systemctl stop k3s; rm /etc/systemd/system/k3s.service"],
)
def test_up_repairs_k3s_and_touches_nothing_in_it(platform: Platform, damage: str) -> None:
    """`up` starts or completes a k3s that was stopped or damaged, and changes nothing in the
    cluster.
    """
    lab, stack = platform.lab, platform.stack
    before = lab.objects()
    assert len(before) == 5, before
    lab.host.shell(damage)
    assert "cluster-k3s" in stack.preview()
    assert UP in stack.up()
    assert lab.host.shell("systemctl is-active k3s").strip() == "active"
    assert lab.objects() == before
    assert set(counts(stack.up())) == {"unchanged"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "wipe",
    [
        "systemctl stop k3s; rm -rf /var/lib/rancher/k3s; systemctl start k3s",
        in_depth(f"/usr/local/bin/k3s-uninstall.sh; rm -rf {DATA_ROOT}"),
    ],
)
def test_up_after_a_wipe_makes_everything_anew(platform: Platform, wipe: str) -> None:
    """After somebody has wiped k3s, `up` makes everything in the cluster anew, and a lost data
    folder too.
    """
    lab, stack = platform.lab, platform.stack
    objects, before = lab.objects(), authority(stack)
    lab.host.shell(wipe)
    assert UP in stack.up()
    assert authority(stack) != before
    assert lab.host.exists(f"{DATA_ROOT}/runs")
    made = lab.objects()
    assert made.keys() == objects.keys()
    assert not set(made.values()) & set(objects.values())
    assert set(counts(stack.up())) == {"unchanged"}


@pytest.mark.slow
@pytest.mark.stand_in("its certificates, of which one can be made to end")
@pytest.mark.parametrize("names", [in_depth("client.crt"), "*"])
def test_up_renews_the_kubeconfig(platform: Platform, names: str) -> None:
    """`up` brings the kubeconfig in the stack's state up to date when k3s has new certificates."""
    lab, stack = platform.lab, platform.stack
    objects, before, old = lab.objects(), kubeconfig(stack), authority(stack)
    lab.host.shell(f"cd /var/lib/rancher/k3s/server/tls && rm {names} && systemctl restart k3s")
    stack.up()
    after = kubeconfig(stack)
    assert after["users"][0]["user"] != before["users"][0]["user"]
    assert (authority(stack) == old) == (names != "*")
    assert lab.objects() == objects
    assert set(counts(stack.up())) == {"unchanged"}


def test_preview_of_a_host_that_does_not_answer_shows_no_change(platform: Platform) -> None:
    """A preview that cannot ask the host says so, and shows no changes for that reason."""
    host = platform.lab.host
    host.shell("systemctl stop ssh.socket ssh 2>/dev/null; true")
    try:
        output = platform.stack.preview()
    finally:
        host.shell("systemctl start ssh")
    assert "could not be asked about its k3s" in output
    assert set(counts(output)) == {"unchanged"}, output


@pytest.mark.slow
def test_destroy_works_from_another_checkout(platform: Platform) -> None:
    """`up` and `destroy` work from another checkout of the project when the first one is gone.

    The state must name no path of a checkout, such as that of its Python.
    """
    lab, stack = platform.lab, platform.stack
    assert str(stack.project) not in lab.state(stack) + stack.export()
    elsewhere = lab.checkout("elsewhere")
    settings = elsewhere / stack.settings_file.name
    stack.settings_file.rename(settings)
    stack.project.rename(lab.scratch / "not-there-any-more")
    try:
        moved = Stack(stack.name, lab.scratch / "backend", settings, elsewhere)
        assert set(counts(moved.up())) == {"unchanged"}
        moved.destroy()
    finally:
        lab.remove_checkout("elsewhere")
    assert lab.differences() == []
