"""Which container of a pod does the work, where a cluster adds others."""

import pytest

from infra.kube.objects import container_of


@pytest.mark.parametrize(
    ("names", "chosen", "found"),
    [
        (["trainer"], "", "trainer"),
        (["trainer", "istio-proxy"], "trainer", "trainer"),
        # Istio with holdApplicationUntilProxyStarts
        (["istio-proxy", "trainer"], "trainer", "trainer"),
        (["trainer"], "another", "trainer"),
    ],
)
def test_container_before_ours_is_not_taken_for_it(
    names: list[str], chosen: str, found: str
) -> None:
    pod = {
        "metadata": {"annotations": {"kubectl.kubernetes.io/default-container": chosen}},
        "spec": {"containers": [{"name": name} for name in names]},
    }
    assert container_of(pod) == found
