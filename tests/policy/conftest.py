"""Which of these tests the sandbox's engine can run."""

import pytest

from sandbox.pulumi_home import runs_policy_packs

BY_THE_ENGINE = "test_pack_in_preview.py"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A pack is run by the engine itself only where its Python language host is new enough."""
    needing = [item for item in items if item.path.name == BY_THE_ENGINE]
    if needing and not runs_policy_packs():
        config.hook.pytest_deselected(items=needing)
        items[:] = [item for item in items if item not in needing]
