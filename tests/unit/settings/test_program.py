"""The setting `program`, a training program of the user's own, and what is refused beside it."""

import os
from pathlib import Path
from typing import Any

import pytest

from infra.image.program_plan import MOST_BYTES as CONTEXT_BYTES
from infra.settings import program_files
from infra.settings.program_files import MOST_BYTES
from tests.unit.settings.reading import refusal, run

COMMAND = {"command": ["python", "train.py", "--lr", "0.1"]}
PATTERN = r"step (?P<step>\d+) loss (?P<loss>\S+)"


def folder_of(root: Path, **sizes: int) -> Path:
    """Write a Python file of each size in bytes into the folder; return the folder."""
    for name, size in sizes.items():
        (root / f"{name}.py").write_bytes(b"#" * size)
    return root


def test_run_of_a_program_holds_the_program_and_how_it_is_started() -> None:
    """The configuration of such a run has only the program and the settings for its start, and
    there is no data set.
    """
    changes = {"program": COMMAND, "run": {"train": {"max_restarts": 3}}, "runName": "mine"}
    settings = run(changes)
    assert settings.config.program.command == ("python", "train.py", "--lr", "0.1")
    assert settings.config.program.per == "rank"
    assert settings.config.train.max_restarts == 3
    mapping = settings.config.to_mapping()
    assert sorted(mapping) == ["data_root", "program", "run_name", "train"]
    assert settings.dataset_file is None


def test_numbers_in_a_command_are_the_texts_that_they_are() -> None:
    """A number in `program.command` is used as a text. `pulumi config set --path
    'program.command[1]' 40` writes a number.
    """
    assert run({"program": {"command": ["sleep", 40]}}).config.program.command == ("sleep", "40")


