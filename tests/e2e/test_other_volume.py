"""The volume becomes another one while a run trains on it: by `pulumi preview` and `up`.

Another size is another PersistentVolume of the same folder, so the run finds what it has saved.
The tests build on each other in file order.
"""

from collections.abc import Iterator

import pytest

from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.lab import ENDLESS, NAMESPACE, Lab, run_settings, wait_for

pytestmark = pytest.mark.in_order

RUN, GUEST = "e2e-volume", "e2e-volume-guest"


@pytest.fixture(scope="module")
def stack(lab: Lab) -> Iterator[Stack]:
    made = lab.stack(RUN, "sandbox", run_settings(RUN, ENDLESS))
    made.up()
    yield made
    made.destroy()


def last_step(lab: Lab) -> int:
    return max(lab.losses(RUN), default=0)


def claim_and_volumes(lab: Lab) -> tuple[str, list[str]]:
    """Name of the only claim, and of each volume of ours."""
    volumes = [item for item in lab.left() if item.startswith("persistentvolume/")]
    return lab.claim()["metadata"]["name"], volumes


def test_run_goes_on_when_its_volume_becomes_another(lab: Lab, stack: Stack) -> None:
    """The preview failed, because the claim of the same name could not be bound to another one."""
    first, _ = claim_and_volumes(lab)
    wait_for("a checkpoint", lambda: any(lab.run_dir(RUN).glob("checkpoints/step-*")), 300)
    stack.set("dataSize", "60Gi")
    stack.preview()
    assert lab.claim()["metadata"]["name"] == first, "a preview changes nothing"
    before = last_step(lab)
    stack.up()
    second, volumes = claim_and_volumes(lab)
    assert second != first
    assert len(volumes) == 1
    assert stack.output("claim") == second
    wait_for("the run to go on", lambda: last_step(lab) > before, 300)
    log = lab.kubectl("logs", "--selector=app.kubernetes.io/component=training", "--tail=-1")
    assert "continuing after step" in log


def test_volume_stays_while_a_run_of_another_stack_uses_it(lab: Lab, stack: Stack) -> None:
    """Its claim was deleted under the pods, and `up` waited for them until its limit."""
    guest = lab.stack(GUEST, "sandbox-multipod", {**run_settings(GUEST, 20), "platform": RUN})
    guest.up()
    try:
        lab.wait_done(GUEST)
        claim, volumes = claim_and_volumes(lab)
        stack.set("dataSize", "70Gi")
        with pytest.raises(PulumiFailedError, match=rf"pulumi destroy --stack \S*{GUEST}") as said:
            stack.up()
        assert f"another claim than {claim} of namespace {NAMESPACE}" in str(said.value)
        assert claim_and_volumes(lab) == (claim, volumes)
        assert "deletionTimestamp" not in lab.claim()["metadata"]
    finally:
        guest.destroy()
    stack.up()
    assert lab.claim()["metadata"]["name"] != claim
