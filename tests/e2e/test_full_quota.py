"""What `pulumi up` and status say if a quota of the namespace lacks room for all pods of a run.

`make test-engines` runs this file.
"""

from collections.abc import Iterator

import pytest

from sandbox.controllers import CONTROLLERS
from sandbox.controllers.controller import running
from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.asking import people_run, states, training_pods
from tests.e2e.lab import Lab, wait_for
from tests.node.lab import background_up, output_file

NAME = "e2e-quota"
KINDS = ("indexed-job", "jobset", "trainjob")
NEEDED = ("jobset", "trainer")
QUOTA, HOLDER = "few-pods", "holder"
LIMIT_SECONDS = 300


@pytest.fixture(scope="module")
def stack(lab: Lab) -> Iterator[Stack]:
    """Yield a platform that is up, for runs of a program in two pods that does not end."""
    with running(lab.cluster, [CONTROLLERS[name] for name in NEEDED]):
        made = lab.stack(NAME, "sandbox", {"topology": "none"})
        made.up()
        lab.wait_claim_bound()
        # The template sets these for our own trainer.
        made.set_all({"preset": None, "datasetFile": None})
        yield made
        made.destroy()


@pytest.mark.parametrize("kind", KINDS)
def test_quota_for_some_pods_is_named(lab: Lab, stack: Stack, kind: str) -> None:
    """A quota that can never have room for the run's pods is refused before anything is made.

    If others use up the quota, `up` and status name it while the run has one of its two pods. The
    run trains when the quota is gone.
    """
    words = ("sh", "-c", "sleep 86400")
    program = {f"program.command[{place}]": word for place, word in enumerate(words)}
    shape = {"topology": kind, "pods": "2", "processesPerPod": "1", "runName": f"e2e-{kind}"}
    stack.set_all({**program, **shape})
    before = lab.uids("configmap", "job", "service")
    lab.kubectl("create", "quota", QUOTA, "--hard=pods=1")
    with pytest.raises(PulumiFailedError) as refused:
        stack.up()
    said = " ".join(str(refused.value).split())
    assert f"pods: 2 cannot be used: quota {QUOTA} of namespace disttrain allows 1 pods" in said
    assert lab.uids("configmap", "job", "service") == before
    lab.kubectl("delete", "quota", QUOTA)
    lab.kubectl("run", HOLDER, "--image=localhost/absent", "--image-pull-policy=Never")
    lab.kubectl("create", "quota", QUOTA, "--hard=pods=2")
    try:
        with background_up(stack) as process:
            reason = f"exceeded quota: {QUOTA}, requested: pods=1, used: pods=2, limited: pods=2"

            def told_by_up() -> bool:
                return reason in " ".join(output_file(stack).read_text().split())

            wait_for("the words of up", told_by_up, LIMIT_SECONDS)

            def told_by_status() -> str:
                return people_run(lab, stack, f"./disttrain status --stack {NAME}")

            wait_for(
                "one of two pods to begin", lambda: "starting" in told_by_status(), LIMIT_SECONDS
            )
            told = " ".join(told_by_status().split())
            assert reason in told, told
            lab.kubectl("delete", "quota", QUOTA)
            assert process.wait(LIMIT_SECONDS) == 0, output_file(stack).read_text()
    finally:
        lab.kubectl("delete", "quota", QUOTA, "--ignore-not-found")
        lab.kubectl("delete", "pod", HOLDER, "--now")
    assert len(training_pods(lab, stack)) == 2
    assert states(lab, stack) == {NAME: "training"}
    assert "exceeded quota" not in people_run(lab, stack, f"./disttrain status --stack {NAME}")
