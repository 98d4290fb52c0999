"""`pulumi up` on a bare host over SSH, as root and by sudo, and the way back."""

import pytest

from tests.node.lab import VERSION, Lab, counts, kubeconfig, rewritten
from tests.node.rootfs import PASSWORD


@pytest.mark.parametrize(
    ("user", "password"), [("root", None), ("deploy", None), ("admin", PASSWORD)]
)
def test_bare_host_gets_k3s_and_is_bare_again_after_destroy(
    lab: Lab, user: str, password: str | None
) -> None:
    stack = lab.stack(user, **({"sudoPassword": password} if password else {}))
    output = stack.up()
    assert f"k3s {VERSION} is up, the node is Ready" in output
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
