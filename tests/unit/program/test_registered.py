"""What each stack of the project registers, and what it exports."""

import importlib

from tests.unit.program.resources import COMPONENTS, EXPECTED, OWNERS
from tests.unit.stacks import PLATFORM_OF, Deployment


def test_each_stack_registers_exactly_its_resources(deployment: tuple[str, Deployment]) -> None:
    stack, result = deployment
    found = [f"{r.type} {r.name}" for r in result.resources if r.type not in COMPONENTS]
    assert sorted(found) == sorted(EXPECTED[stack])


def test_components_have_our_tokens_and_children_their_names(
    deployment: tuple[str, Deployment],
) -> None:
    """Each component is directly below the stack, and the name of each resource begins with that of
    its component.
    """
    _, result = deployment
    components = {r.urn: r for r in result.resources if r.type in COMPONENTS}
    for resource in result.resources:
        if resource.type in COMPONENTS:
            assert resource.parent.endswith("pulumi:pulumi:Stack::disttrain-" + deployment[0])
        else:
            parent = components[resource.parent]
            assert resource.name.startswith(f"{parent.name}-"), (resource.name, parent.name)


def camel_case(name: str) -> str:
    """Return a name in snake case as the outputs write it."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def test_components_register_the_outputs_they_are_annotated_with(
    deployment: tuple[str, Deployment],
) -> None:
    """Each component registers exactly the outputs that its class declares, and none of them is
    None.
    """
    _, result = deployment
    for component in (r for r in result.resources if r.type in COMPONENTS):
        module, name = COMPONENTS[component.type]
        cls = getattr(importlib.import_module(module), name)
        annotated = {
            key
            for base in cls.__mro__
            if base.__module__.startswith("infra.")
            for key in base.__annotations__
        }
        annotated = {camel_case(key) for key in annotated}
        assert set(result.component_outputs[component.urn]) == annotated, name
        assert None not in result.component_outputs[component.urn].values(), name


def test_kubernetes_resources_use_the_one_provider(deployment: tuple[str, Deployment]) -> None:
    """All Kubernetes objects use the one provider, whose identifier names the platform's stack."""
    _, result = deployment
    (provider,) = result.of_type("pulumi:providers:kubernetes")
    owner = PLATFORM_OF.get(deployment[0], deployment[0])
    assert provider.inputs["clusterIdentifier"].startswith(f"disttrain-{owner}-")
    for resource in result.resources:
        if resource.type.startswith("kubernetes:"):
            assert resource.request.provider.startswith(provider.urn), resource.name


def test_outputs_are_named_in_camel_case_and_complete(deployment: tuple[str, Deployment]) -> None:
    stack, result = deployment
    outputs = result.outputs
    assert outputs["namespace"] == "disttrain"
    assert outputs["topology"] == ("multi-pod" if "multi" in stack else "single-pod")
    assert outputs["runName"] == stack
    if stack in OWNERS:
        assert outputs["hostRunPath"] == f"{outputs['hostDataPath']}/runs/{stack}"
    assert outputs["runPath"] == f"/data/runs/{stack}"
    said = "not known yet" if "multi" in stack else "one pod writes to the volume"
    assert outputs["volumeProof"].startswith(said)  # the recording engine runs no wait
    assert outputs["queuePlace"] == "the run is in no queue of Kueue"
    assert "_" not in "".join(outputs)
    existing = str(result.one("cluster-provider").inputs["kubeconfig"])
    assert outputs["kubeconfig"] == existing
