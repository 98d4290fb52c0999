"""Refuses texts that cannot be the private key of an SSH connection."""

import base64
import binascii
import re

from infra.settings.setting_error import SettingError

_OPENSSH_WITHOUT_PASSPHRASE = b"openssh-key-v1\0\0\0\0\x04none"
_PUBLIC_KEY = re.compile(r"(ssh-|ecdsa-|sk-)\S+ \S|-+BEGIN [A-Z0-9 ]*PUBLIC KEY")
_PATH = re.compile(r"[/~.]\S*|\S+\.(pem|pub|key)|id_\w+")
_FROM_FILE = "Set the text of the private key: `pulumi config set --secret {} < ~/.ssh/id_ed25519`"
_NO_PASSPHRASE = (
    "Leave it empty and load the key into the SSH agent (ssh-add), or set a key without a "
    "passphrase"
)


def private_key_problem(text: str, key: str) -> SettingError | None:
    """Why a text is not a private key that can be used; None if it may be one.

    Args:
        text: the value of the setting.
        key: the words behind `pulumi config set --secret` that set it, for the hint.
    """
    text = text.strip()
    if _PUBLIC_KEY.match(text):
        return SettingError("it is a public key", _FROM_FILE.format(key))
    if _PATH.fullmatch(text):
        reason = "it is the path of a file and not the text in it"
        return SettingError(reason, _FROM_FILE.format(key))
    if _has_passphrase(text):
        return SettingError("it has a passphrase, for which nobody is asked", _NO_PASSPHRASE)
    return None


def _has_passphrase(text: str) -> bool:
    """Whether a key in the form of PKCS#8, of PEM or of OpenSSH is encrypted."""
    if "BEGIN ENCRYPTED PRIVATE KEY" in text or "Proc-Type: 4,ENCRYPTED" in text:
        return True
    found = re.search(r"-+BEGIN OPENSSH PRIVATE KEY-+\s+(\S[^-]*)", text)
    if found is None:
        return False
    try:
        content = base64.b64decode(re.sub(r"\s", "", found[1]))
    except binascii.Error:
        return False
    return not content.startswith(_OPENSSH_WITHOUT_PASSPHRASE)
