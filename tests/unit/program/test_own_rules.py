"""Rules that the program's own code has to keep."""

import ast
from pathlib import Path

import pytest

from tests.unit.program.resources import COMPONENTS
from tests.unit.stacks import PROJECT


def constructed(node: ast.AST) -> set[str]:
    """Return the dotted names of everything that is called below `node`."""
    return {ast.unparse(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)}


def is_resource_call(name: str) -> bool:
    """Return whether a call of this dotted name makes a resource."""
    components = {cls for _, cls in COMPONENTS.values()}
    return (
        name.startswith(("kubernetes.", "local.", "remote."))
        or name in components
        or name.endswith((".script", "runner.run"))
    )


@pytest.mark.parametrize("path", [PROJECT / "__main__.py", *(PROJECT / "infra").rglob("*.py")])
def test_no_resource_is_made_inside_apply(path: Path) -> None:
    """No resource is made in a lambda or a function of the same file that is passed to `apply`. A
    preview would not show such a resource.
    """
    tree = ast.parse(path.read_text())
    functions = {n.name: n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "apply":
            given = call.args[0]
            body = functions.get(given.id, given) if isinstance(given, ast.Name) else given
            assert not [name for name in constructed(body) if is_resource_call(name)]


def test_the_check_for_apply_would_see_one() -> None:
    """The check above finds a resource that is made inside `apply`."""
    tree = ast.parse("x.apply(lambda v: kubernetes.core.v1.Pod('p', spec=v))")
    (call,) = [n for n in ast.walk(tree) if isinstance(n, ast.Lambda)]
    assert [name for name in constructed(call) if is_resource_call(name)]


def test_configuration_is_read_in_one_place() -> None:
    """Only `infra/settings` reads Pulumi's configuration."""
    readers = [
        path.parent.name
        for path in (PROJECT / "infra").rglob("*.py")
        if "pulumi.Config(" in path.read_text() or "runtime.config" in path.read_text()
    ]
    assert readers == ["settings"]
