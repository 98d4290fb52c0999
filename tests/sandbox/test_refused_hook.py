"""The hook that runs before the objects of a workload are made again (infra/run/workload_hooks.py).

The engine is real; commands stand in for the objects and for the task `hand-over`.
"""

from infra.kube.runs.hand_over import LEFT_ALONE
from sandbox.venvs import PROJECT
from tests.sandbox.command_lab import Stack

PROGRAM = """
import sys
sys.path.insert(0, PROJECT)
from infra import task_in_hook
from infra.run import workload_hooks

task_in_hook.PROGRAM = ("-c", TASK)
hand_over = local.Command("hand-over", create=f"echo {SAID!r}", stdin="{}")
hook = workload_hooks.hand_over_before_creation("made-again", hand_over)
hooks = pulumi.ResourceHookBinding(before_create=[hook])
after = [hand_over]
for name in ("service", "stateful-set"):
    opts = pulumi.ResourceOptions(depends_on=after, hooks=hooks)
    after = [local.Command(name, create=f"echo {name} >> $LOG", opts=opts)]
"""
REFUSES = "print('error: whenBusy: refuse, and Job other of stack b has them'); raise SystemExit(1)"
LETS = "import os; open(os.environ['LOG'], 'a').write('asked\\n')"


def test_refused_workload_leaves_none_of_its_objects(stack: Stack) -> None:
    """If the run may not take its place, `up` fails before any of the workload's objects is made.
    Otherwise the first of them, such as a Service, would be left. If the run may, the hook asks
    only once.
    """
    project, said = str(PROJECT), f"Job train-dev is not there, {LEFT_ALONE}"
    output = stack.up(PROGRAM, fails=True, TASK=REFUSES, PROJECT=project, SAID=said)
    assert "whenBusy: refuse, and Job other of stack b has them" in output
    assert stack.actions() == []
    assert stack.names() == {"hand-over"}
    stack.up(PROGRAM, TASK=LETS, PROJECT=project, SAID=said)
    assert stack.actions() == ["asked", "service", "stateful-set"]  # the task is asked once


def test_run_that_has_its_place_is_not_asked_again(stack: Stack) -> None:
    """A run that `hand-over` has let in is not asked about again."""
    said = "the run of stack dev may start in namespace disttrain"
    stack.up(PROGRAM, TASK=REFUSES, PROJECT=str(PROJECT), SAID=said)
    assert stack.actions() == ["service", "stateful-set"]
