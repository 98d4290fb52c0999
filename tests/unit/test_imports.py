"""Files import only in the direction that docs/architecture.md describes."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
# folder -> which of our packages its files may import, besides itself
ALLOWED = {
    "infra": {"trainer"},
    "cli": {"infra", "trainer"},  # of the trainer only `PURE`
    "trainer": set[str](),
    "sandbox": set[str](),
}
OURS = {"infra", "cli", "trainer", "sandbox", "bench", "tests"}


@cache
def nodes_of(file: Path) -> list[ast.AST]:
    """Return all nodes of a file's syntax tree. They are kept, as several tests look at the same
    files.
    """
    return [*ast.walk(ast.parse(file.read_text()))]


def imported(file: Path) -> set[str]:
    """Return those of this project's packages from which a file imports."""
    names: set[str] = set()
    for node in nodes_of(file):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names & OURS


@pytest.mark.parametrize("folder", ALLOWED)
def test_packages_import_in_one_direction(folder: str) -> None:
    files = [*(PROJECT / folder).rglob("*.py")]
    assert files
    found = {str(file): imported(file) - ALLOWED[folder] - {folder} for file in files}
    assert {file: names for file, names in found.items() if names} == {}


# The modules of the trainer that only read files and log lines of a run. They need no torch.
PURE = (
    "trainer.events",
    "trainer.checkpoint.verified_words",
    "trainer.checkpoint.words",
    "trainer.transport.asked",
    "trainer.transport.lines",
    "trainer.launch.exit_codes",
    "trainer.launch.said_again",
    "trainer.mirror.contents",
    "trainer.mirror.remote_folder",
    "trainer.run_folder",
    "trainer.volume.figures",
)


