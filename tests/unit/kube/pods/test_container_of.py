"""Which container of a pod does the work if the cluster adds others."""

import pytest

from infra.kube.objects import container_of


@pytest.mark.parametrize(
    ("names", "chosen", "found"),
    [
        (["trainer"], "", "trainer"),
        (["trainer", "istio-proxy"], "trainer", "trainer"),
        # With holdApplicationUntilProxyStarts, Istio puts its container first.
        (["istio-proxy", "trainer"], "trainer", "trainer"),
        (["trainer"], "another", "trainer"),
    ],
)
def test_container_before_ours_is_not_taken_for_it(
    names: list[str], chosen: str, found: str
) -> None:
    """The container that the pod's annotation names is chosen, even if the cluster has put another
    one before it. If there is no such container, the first one is chosen.
    """
    pod = {
        "metadata": {"annotations": {"kubectl.kubernetes.io/default-container": chosen}},
        "spec": {"containers": [{"name": name} for name in names]},
    }
    assert container_of(pod) == found
