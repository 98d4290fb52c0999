"""A stack's file is read without Pulumi as Pulumi's engine reads it.

The expected texts are what `pulumi config --json` of Pulumi 3.259.0 says about these files.
"""

import json
from pathlib import Path

import pytest

from cli.stack_plan import plan_of_stack
from infra.settings.engine_yaml import load_as_engine
from infra.settings.project import declared_defaults, raw_settings

SCALARS = [
    ("off", "off"),
    ("no", "no"),
    ("yes", "yes"),
    ("y", "y"),
    ("True", "true"),
    ("false", "false"),
    ("2026-11-28", "2026-11-28 00:00:00 +0000 UTC"),
    ("2026-11-28T10:00:00Z", "2026-11-28 10:00:00 +0000 UTC"),
    ("2026-13-45", "2026-13-45"),
    ('"2026-11-28"', "2026-11-28"),
    ("1:30", "1:30"),
    ("22:30:15", "22:30:15"),
    ("007", "7"),
    ("08", "8"),
    ("0777", "511"),
    ("0o17", "15"),
    ("0x1F", "31"),
    ("0b11", "3"),
    ("1_000", "1000"),
    ("+5", "5"),
    ("1e3", "1000"),
    ("1.e+3", "1000"),
    ("1e-3", "0.001"),
    ("26.30", "26.3"),
    ("1.0", "1"),
    (".5", "0.5"),
    ("1.2.3", "1.2.3"),
    ("!!str 5", "5"),
    ("=", "="),
    ("~", ""),
    ("Null", ""),
    ("", ""),
    ("[off, 1.0]", '["off", 1]'),
    ("{a: off, b: 1e3, c: ~, d: 007}", '{"a": "off", "b": 1000, "c": null, "d": 7}'),
]


def stack_file(folder: Path, text: str) -> Path:
    """Write a stack's file with this text; return its path."""
    file = folder / "Pulumi.mine.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(("written", "value"), SCALARS)
def test_values_are_read_as_the_engine_reads_them(written: str, value: str, tmp_path: Path) -> None:
    """PyYAML alone reads `off` as false, `1:30` as 90 and a date as an object. `./disttrain doctor`
    and `make bundle` would then refuse a stack that `up` accepts, or end with a Python traceback.
    """
    file = stack_file(tmp_path, f"config:\n  disttrain:runName: {written}\n")
    assert raw_settings(file)[0]["runName"] == value


def test_keys_without_prefix_are_of_the_project(tmp_path: Path) -> None:
    """Pulumi's engine takes a key without a prefix as one of the project."""
    file = stack_file(tmp_path, "config:\n  gpus: 7\n  kubernetes:namespace: other\n")
    assert raw_settings(file)[0] == {**declared_defaults(), "gpus": "7"}


def test_merged_mappings_are_read(tmp_path: Path) -> None:
    """YAML's anchors and merges still work in a stack's file."""
    text = "base: &base {seed: 1}\nconfig:\n  disttrain:run: {<<: *base, train: {max_steps: 5}}\n"
    run = json.loads(raw_settings(stack_file(tmp_path, text))[0]["run"])
    assert run == {"seed": 1, "train": {"max_steps": 5}}


def test_merged_keys_are_not_repeated(tmp_path: Path) -> None:
    """A mapping may replace a key that it merges, also where it is merged itself further up."""
    text = (
        "base: &base {seed: 1}\nother: {inner: &inner {<<: *base, seed: 2}}\n"
        "config:\n  disttrain:run: {<<: *inner, seed: 3}\n"
    )
    assert raw_settings(stack_file(tmp_path, text))[0]["run"] == '{"seed": 3}'


def test_defaults_are_read_as_before() -> None:
    """No default in Pulumi.yaml depends on the rules of the newer YAML."""
    defaults = declared_defaults()
    assert (defaults["gpus"], defaults["hostGone"], defaults["nodes"]) == ("3", "false", "[]")
    assert load_as_engine("") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("config:\n  disttrain:gpus: 2\n\tdisttrain:pods: 2\n", "line 3"),
        ("config:\n  disttrain:runName: 'a\n", "this is not YAML"),
        (
            "config:\n  a:b: 1\n\tc:d: 2\n",
            "line 3: this is not YAML. Write spaces in place of the ta",
        ),
        (
            "config:\ndisttrain:gpus: 2\n",
            "disttrain:gpus stands beside config and not below it, and Pulumi reads no settings the"
            "re. Begin its line with two spaces.",
        ),
        ("config:\n  disttrain:runName: @a\n", "line 2"),
        ("config: [a]\n", "below config stands a list and not keys with their values"),
        ("gpus\n", "it holds a single value and not keys with their values"),
        (
            "config:\n  disttrain:gpus: 2\n  disttrain:pods: 1\n  disttrain:gpus: 3\n",
            "disttrain:gpus is given twice, in lines 2 and 4, and Pulumi refuses that. Remove one",
        ),
        (
            "config:\n  disttrain:nodes:\n    - {name: a, name: b}\n",
            "name is given twice, in lines 3 and 3",
        ),
        (
            "config:\n  gpus: 2\n  disttrain:gpus: 3\n",
            "gpus and disttrain:gpus are the same setting, which is so given twice. Remove one",
        ),
    ],
)
def test_broken_files_get_a_message(
    text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stack's file that is no YAML, or that Pulumi would refuse, gets a message with its name,
    and no Python traceback. Of a key that is given twice, the last value was taken silently.
    """
    file = stack_file(tmp_path, text)
    monkeypatch.setattr("cli.stack_plan.stack_file", lambda stack: file)
    with pytest.raises(ValueError, match=r"^--stack: .*Pulumi\.mine\.yaml") as failure:
        plan_of_stack("mine")
    assert words in str(failure.value)
