"""What programs print goes into Pulumi's log and the state, so passwords are cut out of it."""

import pytest

from infra.command_line import without_passwords


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://user:hunter2@proxy:3128 failed", "http://[secret]@proxy:3128 failed"),
        ("https://token@index/simple", "https://[secret]@index/simple"),
        ("ssh://user:hunter2@host:22", "ssh://[secret]@host:22"),
        (
            "doctor: ssh://admin@198.18.0.10:22: 3 checks",
            "doctor: ssh://admin@198.18.0.10:22: 3 checks",
        ),
        ("mail somebody@example.org", "mail somebody@example.org"),
    ],
)
def test_passwords_are_cut_out_and_users_of_ssh_stay(text: str, shown: str) -> None:
    assert without_passwords(text) == shown
