"""The ports of the sandbox's controllers, all of which run on the node's own network."""

import importlib
import pkgutil
from collections import Counter

from sandbox import controllers


def test_controllers_can_run_side_by_side() -> None:
    """Each port is one program's: whichever came second would end at once."""
    names = [module.name for module in pkgutil.iter_modules(controllers.__path__)]
    modules = [importlib.import_module(f"{controllers.__name__}.{name}") for name in names]
    ports = [
        value
        for module in modules
        for name, value in vars(module).items()
        if name.endswith("_PORT") and name != "API_PORT"  # the server's, which one of them imports
    ]
    assert [port for port, times in Counter(ports).items() if times > 1] == []
    assert len(ports) > len(modules)
