# shellcheck shell=sh
# Records who holds something on a host: which stack, because two stacks can use one host, and the node
# name that the host has in the cluster. If a host gets another node name, `create` runs for the new name
# first, and then `delete` for the old name. That `delete` must not remove what the new name holds now.
# Needs: HOLDER, the file with the record, with one `key value` a line.
# May be empty: OWNER, which identifies the platform; STACK, its stack; NODE, which is empty on the first
# machine.
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
    sync "$HOLDER.new" # see lib/k3s.sh
    mv "$HOLDER.new" "$HOLDER"
  fi
}

# Removes the record that a run has left which was killed while it wrote it.
forget_cut_off() { dry || rm -f "$HOLDER.new"; }

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
