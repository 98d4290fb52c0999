"""The first machine is lost (`hostGone`): what is asked of the further ones before `destroy`."""

from pathlib import Path
from unittest.mock import patch

import pulumi
import pytest

from infra.node.k3s_look import HostAccess, K3sLook
from tests.unit.platform.machines import FITTING, THREE, TWO
from tests.unit.stacks import Deployment, deploy

SILENT = TWO["address"]


def lost(*nodes: object) -> Deployment:
    """The program where the first machine is lost, and `gpu2` does not answer."""

    def look(access: HostAccess, **_: object) -> K3sLook:
        assert access.ssh
        problem = "no answer in 10 s" if access.ssh["host"] == SILENT else ""
        return K3sLook("repair-1", "", problem=problem)

    settings = {**FITTING, "nodes": [*nodes], "hostGone": True}
    with patch("infra.platform.agents.look_at_k3s", look):
        return deploy("dev", Path("none of this machine's files"), settings)


def test_machine_that_is_silent_too_has_to_be_marked() -> None:
    """`destroy` would fail at it, when no `up` could note any more that it is lost."""
    with pytest.raises(pulumi.RunError) as refused:
        lost(TWO, THREE)
    said = str(refused.value)
    assert "do not answer either: gpu2 (10.1.2.4: no answer in 10 s). `pulumi destroy`" in said
    assert "Set `gone: true`" in said


def test_machine_that_is_marked_is_not_asked() -> None:
    assert lost({**TWO, "gone": True}, THREE).one("node-gpu2-k3s")
