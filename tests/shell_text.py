"""A piece of shell for stand-ins of a login shell, which reads what infra/image/node.py sends."""

# Sets `text` to the text for `sh` in the first argument, which for_any_shell has encoded.
READ_TEXT = """\
text=${1##*echo }
text=$(echo "${text%% *}" | base64 -d | gzip -dc)
"""
