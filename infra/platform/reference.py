"""Reads the platform of another stack from that stack's outputs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
from pulumi.runtime import invoke_async

from infra.image.plan import plan_image
from infra.platform.facts import ImageFacts, PlatformFacts, facts_from_text
from infra.platform.stack_name import full_stack_name, shown_stack_name
from infra.settings import PROJECT_ROOT
from infra.settings.kubeconfig import api_server
from infra.settings.setting_error import SettingError


@dataclass(frozen=True)
class ReferencedPlatform:
    """The platform of another stack.

    Args:
        facts: the facts about the platform.
        kubeconfig: content or path of the kubeconfig for its cluster.
        generation: a text that changes when its k3s has become another cluster.
    """

    facts: PlatformFacts
    kubeconfig: pulumi.Output[str]
    generation: str


async def referenced_platform(stack: str) -> ReferencedPlatform:
    """Read the outputs of the stack that owns the platform.

    Args:
        stack: the setting `platform`.

    Raises:
        pulumi.RunError: that stack is not up, cannot be read from here, or was made by another
            version of this program.
    """
    if full_stack_name(stack) == full_stack_name(pulumi.get_stack()):
        raise pulumi.RunError(
            f"platform: {stack!r} is this stack itself; leave it empty, so that this stack owns "
            'its platform: pulumi config set platform ""'
        )
    if not await _is_known(stack):
        raise _not_up(stack)
    reference = pulumi.StackReference("platform", stack_name=full_stack_name(stack))
    text = await _output(reference, "platform")
    kubeconfig = await _output(reference, "kubeconfig")
    # Of an output that it cannot decrypt the engine gives an empty object, and no error.
    if text and isinstance(kubeconfig, dict):
        raise pulumi.RunError(_locked(stack))
    if not text or not kubeconfig:
        raise _not_up(stack)
    try:
        facts, generation = facts_from_text(text)
    except ValueError as error:
        raise pulumi.RunError(f"platform: stack {stack!r} cannot be used: {error}") from None
    is_secret = not facts.kubeconfig_is_path
    way = pulumi.Output.secret(kubeconfig) if is_secret else pulumi.Output.from_input(kubeconfig)
    return ReferencedPlatform(facts, way, generation)


def check_cluster(stack: str, facts: PlatformFacts, kubeconfig: str) -> None:
    """Check that the kubeconfig still leads to the platform's cluster.

    Otherwise the run would be made in another cluster, where objects with the same names may exist.

    Args:
        stack: the setting `platform`.
        facts: the facts about the platform.
        kubeconfig: path of the kubeconfig. If the platform's output is the content instead, nothing
            is checked.

    Raises:
        pulumi.RunError: the kubeconfig leads to another address, or cannot be read.
    """
    if not facts.kubeconfig_is_path:
        return
    way = f"the kubeconfig {kubeconfig} with context {facts.context}"
    try:
        now = api_server(Path(kubeconfig), facts.context)
    except SettingError as problem:
        raise pulumi.RunError(
            f"platform: {stack!r} cannot be used: its cluster is reached by {way}: "
            f"{problem.reason}. Put the file back; or if its place or the name of its context has "
            f"changed, run `pulumi up --stack {stack}` first"
        ) from None
    if now != facts.api_server:
        raise pulumi.RunError(
            f"platform: {stack!r} cannot be used: its cluster was at {facts.api_server}, and "
            f"{way} leads to {now} by now. Nothing was changed. If it is the same cluster, run "
            f"`pulumi up --stack {stack}` first, which makes sure of that; else let that "
            "context lead to the former cluster"
        )


async def _is_known(stack: str) -> bool:
    """Whether the backend has a stack with this name.

    A StackReference to an unknown stack would end the program inside the engine, with a message
    that names neither the setting nor what to do. Calling the engine's function instead raises an
    error that can be caught here.

    Raises:
        pulumi.RunError: the backend does not answer, or that stack's secrets have a key that this
            shell cannot use.
    """
    try:
        await invoke_async("pulumi:pulumi:readStackOutputs", {"name": full_stack_name(stack)})
    except Exception as error:
        if "unknown stack" in str(error):
            return False
        raise pulumi.RunError(
            f"platform: {stack!r} cannot be used: the outputs of that stack cannot be read "
            f"({error}). Nothing was changed. Run the command again when "
            f"`pulumi stack output --stack {stack} --show-secrets` works in this shell"
        ) from None
    return True


def _locked(stack: str) -> str:
    own = shown_stack_name(pulumi.get_stack())
    return (
        f"platform: {stack!r} cannot be used: that stack is up, but its kubeconfig cannot be "
        "decrypted here. Nothing was changed. If the stacks have passphrases, give this one the "
        "passphrase of the other, for which this command asks: "
        f"`pulumi stack change-secrets-provider passphrase --stack {own}`; and set "
        "PULUMI_CONFIG_PASSPHRASE to it. If a key or Pulumi Cloud encrypts the secrets of that "
        "stack, use an account that may decrypt them"
    )


def _not_up(stack: str) -> pulumi.RunError:
    return pulumi.RunError(
        f"platform: {stack!r} cannot be used: no stack of this name is up, so there is no platform "
        f"for this run. Bring it up first: pulumi up --stack {stack}; "
        'or give this stack a platform of its own: pulumi config set platform ""'
    )


async def _output(reference: pulumi.StackReference, name: str) -> Any:
    details = await reference.get_output_details(name)
    return details.secret_value if details.value is None else details.value


def check_image(stack: str, image: ImageFacts) -> None:
    """Check that the platform's image contains the trainer's code of this folder.

    Raises:
        pulumi.RunError: the trainer's files here are not those from which the image was made.
    """
    plan = plan_image(PROJECT_ROOT, image.repository, image.base, image.torch_index_url or None)
    if plan.reference != image.reference:
        raise pulumi.RunError(
            f"platform: stack {stack!r} has delivered the image {image.reference}, but the "
            f"trainer's files in this folder make {plan.reference}. The pods would not run the "
            f"code of this folder. Deliver it first: pulumi up --stack {stack}"
        )
