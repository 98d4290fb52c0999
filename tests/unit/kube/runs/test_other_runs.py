"""Which of the other runs a new run waits for."""

from dataclasses import replace

from infra.kube.runs.busy import OtherRun
from infra.kube.runs.hand_over_plan import Plan
from infra.kube.runs.other_runs import holders, in_the_way
from tests.unit.kube.runs.gone_run import HAND_OVER, OTHER, job


def plan(gpus: int, gpus_total: int) -> Plan:
    """Return the plan of a run with `gpus` GPUs on a platform with `gpus_total` GPUs."""
    return Plan.of(job(**{**HAND_OVER, "gpus": gpus, "gpus_total": gpus_total}))


def run(gpus: int) -> OtherRun:
    """Return a run of another stack that trains or still saves."""
    return OtherRun(replace(OTHER, gpus=gpus), coming_up=False)


def test_running_gpus_are_no_room_beside_saving_pods() -> None:
    """Pods that save are waited for if the runs that go on leave too few GPUs beside them.
    Otherwise the new pods would start while the GPUs are still taken.
    """
    saving, going_on = run(4), run(4)
    assert in_the_way([saving], [going_on], plan(4, 8)) == [saving]
    assert in_the_way([saving], [going_on], plan(4, 12)) == []
    assert in_the_way([saving], [], plan(4, 8)) == []


def test_run_waits_for_its_own_resource_only() -> None:
    """With `whenBusy: wait`, a run on GPUs waits for runs on GPUs, and a run on CPUs for those on
    CPUs. Otherwise it would wait for a run whose end gives it no place.
    """
    on_gpus, on_cpus = run(4), run(0)
    assert holders([on_gpus, on_cpus], plan(2, 4)) == [on_gpus]
    assert holders([on_gpus, on_cpus], plan(0, 4)) == [on_cpus]
