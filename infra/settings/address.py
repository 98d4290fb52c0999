"""The name or address of a machine: whether it can be one, and which spellings are the same."""

import ipaddress
import re

from infra.settings.reader import Reader

ADDRESS = r"[A-Za-z0-9._:-]+"
ADDRESS_FORM = "the name or address of a host"


def check_address(reader: Reader, key: str, text: str, port_key: str) -> None:
    """Note what has the characters of an address and cannot be one.

    Args:
        reader: collects what is wrong.
        key: the setting.
        text: it is one of ADDRESS, or empty.
        port_key: the setting that says the port.
    """
    if not text or _is_address(text):
        return
    if found := re.fullmatch(r"([^:]+):(\d+)", text):
        hint = f"Set {port_key}: {found[2]} beside the address {found[1]}"
        reader.problem(key, text, "a port stands with it", hint)
    elif ":" in text:
        reason = "it is neither an IPv6 address nor a name"
        reader.problem(key, text, reason, "Write it like fd00::4")
    elif re.fullmatch(r"[0-9.]+", text):
        reason = "it is neither an IPv4 address nor a name"
        reader.problem(key, text, reason, "Write it like 10.1.2.4")


def spelled(text: str) -> str:
    """A name or an address in the one spelling by which it can be compared."""
    return str(ipaddress.ip_address(text)) if _is_address(text) else text.lower().rstrip(".")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
