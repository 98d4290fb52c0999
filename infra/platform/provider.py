"""Registers the Kubernetes provider of a stack."""

from importlib.metadata import version

import pulumi

PACKAGE = "kubernetes"


def kubernetes_provider(
    name: str,
    kubeconfig: pulumi.Input[str],
    context: str,
    cluster_identifier: str,
    opts: pulumi.ResourceOptions,
    *,
    changes_content: bool = False,
) -> pulumi.ProviderResource:
    """Register the provider with these inputs and no others.

    The class `Provider` of pulumi-kubernetes also takes variables such as
    PULUMI_K8S_DELETE_UNREACHABLE from the shell, and the engine keeps them in the state. Then a
    variable that was set for one `up` would count for each later command. The provider itself reads
    them too, so they count for the command for which they are set.

    Args:
        name: name of the resource.
        kubeconfig: the content of the kubeconfig, or its path.
        context: the context in the kubeconfig; empty: the current one.
        cluster_identifier: names the cluster. Without it, a renewed certificate in the kubeconfig
            would look like another cluster, and the engine would replace every object.
        opts: parent and dependencies of the provider.
        changes_content: whether the content of a ConfigMap or a Secret is changed in its place.
            Otherwise the engine replaces the object.
    """
    inputs: dict[str, pulumi.Input[str] | None] = {
        "kubeconfig": kubeconfig,
        "context": context or None,
        "clusterIdentifier": cluster_identifier,
        # Only then may the engine make an object that is there already, such as a claim that
        # `destroy` has left. A variable could turn it off.
        "enableServerSideApply": "true",
    }
    if changes_content:
        inputs |= {"enableConfigMapMutable": "true", "enableSecretMutable": "true"}
    ours = pulumi.ResourceOptions(version=version(f"pulumi-{PACKAGE}"))
    return pulumi.ProviderResource(PACKAGE, name, inputs, pulumi.ResourceOptions.merge(opts, ours))
