"""The name of an image is made of the hashes of its files and settings, and only of these."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.image.__main__ import main
from infra.image.plan import ImagePlan, changes_since, code_files, plan_image
from tests.unit.image.projects import write_project

REPOSITORY = "localhost/disttrain/trainer"
PROJECT = Path(__file__).parent.parent.parent.parent


def plan(root: Path, base: str = "base:1", index: str | None = None) -> ImagePlan:
    """Return the plan of the image of the checkout below `root`."""
    return plan_image(root, REPOSITORY, base, index)


def test_the_tag_is_made_of_both_hashes_and_the_same_input_gives_the_same_name(
    tmp_path: Path,
) -> None:
    one, two = (plan(write_project(tmp_path / name)) for name in ("one", "two"))
    assert one == two
    assert one.reference == f"{REPOSITORY}:{one.deps_hash}-{one.code_hash}"
    assert one.deps_reference == f"{REPOSITORY}-deps:{one.deps_hash}"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    name=st.sampled_from(["__main__.py", "presets/small.yaml", "new.json", "sub/new", ".hidden"]),
    content=st.binary(min_size=1, max_size=20),
)
def test_changing_any_file_below_trainer_changes_the_code_hash_alone(
    tmp_path_factory: pytest.TempPathFactory, name: str, content: bytes
) -> None:
    root = write_project(tmp_path_factory.mktemp("project"))
    before = plan(root)
    file = root / "trainer" / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes((file.read_bytes() if file.exists() else b"") + content)
    after = plan(root)
    assert after.code_hash != before.code_hash
    assert after.deps_hash == before.deps_hash


def test_a_renamed_and_a_removed_file_change_the_tag(tmp_path: Path) -> None:
    root = write_project(tmp_path)
    names = {plan(root).reference}
    (root / "trainer/presets/small.yaml").rename(root / "trainer/presets/large.yaml")
    names.add(plan(root).reference)
    (root / "trainer/presets/large.yaml").unlink()
    names.add(plan(root).reference)
    assert len(names) == 3


def test_dependencies_are_named_after_dockerfile_requirements_base_and_index(
    tmp_path: Path,
) -> None:
    """The hash of the dependencies changes with the Dockerfile, the requirements, the base image
    and the index, and an empty index is none.
    """
    root = write_project(tmp_path)
    hashes = {plan(root).deps_hash, plan(root, "base:2").deps_hash}
    hashes.add(plan(root, index="https://download.pytorch.org/whl/cu118").deps_hash)
    (root / "docker/Dockerfile").write_text("FROM y\n")
    hashes.add(plan(root).deps_hash)
    (root / "trainer/requirements.txt").write_text("torch==2\n")
    hashes.add(plan(root).deps_hash)
    assert len(hashes) == 5
    assert plan(root, index="").deps_hash == plan(root, index=None).deps_hash


def test_times_modes_and_pythons_caches_do_not_count(tmp_path: Path) -> None:
    """Times and rights of files, and Python's caches, do not change the image's name."""
    root = write_project(tmp_path)
    before = plan(root)
    (root / "trainer/__pycache__").mkdir()
    (root / "trainer/__pycache__/x.pyc").write_bytes(b"1")
    (root / "trainer/__main__.py").touch()
    (root / "trainer/__main__.py").chmod(0o600)
    assert plan(root) == before


def test_the_projects_own_trainer_is_in_the_image() -> None:
    """All files of this project's trainer are in the image, in the order of their names."""
    names = [name for name, _ in code_files(PROJECT)]
    assert {"trainer/__main__.py", "trainer/config/run.py"} <= set(names)
    assert names == sorted(names)
    assert not [name for name in names if "__pycache__" in name]


@pytest.mark.parametrize(
    "repository",
    [
        "localhost/trainer",
        "localhost/disttrain/trainer",
        "localhost:5000/a",
        "registry.example.com/team/trainer",
        "registry.example.com:5000/a/b-c/d_e",
        "10.0.0.1/a",
        "node1:5000/a",
    ],
)
def test_fully_qualified_repositories_are_taken(tmp_path: Path, repository: str) -> None:
    assert plan_image(write_project(tmp_path), repository, "b", None).repository == repository


@pytest.mark.parametrize(
    "repository",
    [
        "",
        "trainer",
        "disttrain/trainer",
        "localhost",
        "localhost/",
        "/trainer",
        "localhost/trainer:latest",
        "localhost/trainer@sha256:0",
        "localhost/Trainer",
        "localhost/a//b",
        "localhost/a b",
        "localhost/a/",
        "localhost/-a",
        "localhost/a;id",
        "https://registry.example.com/a",
        "localhost/a\n",
    ],
)
def test_other_repositories_are_refused_with_an_example(tmp_path: Path, repository: str) -> None:
    with pytest.raises(ValueError, match=r"imageRepository: .*Write it like local") as raised:
        plan_image(write_project(tmp_path), repository, "b", None)
    assert repr(repository) in str(raised.value)


def test_a_plan_that_has_changed_says_what_has_changed(tmp_path: Path) -> None:
    """The differences between a planned image and the present one are told: repository,
    dependencies or code.
    """
    root = write_project(tmp_path)
    planned = plan(root).reference
    assert changes_since(planned, plan(root)) == []
    (root / "trainer/__main__.py").write_text("print(2)\n")
    (code,) = changes_since(planned, plan(root))
    assert code.startswith("the trainer's code (trainer/): its hash was ")
    (root / "docker/Dockerfile").write_text("FROM y\n")
    other = plan_image(root, "localhost/other", "base:1", None)
    assert [text.split(" (")[0] for text in changes_since(planned, other)] == [
        "the repository",
        "the dependencies",
        "the trainer's code",
    ]


def test_command_refuses_to_make_another_image_than_the_planned_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command refuses to make an image if files have changed since it was planned, and says
    what. Otherwise a file that changes during `pulumi up` would leave the pods without their image.
    """
    planned = plan_image(PROJECT, REPOSITORY, "base:1", None).reference
    earlier = f"{planned.rpartition('-')[0]}-0123456789ab"
    monkeypatch.setenv("TRAINER_IMAGE", earlier)
    words = ["ensure", "--repository", REPOSITORY, "--base-image", "base:1", "--ctr", "no-such-ctr"]
    assert main([*words, "--cache", str(tmp_path)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"{earlier} was planned, but files or settings have changed since" in said
    assert "Changed: the trainer's code (trainer/): its hash was 0123456789ab" in said
    monkeypatch.setenv("TRAINER_IMAGE", planned)
    assert main([*words, "--cache", str(tmp_path)]) == 1
    assert "'no-such-ctr' is not a program" in capsys.readouterr().out
