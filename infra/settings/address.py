"""Checks a machine's name or address, and brings it into a form that can be compared."""

import ipaddress
import re

from infra.no_proxy import is_address
from infra.settings.reader import Reader

ADDRESS = r"[A-Za-z0-9._:-]+"
_NAME = r"[A-Za-z0-9_]([A-Za-z0-9_-]|\.(?!\.))*"
_LONGEST_NAME = 253
ADDRESS_FORM = "the name or address of a host"


def check_address(reader: Reader, key: str, text: str, port_key: str = "") -> None:
    """Note a problem if a text has only characters of an address, but is no address or name.

    Args:
        reader: collects the problems that are found.
        key: the setting that holds the text.
        text: a text that matches ADDRESS, or an empty one, which is no problem here.
        port_key: the setting that holds the port; empty if no port belongs to the address.
    """
    if not text or is_address(text):
        return
    if found := re.fullmatch(r"([^:]+):(\d+)", text):
        hint = f"Set {port_key}: {found[2]} beside the address {found[1]}"
        hint = hint if port_key else f"Set {found[1]}"
        reader.problem(key, text, "a port stands with it", hint)
    elif ":" in text:
        reason = "it is neither an IPv6 address nor a name"
        reader.problem(key, text, reason, "Write it like fd00::4")
    elif re.fullmatch(r"[0-9.]+", text):
        reason = "it is neither an IPv4 address nor a name"
        reader.problem(key, text, reason, "Write it like 10.1.2.4")
    elif len(text) > _LONGEST_NAME or re.fullmatch(_NAME, text) is None:
        # ssh would take a name that begins with - as an option.
        reason = "it is not the name of a host"
        reader.problem(key, text, reason, "Write it like gpu01.example.com")


def spelled(text: str) -> str:
    """Return a name or an address in its normal spelling, so that two of them can be compared."""
    return str(ipaddress.ip_address(text)) if is_address(text) else text.lower().rstrip(".")
