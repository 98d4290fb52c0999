"""`disttrain fetch`: copies the results of a run to this machine, from the volume or a mirror."""

import argparse
import re

from cli.endings import end_in_order
from cli.fetch.from_mirror import from_mirror, mirror_at, stack_mirror
from cli.fetch.from_volume import LostError, from_volume
from cli.fetch.mirror_settings import Mirror
from cli.fetch.order import Order, checked_name, say
from cli.fetch.pod_source import AUTO, EXEC
from cli.fetch.wanted import parse_choice
from cli.os_words import os_words
from cli.stack_option import add_stack_of_platform

VOLUME, MIRROR = "volume", "mirror"
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^\s@]+")  # as trainer/config/checkpoint.py has it
MOST_STREAMS = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `disttrain fetch`."""
    add = parser.add_argument
    add(
        "run",
        nargs="?",
        default="",
        metavar="RUN",
        help="name of the run (default: that of the stack)",
    )
    add_stack_of_platform(parser)
    add(
        "--checkpoint",
        default="latest",
        metavar="WHICH",
        help="latest: the newest that is not damaged; best: the one with the lowest validation "
        "loss; none; or a step number (default: latest)",
    )
    add("--to", default="", metavar="FOLDER", help="target folder (default: ./runs/RUN)")
    add(
        "--from",
        dest="origin",
        default=AUTO,
        metavar="WHERE",
        help="volume; mirror, for the one in the stack's setting run.checkpoint.mirror; or the "
        "address of a mirror, such as s3://bucket/prefix (default: the volume, or the stack's "
        "mirror if the volume is lost)",
    )
    add(
        "--by",
        choices=(AUTO, EXEC),
        default=AUTO,
        help="how bytes leave the volume: auto uses the API server's proxy to pods if it works, "
        "which is faster; exec never uses it (default: auto)",
    )
    add(
        "--streams",
        type=int,
        default=4,
        metavar="N",
        help=f"number of transfers at the same time, 1 to {MOST_STREAMS} (default: 4)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Fetch the run. The exit status is 0: everything is here and verified.

    Raises:
        ValueError: an option or the folder cannot be used.
        TaskError: the run or its checkpoint cannot be copied.
        ApiError, UnreachableError: the cluster refuses or does not answer.
    """
    end_in_order()
    choice, origin = parse_choice(arguments.checkpoint), parse_origin(arguments.origin)
    if arguments.run:
        checked_name(arguments.run)
    if not 1 <= arguments.streams <= MOST_STREAMS:
        raise ValueError(
            f"--streams: {arguments.streams} cannot be used: it must be 1 to {MOST_STREAMS}"
        )
    order = Order(
        run=arguments.run,
        stack=arguments.stack,
        choice=choice,
        to=arguments.to,
        streams=arguments.streams,
        by=arguments.by,
    )
    try:
        said = bring(order, origin)
    except OSError as error:
        where = arguments.to or "runs/RUN"
        raise ValueError(
            f"--to {where}: it cannot be written: {os_words(error)}. Name a folder of yours with "
            "free space; the same command goes on with what has arrived"
        ) from None
    print(said)
    return 0


def parse_origin(text: str) -> str:
    """Return the value of `--from`. Raises ValueError if no run can be fetched from there."""
    if text in (AUTO, VOLUME, MIRROR) or ADDRESS.fullmatch(text):
        return text
    reason = "it is no place. Use volume, mirror, or an address such as s3://bucket/prefix"
    if "@" in text:  # the error text does not repeat the address, which may contain a password
        raise ValueError(
            "--from: an address with '@' cannot be used, because credentials do not belong into "
            "it: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment"
        )
    raise ValueError(f"--from: {text!r} cannot be used: {reason}")


def bring(order: Order, origin: str) -> str:
    """Copy the run from the volume or from a mirror, and return the final text for the user.

    It raises the errors of `from_volume` and `from_mirror`, except for LostError.
    """
    if origin in (AUTO, VOLUME):
        try:
            return from_volume(order)
        except LostError as lost:
            mirror = _mirror_instead(order, lost) if origin == AUTO else None
            if mirror is None:
                raise lost.reason from None
    elif origin == MIRROR:
        mirror = stack_mirror(order.stack)
        if mirror is None:
            raise ValueError(
                "--from mirror: the stack has none, because its settings lack "
                "run.checkpoint.mirror. If the run had one, give its address: "
                "--from s3://bucket/prefix"
            )
    else:
        mirror = mirror_at(origin, order.stack)
    return from_mirror(order, mirror)


def _mirror_instead(order: Order, lost: LostError) -> Mirror | None:
    """Return the stack's mirror; None if the stack has none, or if its settings cannot be read."""
    try:
        mirror = stack_mirror(order.stack)
    except ValueError as error:
        # Without pulumi, for instance, both fail for the same reason, which is shown only once.
        if str(error) != str(lost):
            say(f"whether the run has a mirror is not known: {error}")
        return None
    if mirror:
        say(f"the volume cannot be read: {lost}\nthe run is fetched from its mirror {mirror.url}")
    return mirror
