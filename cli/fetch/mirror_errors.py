"""Explains errors of a mirror's store, and what to do about them. This module is pure."""

from trainer.mirror.remote_folder import StoreError

NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError")
REFUSED = (
    "PermissionError",  # s3fs raises it for every answer of S3 with status 403
    "TokenRetrievalError",
)
SECRETS = "podSecrets.AWS_ACCESS_KEY_ID and podSecrets.AWS_SECRET_ACCESS_KEY"


def reason_of(error: StoreError, url: str) -> str:
    """Return a text for the user.

    Args:
        error: the error, whose cause is the library's own error.
        url: the address of the mirror.
    """
    cause = error.__cause__
    kind, words = type(cause).__name__, str(cause) or "no further words"
    if kind in NO_CREDENTIALS:
        return (
            f"--from {url}: there are no credentials for it ({words}). Set AWS_ACCESS_KEY_ID and "
            f"AWS_SECRET_ACCESS_KEY in the environment of this command, or {SECRETS} in the stack "
            "(pulumi config set --secret --path NAME), and for a store that is not AWS "
            "AWS_ENDPOINT_URL"
        )
    if kind in REFUSED:
        return (
            f"--from {url}: the store refuses the credentials ({words}). Compare "
            "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL with those of the store "
            f"(without them in the environment the stack's own are taken: {SECRETS}), and let them "
            "list and read the bucket"
        )
    if kind == "FileNotFoundError":
        return (
            f"--from {url}: the store has no such bucket ({words}). Compare the address with "
            "run.checkpoint.mirror of the run, and AWS_ENDPOINT_URL with the address of its store"
        )
    return (
        f"--from {url}: the store does not answer as it should ({kind}: {words}). Check that "
        "AWS_ENDPOINT_URL and AWS_REGION are those of the store and that this machine reaches it, "
        "then run the same command again: it continues with what has arrived"
    )
