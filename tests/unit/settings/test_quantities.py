"""Settings whose value is a quantity of Kubernetes."""

import pytest

from tests.unit.settings.reading import refusal

THREE = "\u0663"  # the Arabic digit, which `\\d` of Python takes and Kubernetes does not


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"cpuPerRank": f"4{THREE}"}, "cpuPerRank"),
        ({"memoryLimitPerRank": f"4{THREE}Gi"}, "memoryLimitPerRank"),
        ({"dataSize": f"4{THREE}Gi"}, "dataSize"),
        ({"queues": f'{{"name": "gpus", "quota": {{"cpu": "4{THREE}"}}}}'}, "queues.quota.cpu"),
    ],
)
def test_digits_of_other_scripts_are_refused(settings: dict[str, str], key: str) -> None:
    """A quantity with such a digit is refused by the name of its setting, and not by the cluster,
    which would refuse the object after others have been made.
    """
    words = refusal(settings)
    assert f"{key}: '4{THREE}" in words
    assert "cannot be used: it is not a" in words
