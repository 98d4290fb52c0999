"""Every task has both actions. Pulumi runs the action `delete` of each command on `pulumi
destroy`.
"""

import importlib

import pytest

from infra.kube.__main__ import ACTIONS, TASKS


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("task", TASKS.values())
def test_each_task_has_each_action(task: str, action: str) -> None:
    assert callable(getattr(importlib.import_module(f"infra.kube.{task}"), action))