def test_commands_use_only_the_part_of_the_trainer_that_computes() -> None:
    """The commands of `./disttrain` import only modules of the trainer that need neither torch nor
    numpy. Their virtual environment has no torch, so every command would end with an ImportError.
    """
    found: list[str] = []
    for file in (PROJECT / "cli").rglob("*.py"):
        for node in nodes_of(file):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            ours = [module for module in modules if module.split(".")[0] == "trainer"]
            found += [module for module in ours if not module.startswith(PURE)]
    assert found == []
    program = """
import importlib, sys
from cli.__main__ import COMMANDS
for command in COMMANDS.values():
    importlib.import_module(command.module)
print('torch' in sys.modules, 'numpy' in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]


# The layers of infra/, the lowest first. A "room" is a folder or module directly in infra/. A file
# imports from its own room and from rooms of lower layers, but not from others of its own layer.
FLOORS = (
    {"names"},
    {"labels", "world", "registry", "command_line", "dependencies", "objects"}
    | {
        "one_line",
        "no_proxy",
        "in_cluster",
        "end_with_parent",
        "pod_metadata",
        "unexpanded",
        "engine",
    },
    {"kube_command", "kube", "monitoring"},
    {"settings", "node", "image", "airgap"},
    {"networks", "storages", "deliveries", "controllers", "task_in_hook"},
    {"workloads"},
    {"kinds"},
    {"platform"},
    {"run"},
    {"outputs", "rights"},
    {"cluster_check"},
    {"dataset_check"},
    {"preflight"},
)
# Exceptions in the layer of the settings: the settings read plans of images and manifests of
# bundles, and the programs for images and bundles reach machines. Of airgap, only two files read
# settings.
BESIDE = {
    "settings": {"image", "airgap"},
    "node": {"settings"},
    "image": {"node"},
    "airgap": {"image", "node"},
}
READERS_OF_SETTINGS = {"pack.py", "stack_file.py"}


INFRA = PROJECT / "infra"
KUBE = INFRA / "kube"


def room(path: Path, house: Path = INFRA) -> str:
    """Return the folder or module of `house` to which a file belongs, which is the first part of
    its path.
    """
    return path.relative_to(house).parts[0].removesuffix(".py")


def rooms_imported(file: Path, house: str = "infra") -> set[str]:
    """Return the folders and modules of the package `house` from which a file imports."""
    modules = set[str]()
    for node in nodes_of(file):
        if isinstance(node, ast.ImportFrom) and node.module == house:
            modules |= {f"{house}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module or "")
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    inside = [name.removeprefix(f"{house}.") for name in modules if name.startswith(f"{house}.")]
    return {name.partition(".")[0] for name in inside}


def test_rooms_of_infra_import_in_one_direction() -> None:
    """A folder of `infra` imports only from folders of lower layers (`FLOORS`): settings and node
    first, then the kinds, then platform and run, then `__main__`.
    """
    floor = {name: number for number, names in enumerate(FLOORS) for name in names}
    wrong: list[str] = []
    for file in INFRA.rglob("*.py"):
        here = room(file)
        if here == "__init__":
            continue
        allowed = {here} | BESIDE.get(here, set())
        allowed |= {name for name, number in floor.items() if number < floor[here]}
        if here == "airgap" and file.name in READERS_OF_SETTINGS:
            allowed |= {"settings", "kinds"}
        wrong += [f"{file.name} imports {name}" for name in rooms_imported(file) - allowed]
    assert wrong == []


# The layers of infra/kube, the lowest first.
FLOORS_OF_KUBE = (
    {"errors", "gone_cluster", "names", "objects", "paths", "quantity", "say"},
    {"api_server", "foreign", "waiting", "workload"},
    {"job", "kept", "our_cluster", "record"},
    {"namespaces", "volumes"},
    {"pods"},
    {"controllers", "files"},
    {"queues"},
    {"runs"},
    {"__main__"},
)


def test_rooms_of_kube_import_in_one_direction() -> None:
    """A folder of `infra/kube` imports only from folders of lower layers (`FLOORS_OF_KUBE`): first
    what asks the API server, then what tells whose things are, then pods, queues and runs.
    """
    floor = {name: number for number, names in enumerate(FLOORS_OF_KUBE) for name in names}
    wrong: list[str] = []
    for file in KUBE.rglob("*.py"):
        here = room(file, KUBE)
        if here == "__init__":
            continue
        below = {name for name, number in floor.items() if number < floor[here]}
        wrong += [
            f"{file.relative_to(KUBE)} imports {name}"
            for name in rooms_imported(file, "infra.kube") - below - {here}
        ]
    assert wrong == []


@pytest.mark.parametrize(
    "module", ["cli.doctor.command", "infra.node.tunnel", "infra.image.__main__"]
)
def test_programs_that_up_starts_need_no_sdk(module: str) -> None:
    """Programs that `pulumi up` starts import neither `pulumi` nor `yaml`. So they start in a tenth
    of the time, and they run where these packages are not installed.
    """
    program = f"import sys, {module}; print([n for n in sys.modules if n in {{'pulumi', 'yaml'}}])"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_no_test_file_imports_helpers_of_another() -> None:
    """No test file imports names from another one. What several test files use is in a file of its
    own beside them, where a reader looks for it.

    Only `import` of the whole file is allowed, for a file that makes another one's tests again for
    something else.
    """
    found: list[str] = []
    for file in (PROJECT / "tests").rglob("*.py"):
        for node in nodes_of(file):
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            if module.startswith("tests.") and module.rpartition(".")[2].startswith("test_"):
                found.append(str(file))
    assert found == []


def test_training_loop_is_read_on_one_screen() -> None:
    """No function of `train.py`, `update.py` and `evaluate.py` has more than 60 lines, so that each
    fits on a screen. A reader of the trainer begins with these files.
    """
    lines = {
        node.name: (node.end_lineno or 0) - node.lineno + 1
        for name in ("train.py", "update.py", "evaluate.py")
        for node in nodes_of(PROJECT / "trainer" / name)
        if isinstance(node, ast.FunctionDef)
    }
    assert {"_loop", "update_weights", "backward_of_global_batch"} <= lines.keys()
    assert {name: count for name, count in lines.items() if count > 60} == {}