def test_files_of_a_folder_are_taken_with_their_paths(tmp_path: Path) -> None:
    """All files of the folder in `program.files` are taken with their paths, except what git and
    Python keep there. Another content changes the run's configuration.
    """
    folder_of(tmp_path, train=5)
    for name in ("parts/layers.py", "__pycache__/train.pyc", ".git/HEAD"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    settings = run({"program": {**COMMAND, "files": str(tmp_path)}})
    assert sorted(settings.program_files) == ["parts/layers.py", "train.py"]
    (tmp_path / "train.py").write_text("other")
    other = run({"program": {**COMMAND, "files": str(tmp_path)}})
    assert settings.config.program.files != other.config.program.files


def test_empty_place_of_files_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty `program.files` or `program.build` is none. It does not stand for the current
    folder, of which all files would go into the ConfigMap.
    """
    monkeypatch.chdir(folder_of(tmp_path, train=5))
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    settings = run({"program": {**COMMAND, "files": "", "build": ""}})
    assert settings.program_files == {}
    assert settings.program_image is None
    assert settings.config == run({"program": COMMAND}).config


def test_empty_image_is_no_image(tmp_path: Path) -> None:
    """An empty `program.image` is none, so it can be set beside `program.build`."""
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    assert run({"program": {**COMMAND, "image": ""}}).config == run({"program": COMMAND}).config
    built = run({"program": {**COMMAND, "image": "", "build": str(tmp_path)}})
    assert built.program_image is not None
    assert built.config.program.image == built.program_image.plan.reference


def test_linked_folder_is_taken_with_its_files(tmp_path: Path) -> None:
    """The files of a linked folder are taken like linked files. Otherwise the program would miss
    them only in the pods.
    """
    for name in ("mine", "shared"):
        (tmp_path / name).mkdir()
        folder_of(tmp_path / name, **{name: 5})
    for link in ("parts", "again"):
        (tmp_path / "mine" / link).symlink_to("../shared")
    (tmp_path / "mine" / "one.py").symlink_to("../shared/shared.py")
    settings = run({"program": {**COMMAND, "files": str(tmp_path / "mine")}})
    assert sorted(settings.program_files) == [
        *("again/shared.py", "mine.py", "one.py", "parts/shared.py")
    ]


def test_link_to_a_folder_around_it_is_refused(tmp_path: Path) -> None:
    """A link to a folder that contains the link is refused, because it has no end."""
    folder_of(tmp_path, train=5)
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "all").symlink_to("..")
    text = refusal({"program": {**COMMAND, "files": str(tmp_path)}})
    assert f"{tmp_path}/parts/all in it is a link to a folder that the link is in" in text
    assert "Remove that link" in text


def test_link_to_a_large_folder_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A linked folder with very many files is refused before all of them are read. It may be a data
    set of millions of files.
    """
    monkeypatch.setattr(program_files, "MOST_COUNTED", 600)
    (tmp_path / "data").mkdir()
    for number in range(700):
        (tmp_path / "data" / f"{number}.txt").touch()
    (tmp_path / "mine").mkdir()
    folder_of(tmp_path / "mine", train=5)
    (tmp_path / "mine" / "data").symlink_to("../data")
    text = refusal({"program": {**COMMAND, "files": str(tmp_path / "mine")}})
    assert "it has 600 or more files" in text


def test_single_file_has_its_own_name(tmp_path: Path) -> None:
    folder_of(tmp_path, train=5, other=5)
    settings = run({"program": {**COMMAND, "files": str(tmp_path / "train.py")}})
    assert dict(settings.program_files) == {"train.py": b"#####"}


@pytest.mark.parametrize(
    "image", ["mine:1", "host:5000/team/mine:v1.2_3", f"mine@sha256:{'0f' * 32}"]
)
def test_image_of_ones_own_has_a_tag_or_a_digest(image: str) -> None:
    assert run({"program": {**COMMAND, "image": image}}).config.program.image == image


def own_folder(folder: Path, **more: str) -> str:
    """Write a Dockerfile, a program and `more` files into the folder; return its path."""
    for name, text in {"Dockerfile": "FROM mine:1", "train.py": "pass", **more}.items():
        (folder / name).write_text(text)
    return str(folder)


def image_of(folder: Path) -> str | None:
    """Return the name of the image that is built from the folder."""
    return run({"program": {**COMMAND, "build": str(folder)}}).config.program.image


def test_image_that_is_built_is_named_after_its_folder(tmp_path: Path) -> None:
    """The name of an image that is built changes with each file, its right to be run, and each
    link. What git and Python keep in the folder does not count.
    """
    own_folder(tmp_path)
    names = [image_of(tmp_path)]
    assert names[0]
    assert names[0].startswith("localhost/disttrain/trainer-program:")
    (tmp_path / "train.py").write_text("other")
    names.append(image_of(tmp_path))
    (tmp_path / "train.py").chmod(0o755)
    names.append(image_of(tmp_path))
    (tmp_path / "link").symlink_to("train.py")
    names.append(image_of(tmp_path))
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("Dockerfile")
    names.append(image_of(tmp_path))
    assert len(set(names)) == len(names)
    for name in (".git", "__pycache__"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
    assert image_of(tmp_path) == names[-1]


def test_folder_to_build_may_hold_a_name_of_any_bytes(tmp_path: Path) -> None:
    """A file in the folder may have a name that is not UTF-8. Otherwise the setting would be left
    out without a word, and the run would use the trainer's image.
    """
    names = [image_of(Path(own_folder(tmp_path)))]
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")).write_text("in Latin 1")
    names.append(image_of(tmp_path))
    (tmp_path / "link").symlink_to(os.fsdecode(b"caf\xe9.txt"))
    names.append(image_of(tmp_path))
    assert None not in names
    assert len(set(names)) == 3


def test_folder_to_build_has_a_dockerfile_and_no_rival(tmp_path: Path) -> None:
    """`program.build` is refused without a Dockerfile, beside `program.image`, or with files that
    are too large.
    """
    program = {**COMMAND, "build": str(tmp_path)}
    assert f"program.build: '{tmp_path}' cannot be used: there is no file" in refusal(
        {"program": program}
    )
    own_folder(tmp_path)
    assert "program.image names an image already. Remove one of them" in refusal(
        {"program": {**program, "image": "mine:1"}}
    )
    with (tmp_path / "data").open("wb") as file:
        file.truncate(CONTEXT_BYTES + 1)
    assert "put data on the volume" in refusal({"program": program})


TRAINERS = "program is set, and only disttrain's own trainer reads this setting"
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"program": {"per": "rank"}}, "program.command: '' cannot be used: it names no program"),
    ({"program": {"command": " "}}, "program.command: ' ' cannot be used: it names no program"),
    ({"program": {"command": ["", "a"]}}, "program.command: ['', 'a'] cannot be used: it names no"),
    ({"program": {**COMMAND, "progress_file": 1}}, "it is not a text. Set a text of one line. The"),
    ({"program": {"command": "python"}}, "program.command: 'python' cannot be used: it is one "),
    ({"program": {"command": [["a"]]}}, "program.command[0]: ['a'] cannot be used: it is not a "),
    ({"program": {**COMMAND, "per": "pod"}}, "program.per: 'pod' cannot be used"),
    (
        {"program": {**COMMAND, "image": "mine"}},
        "program.image: 'mine' cannot be used: a restart could bring other code",
    ),
    (
        {"program": {**COMMAND, "image": "host:5000/mine:latest"}},
        "a restart could bring other code, as it has no tag but latest and no digest",
    ),
    ({"program": {**COMMAND, "image": "my image:1"}}, "it is not the name of an image"),
    ({"program": {**COMMAND, "img": "mine:1"}}, "program.img: 'mine:1' cannot be used: there"),
    ({"program": {**COMMAND, "progress": "(?P<step"}}, "it is no regular expression of Python"),
    ({"program": {**COMMAND, "progress": r"step \d+"}}, "it has no group named step"),
    (
        {"program": {**COMMAND, "progress": r"(?P<step>\d+) (?P<lr>\S+)"}},
        "it has a group named lr, of which nobody knows the meaning",
    ),
    (
        {"program": {**COMMAND, "progress_file": "logs/"}},
        "program.progress_file: 'logs/' cannot be used: it is not the name of a file",
    ),
    (
        {"program": {**COMMAND, "progress_file": "../metrics.jsonl"}},
        "the launcher itself writes that file",
    ),
    ({"program": {**COMMAND, "files": "/no/such"}}, "program.files: '/no/such' cannot be used"),
    (
        {"program": COMMAND, "preset": "gpt2-small"},
        f"preset: 'gpt2-small' cannot be used: {TRAINERS}",
    ),
    (
        {"program": COMMAND, "datasetName": "mine"},
        f"datasetName: 'mine' cannot be used: {TRAINERS}",
    ),
    ({"program": COMMAND, "verify": "after"}, f"verify: 'after' cannot be used: {TRAINERS}"),
    ({"program": COMMAND, "run": {"seed": 3}}, f"run.seed: 3 cannot be used: {TRAINERS}"),
    (
        {"program": COMMAND, "run": {"train": {"max_steps": 3}}},
        f"run.train.max_steps: 3 cannot be used: {TRAINERS}",
    ),
    (
        {"program": COMMAND, "run": {"train": {"max_restarts": -3}}},
        "run.train.max_restarts: -3 cannot be used",
    ),
]


@pytest.mark.parametrize(("changes", "message"), WRONG, ids=[text for _, text in WRONG])
def test_message_names_key_value_reason_and_way_out(changes: dict[str, Any], message: str) -> None:
    """A wrong setting of a program is refused with the key, the value, the reason and what to
    do.
    """
    assert message in refusal(changes)


def test_too_large_folder_is_refused_with_its_largest_files(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, small=10, large=MOST_BYTES)
    text = refusal({"program": {**COMMAND, "files": str(folder)}})
    assert f"it has 2 files with {MOST_BYTES + 10:,} bytes" in text
    assert f"the largest: large.py with {MOST_BYTES:,} bytes, small.py with 10 bytes" in text
    assert "put data on the volume" in text


def test_folder_without_files_is_refused(tmp_path: Path) -> None:
    assert "there is no file" in refusal({"program": {**COMMAND, "files": str(tmp_path)}})
