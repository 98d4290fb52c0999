# shellcheck shell=sh
# As which further node a host has something. One that gets another name gets it under that name too,
# before what it had under the old one is deleted: what is deleted then has to stay.
# Needs: HOLDER, the file for that, which is missing on the first machine. May be empty: NODE.
note_holder() {
  if [ -z "${NODE:-}" ]; then
    rm -f "$HOLDER"
  elif [ "$(cat "$HOLDER" 2>/dev/null)" != "$NODE" ]; then
    mkdir -p "${HOLDER%/*}"
    echo "$NODE" >"$HOLDER"
  fi
}

is_holder() { # what it is about
  holder=$(cat "$HOLDER" 2>/dev/null || true)
  [ "$holder" != "${NODE:-}" ] || return 0
  by_now="the first machine"
  [ -z "$holder" ] || by_now="the node $holder"
  echo "$1 stays, as this host is $by_now by now"
  return 1
}
