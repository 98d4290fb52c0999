"""Writes texts of users into containers so that Kubernetes does not change them."""


def unexpanded(text: str) -> str:
    """A text for `command`, `args` or `env` of a container, which its program gets as it is.

    Kubernetes replaces `$(NAME)` in these fields by the value of the variable NAME, and `$$` by `$`
    (https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/).
    """
    return text.replace("$", "$$")
