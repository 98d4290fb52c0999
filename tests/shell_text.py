"""A piece of shell for stand-ins of a login shell, which reads what infra/image/node.py sends."""

# This sets `text` to the text for `sh`, which for_any_shell has encoded in the first argument.
READ_TEXT = """\
text=${1##*echo }
text=$(echo "${text%% *}" | base64 -d | gzip -dc)
"""
