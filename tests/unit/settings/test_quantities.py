"""Settings whose value is a quantity of Kubernetes."""

import pytest

from tests.unit.settings.reading import read, refusal

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


CPU = {"accelerator": "cpu", "gpusPerPod": 1, "processesPerPod": 2}
OF_ONE_GPU = {"gpus": 1, "gpusPerPod": 1, "memoryPerRank": "4Gi"}


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({**CPU, "memoryLimitPerRank": "2Gi", "shmSize": "5Gi"}, "2 * 2Gi"),
        ({**OF_ONE_GPU, "memoryLimitPerRank": "4Gi", "shmSize": "4097Mi"}, "4Gi"),
        ({**CPU, "processesPerPod": 3, "memoryLimitPerRank": "1Gi", "shmSize": "4Gi"}, "3 * 1Gi"),
    ],
)
def test_shared_memory_fits_into_the_limit(settings: dict[str, object], limit: str) -> None:
    """The kubelet makes /dev/shm no larger than the memory limit of the pod, so that a larger size
    would count for nothing.
    """
    said = refusal(settings)
    assert f"shmSize: '{settings['shmSize']}' cannot be used: it is a part of the pod's" in said
    assert f"{limit} (memoryLimitPerRank). Set no more than that, or raise" in said


@pytest.mark.parametrize(
    "settings",
    [
        {**CPU, "memoryLimitPerRank": "256Mi"},  # The default of shmSize is larger.
        {**CPU, "memoryLimitPerRank": "1Gi", "shmSize": "2Gi"},
        {**CPU, "shmSize": "900Gi"},
    ],
)
def test_shared_memory_without_a_conflict_is_accepted(settings: dict[str, object]) -> None:
    """A small limit with the default of shmSize is accepted, as is the whole limit of all ranks of
    a pod, and any size without a limit.
    """
    assert read(settings).run
