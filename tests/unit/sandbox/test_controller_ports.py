"""The ports of the sandbox's controllers, which all run on the node's own network."""

import importlib
import pkgutil
from collections import Counter

from sandbox import controllers


def test_controllers_can_run_side_by_side() -> None:
    """No two controllers use the same port. Otherwise the second one would end at once."""
    names = [module.name for module in pkgutil.iter_modules(controllers.__path__)]
    modules = [importlib.import_module(f"{controllers.__name__}.{name}") for name in names]
    ports = [
        value
        for module in modules
        for name, value in vars(module).items()
        if name.endswith("_PORT") and name != "API_PORT"  # the API server's port
    ]
    assert [port for port, times in Counter(ports).items() if times > 1] == []
    assert len(ports) > len(modules)
