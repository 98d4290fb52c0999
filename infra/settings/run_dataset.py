"""Reads a data set of several files, and the options that say what the files hold."""

import re
from collections.abc import Mapping
from typing import Any, cast

from infra.settings.limits import LimitSettings
from infra.settings.reader import Reader
from infra.settings.run_settings import OPTION_KEYS, SEEN_BY_ALL
from infra.settings.secret import Secret, is_url
from infra.settings.similar_names import did_you_mean
from trainer.config import DatasetConfig

# A download and the preparation of its tokens are together rarely slower; see docs/benchmarks.md.
LOWEST_BYTES_PER_SECOND = 10_000_000
# The reason in messages why the address of a text must not have a password.
SHOWN_SECRET = "it is secret, and would be in plain text in a ConfigMap and on the volume"


def dataset_files(reader: Reader) -> tuple[dict[str, Any], ...]:
    """Read the setting `datasetFiles`: addresses without secrets, each with a checksum."""
    files: list[dict[str, Any]] = []
    for index, item in enumerate(reader.sequence("datasetFiles")):
        key = f"datasetFiles[{index}]"
        if not isinstance(item, Mapping):
            hint = "Write it as a mapping of url, sha256 and size_bytes"
            reader.problem(key, cast(object, item), "it is no mapping of keys", hint)
            continue
        file = dict(cast(Mapping[str, Any], item))
        url = Secret(str(file.get("url", "")))
        if url.text and not is_url(url.text):
            shown = re.sub(r"//.*@", "//[secret]@", url.text, flags=re.DOTALL)
            hint = "Write it like https://host/path"
            reader.problem(f"{key}.url", shown, "it is not an http(s) address", hint)
            continue
        if url.url_has_password or reader.is_encrypted("datasetFiles"):
            reader.problem(
                f"{key}.url",
                url.url_without_password,
                SHOWN_SECRET,
                "Use an address without user, password and token, or set datasetFile",
            )
            continue
        if not file.get("sha256"):
            reader.problem(
                f"{key}.sha256",
                "",
                "without it nobody would notice another file at this address",
                "Set the sha256 of the file; `sha256sum` shows it",
            )
        elif re.fullmatch("[0-9a-f]{64}", str(file["sha256"])) is None:
            reason = "it is not a sha256 checksum of 64 hexadecimal digits (0-9, a-f)"
            hint = "Write it like e3b0c442...b855, as sha256sum prints it"
            reader.problem(f"{key}.sha256", file.pop("sha256"), reason, hint)
        files.append(file)
    return tuple(files)


def dataset_options(reader: Reader) -> dict[str, Any]:
    """Read the setting `datasetOptions`: what the files hold and how they are split."""
    options = reader.mapping("datasetOptions")
    hint = (
        "Nothing in it is secret: remove it (`pulumi config rm datasetOptions`), and set it again "
        "without --secret"
    )
    if reader.refuse_encrypted("datasetOptions", SEEN_BY_ALL, hint):
        return {}
    for key in options.keys() - set(OPTION_KEYS):
        reason = f"there is no such option{did_you_mean(key, OPTION_KEYS)}"
        hint = f"Allowed: {', '.join(OPTION_KEYS)}"
        reader.problem(f"datasetOptions.{key}", options[key], reason, hint)
    if {"val_share", "val_tokens"} <= options.keys():
        reason = "val_tokens is set too, and takes its place"
        share = options["val_share"]
        reader.problem("datasetOptions.val_share", share, reason, "Remove one of the two")
    return {key: value for key, value in options.items() if key in OPTION_KEYS}


def check_time_for_dataset(reader: Reader, dataset: DatasetConfig, limits: LimitSettings) -> None:
    """Note a problem if `datasetTimeoutSeconds` is too short for files of a known size."""
    size = sum(file.size_bytes or 0 for file in dataset.files) or dataset.size_bytes or 0
    if dataset.file is not None:
        return
    needed = size // LOWEST_BYTES_PER_SECOND
    if needed > limits.dataset_timeout_seconds:
        reader.problem(
            "datasetTimeoutSeconds",
            str(limits.dataset_timeout_seconds),
            f"the data set has {size / 1e9:.1f} GB to download and to turn into tokens",
            f"Set at least {needed}; a Job that runs out of time loses nothing, and the next "
            "`pulumi up` continues where it stopped",
        )
