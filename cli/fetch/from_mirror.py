"""Fetches a run from its mirror, which needs neither the cluster nor the volume."""

import os
from collections.abc import Mapping

from cli.fetch.mirror_libraries import libraries_folder, need_libraries
from cli.fetch.mirror_settings import Mirror, has_credentials, is_s3, mirror_of_stack
from cli.fetch.order import Order, checked_name, say, summary
from cli.pulumi_outputs import selected_stack
from trainer.launch.exit_codes import FatalError
from trainer.mirror.contents import run_url

NOT_MIRRORED = "logs, events and TensorBoard's files are not mirrored"


def from_mirror(order: Order, mirror: Mirror) -> str:
    """Copy the run from the mirror, and return the final text for the user.

    Raises:
        ValueError: the libraries or credentials are missing, the store refuses or does not answer,
            there is no such run or checkpoint, or no checkpoint verifies.
        TaskError: the connection is cut again and again.
        OSError: this machine cannot write.
    """
    need_libraries(mirror.url, libraries_folder())
    # Imported here, because need_libraries may just have made the libraries importable.
    from cli.fetch.mirror_source import MirrorSource
    from trainer.mirror.remote_folder import RemoteFolder

    name = checked_name(order.run or mirror.run_name)
    folder = order.folder(name)
    mirror.use()
    try:
        source = MirrorSource(RemoteFolder(run_url(mirror.url, name)))
    except FatalError as error:
        raise ValueError(f"--from {mirror.url}: {error}") from None
    with folder.alone():
        brought = order.bring(source, name, folder, say)
    return (
        f"{summary(brought, name, folder.root)}\n"
        f"all of it is from {source.where}; what came after its newest copy is not there, and "
        f"{NOT_MIRRORED}"
    )


def mirror_at(url: str, stack: str) -> Mirror:
    """Return the mirror at an address that the user has typed.

    Its credentials come from the environment. If the environment has none, they come from the
    stack, provided that the stack's settings can be read.
    """
    if not is_s3(url) or has_credentials(os.environ):
        return Mirror(url)
    try:
        found = stack_mirror(stack, url)
    except ValueError as error:
        say(f"no stack's credentials are taken for {url}: {error}")
        return Mirror(url)
    return found or Mirror(url)


def stack_mirror(stack: str, url: str = "") -> Mirror | None:
    """Return the mirror that a stack's settings name; None if they name none.

    Args:
        stack: the name of the stack; an empty text means the selected stack.
        url: an address that replaces the one in the settings; empty to use that one.

    Raises:
        ValueError: there is no such stack, or its settings cannot be read.
    """
    return mirror_of_stack(stack or selected_stack(), os.environ, _shown, url)


def _shown(stack: str) -> Mapping[str, str]:
    # Imported here, because the import of Pulumi's SDK is slow.
    from cli.stack_plan import shown_settings

    return shown_settings(stack)[0]
