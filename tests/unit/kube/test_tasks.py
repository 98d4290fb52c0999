"""Pulumi runs both actions of each task: `create` on `pulumi up`, `delete` on `pulumi destroy`."""

import importlib

import pytest

from infra.kube.__main__ import ACTIONS, TASKS


@pytest.mark.parametrize("task", sorted({*TASKS} - {"copies"}))
def test_each_task_has_an_action(task: str) -> None:
    """A task may lack one action, which then does nothing. `copies` has none, because what it does
    is done at the end of every task.
    """
    module = importlib.import_module(f"infra.kube.{TASKS[task]}")
    assert [action for action in ACTIONS if callable(getattr(module, action, None))]
