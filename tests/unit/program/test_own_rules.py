"""Rules that the program's own code has to keep."""

import ast
from collections.abc import Iterable, Mapping

import pytest

from tests.unit.program.resources import COMPONENTS
from tests.unit.stacks import PROJECT

TREES = {
    str(path.relative_to(PROJECT)): ast.parse(path.read_text())
    for path in (PROJECT / "__main__.py", *sorted((PROJECT / "infra").rglob("*.py")))
}


def functions_of(tree: ast.AST, name: str) -> list[ast.AST]:
    """Return the functions and methods of a file that have this name."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in ast.walk(tree) if isinstance(node, kinds) and node.name == name]


def source_of(tree: ast.AST, name: str) -> str:
    """Return the file from which a file imports this name; empty if it imports none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and name in {each.name for each in node.names}:
            return f"{(node.module or '').replace('.', '/')}.py"
    return ""


def called_functions(
    name: str, file: str, trees: Mapping[str, ast.AST]
) -> Iterable[tuple[str, ast.AST]]:
    """Yield the functions that this dotted name may mean in this file, each with its own file.

    They are in the same file or imported. For `self` these are methods. What other objects have is
    not looked for.
    """
    head, _, last = name.rpartition(".")
    if head in ("", "self", "cls"):
        for place in {file, source_of(trees[file], last)} & trees.keys():
            yield from ((place, function) for function in functions_of(trees[place], last))


def is_resource_call(name: str) -> bool:
    """Return whether a call of this dotted name makes a resource."""
    components = {cls for _, cls in COMPONENTS.values()}
    return (
        name.startswith(("kubernetes.", "local.", "remote."))
        or name in components
        or name.endswith((".script", "runner.run"))
    )


def resources_made_by(given: ast.expr, file: str, trees: Mapping[str, ast.AST]) -> set[str]:
    """Return the calls that make a resource in a lambda or function of this file, and in all that
    it calls.
    """
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    todo: list[tuple[str, ast.AST]] = [(file, ast.Call(given, [], []))]
    while todo:
        place, body = todo.pop()
        for call in ast.walk(body):
            name = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
            if name and (place, name) not in seen:
                seen.add((place, name))
                found |= {name} if is_resource_call(name) else set()
                todo += called_functions(name, place, trees)
    return found


def given_to_apply(tree: ast.AST) -> list[ast.expr]:
    """Return what the calls of `apply` are given: a lambda, or the name of a function."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    applied = [call for call in calls if getattr(call.func, "attr", "") == "apply"]
    return [(*call.args, *(keyword.value for keyword in call.keywords))[0] for call in applied]


@pytest.mark.parametrize("path", [path for path, tree in TREES.items() if given_to_apply(tree)])
def test_no_resource_is_made_inside_apply(path: str) -> None:
    """No resource is made in what is passed to `apply`, or in a function that it calls. A preview
    would not show such a resource.
    """
    for given in given_to_apply(TREES[path]):
        assert resources_made_by(given, path, TREES) == set(), ast.unparse(given)


@pytest.mark.parametrize(
    "given",
    ["lambda v: local.Command('p', stdin=v)", "make", "self.make", "lambda v: self.a(v)", "theirs"],
)
def test_the_check_for_apply_would_see_one(given: str) -> None:
    """The check above finds a resource that is made in a lambda, a function, a method, an imported
    function, or in a function that one of them calls.
    """
    make = "def make(v): local.Command('p', stdin=v)\ndef a(v): return make(v)"
    texts = {
        "b.py": f"from c import theirs\n{make}\nx.apply({given})",
        "c.py": "def theirs(v): return kubernetes.core.v1.Pod('p', spec=v)",
    }
    trees = {name: ast.parse(text) for name, text in texts.items()}
    (found,) = given_to_apply(trees["b.py"])
    assert resources_made_by(found, "b.py", trees)


def test_configuration_is_read_in_one_place() -> None:
    """Only `infra/settings` reads Pulumi's configuration."""
    readers = [
        path.parent.name
        for path in (PROJECT / "infra").rglob("*.py")
        if "pulumi.Config(" in path.read_text() or "runtime.config" in path.read_text()
    ]
    assert readers == ["settings"]
