"""Words of `program.command` that Pulumi and YAML do not read as texts."""

from tests.unit.settings.reading import refusal


def test_a_true_says_how_to_set_a_text() -> None:
    """A boolean in `program.command` is refused with the command that sets it as a text. `pulumi
    config set` reads `True` as a boolean, and no quotation marks can change that.
    """
    said = refusal({"program": {"command": ["python", "train.py", "--compile", True]}})
    assert said.count("  - program.command") == 1
    assert "program.command[3]: true cannot be used: Pulumi reads it as a boolean" in said
    assert "pulumi config set --type string --path 'program.command[3]' True" in said
