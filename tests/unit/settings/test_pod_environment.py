"""Variables of podEnvironment and podSecrets that would count for nothing, or start no pod."""

import pytest

from tests.unit.settings.reading import refusal, run

MOST_BYTES = 131_072  # MAX_ARG_STRLEN of Linux


@pytest.mark.parametrize(
    "name", ["GROUP_RANK", "NODE_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE"]
)
@pytest.mark.parametrize("key", ["podEnvironment", "podSecrets"])
def test_variables_of_a_launcher_are_refused(key: str, name: str) -> None:
    """The entrypoint sets these, so that the user's value would be lost without a word."""
    said = refusal({key: {name: "0"}}, [key] if key == "podSecrets" else [])
    assert f"{key}.{name}: " in said
    assert "cannot be used: the entrypoint sets it for each rank. Remove it." in said


@pytest.mark.parametrize("key", ["podEnvironment", "podSecrets"])
def test_variable_longer_than_linux_takes_is_refused(key: str) -> None:
    """Linux starts no program with such a variable. The message does not repeat the value."""
    encrypted = [key] if key == "podSecrets" else []
    said = refusal({key: {"A": "ä" * (MOST_BYTES // 2)}}, encrypted)
    assert f"{key}.A: " in said
    assert "ää" not in said
    assert "Linux starts no program with a variable of more than 131,071 bytes" in said
    assert len(said) < 500


def test_longest_variable_of_linux_is_accepted() -> None:
    """The name, the sign = and the NUL at the end count, too."""
    longest = "x" * (MOST_BYTES - len("A=") - 1)
    assert run({"podEnvironment": {"A": longest}}).pods.environment == {"A": longest}
    assert "podEnvironment.A: " in refusal({"podEnvironment": {"A": f"{longest}x"}})
