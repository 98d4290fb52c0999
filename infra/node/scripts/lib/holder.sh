# shellcheck shell=sh
# Whose something on a host is: of which stack, as two of them can use one host, and as which further node
# the host has it. One that gets another name gets it under that name too, before what it had under the
# old one is deleted: what is deleted then has to stay.
# Needs: HOLDER, the file for that, with one `key value` a line. May be empty: OWNER, which platform this
# is, STACK, its stack, and NODE, which is empty on the first machine.
. ./lib/other-stack.sh

noted() { # key; a word alone is the node, as older versions have noted it
  awk -v key="$1" 'NF == 2 && $1 == key { print $2 } NF == 1 && key == "node"' "$HOLDER" 2>/dev/null ||
    true
}

note_holder() {
  lines=$(for line in "node ${NODE:-}" "owner ${OWNER:-}" "stack ${STACK:-}"; do
    [ -z "${line#* }" ] || echo "$line"
  done)
  if [ -z "$lines" ]; then
    rm -f "$HOLDER"
  elif [ "$(cat "$HOLDER" 2>/dev/null)" != "$lines" ]; then
    mkdir -p "${HOLDER%/*}"
    echo "$lines" >"$HOLDER.new"
    mv "$HOLDER.new" "$HOLDER"
  fi
}

is_holder() { # what it is about
  if is_of_other_stack; then
    echo "$1 stays, as it belongs to another stack ($(noted stack))"
    return 1
  fi
  holder=$(noted node)
  [ "$holder" != "${NODE:-}" ] || return 0
  by_now="the first machine"
  [ -z "$holder" ] || by_now="the node $holder"
  echo "$1 stays, as this host is $by_now by now"
  return 1
}
