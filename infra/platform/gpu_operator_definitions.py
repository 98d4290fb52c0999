"""Lists the CustomResourceDefinitions that the GPU Operator's chart brings.

Helm leaves them in the cluster when the chart is removed. Other operators of NVIDIA have
definitions in the same API groups, such as `nimservices.apps.nvidia.com`. So the group does not
tell which operator a definition belongs to, and the names have to be listed.
"""

from infra.settings.gpu_regime import chart_version

OF_ALL_CHARTS = (
    "clusterpolicies.nvidia.com",
    "nvidiadrivers.nvidia.com",
    # These come from the node feature discovery, a chart inside the chart.
    "nodefeatures.nfd.k8s-sigs.io",
    "nodefeaturegroups.nfd.k8s-sigs.io",
    "nodefeaturerules.nfd.k8s-sigs.io",
)
# The last two also come with NVIDIA's driver for dynamic resource allocation, which has a chart of
# its own.
SINCE_26_7 = (
    "gpuclusters.nvidia.com",
    "computedomains.resource.nvidia.com",
    "computedomaincliques.resource.nvidia.com",
)
FIRST_WITH_MORE = (26, 7, 0)


def chart_definitions(version: str) -> tuple[str, ...]:
    """The names of the definitions.

    Args:
        version: version of the chart, such as `v26.3.3`.
    """
    chart = chart_version(version)
    assert chart is not None
    return (*OF_ALL_CHARTS, *(SINCE_26_7 if chart >= FIRST_WITH_MORE else ()))
