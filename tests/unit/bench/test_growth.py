"""What `bench.growth` measures: manifests do not grow with the number of ranks."""

import pytest

from bench.growth import MOST_FURTHER_BYTES, program, shown
from bench.growth_cluster import LARGE, SMALL, nested, settings_of


@pytest.mark.parametrize("topology", ["indexed-job", "mpijob"])
def test_manifests_of_many_ranks_are_as_large_as_of_three(topology: str) -> None:
    """The manifests of 1,000 ranks in 125 pods are hardly larger than those of three ranks, also
    for `mpijob`, which has a launcher beside its workers.
    """
    (_, small), (_, large) = (program(topology, size, 0) for size in (SMALL, LARGE))
    assert small < large <= small + MOST_FURTHER_BYTES


def test_one_pod_has_all_ranks_of_its_kind() -> None:
    """In the kind with a single pod, this pod has all 1,000 ranks."""
    settings = nested(settings_of("single-pod", 125, 8))
    assert settings["processesPerPod"] == 1000
    assert "pods" not in settings
    assert settings["storageOptions"] == {"shared": True}


def test_median_is_shown_with_its_extremes() -> None:
    assert shown([3.0, 1.0, 2.0]) == "2.00 s, median of 3: 1.00 to 3.00"
