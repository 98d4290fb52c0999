#!/bin/sh
# create: adds certificate authorities to the host's trust store, on each supported family of Linux.
# delete: removes them again, unless they now belong to another stack, or to another node name of this host.
# Needs: CA_BUNDLE (PEM). May be empty: NODE (the node name of a further machine), OWNER (identifies the
# platform), STACK (its stack), REPAIR_ID (when it changes, the command runs again), DRY_RUN (1: only says
# what would change).
# Usage: ca-certificates.sh create|delete
set -eu

: "${CA_BUNDLE:?}"
# The folder for further authorities | the command that reads them | an option of that command, without
# which it leaves links to authorities that were removed.
readonly STORES='/usr/local/share/ca-certificates|update-ca-certificates|--fresh
/etc/pki/ca-trust/source/anchors|update-ca-trust|
/etc/pki/trust/anchors|update-ca-certificates|--fresh'
readonly FILE=disttrain.crt
STORE_ROOT=${STORE_ROOT:-}                             # for tests
readonly LOCK="$STORE_ROOT/run/disttrain-trust.lock"   # machines that swap names come at one time
readonly HOLDER="$STORE_ROOT/var/lib/disttrain-trust"  # whose they are, see lib/holder.sh
# This file exists while the certificates have changed and the store is not up to date yet. So the next run
# completes one that was cut off.
readonly UNFINISHED="$STORE_ROOT/var/lib/disttrain-trust-begun"

. ./lib/turn.sh
. ./lib/holder.sh

find_store() { # sets folder, update and fresh
  while IFS='|' read -r folder update fresh; do
    folder=$STORE_ROOT$folder
    [ ! -d "$folder" ] || ! command -v "$update" >/dev/null || return 0
  done <<END
$STORES
END
  echo "no trust store of a known kind on this host (package ca-certificates)" >&2
  return 1
}

begin() { mkdir -p "${UNFINISHED%/*}" && : >"$UNFINISHED"; }

create() {
  find_store
  one_at_a_time
  # A PEM may or may not end with a newline. The shell drops it, so that the texts can be compared.
  wanted=$(printf '%s' "$CA_BUNDLE")
  if [ -e "$folder/$FILE" ] && is_of_other_stack; then
    [ "$(cat "$folder/$FILE")" = "$wanted" ] || fail "caBundle: this host trusts other authorities \
already, for another stack ($(noted stack)), and they are not replaced. Set the same caBundle in both \
stacks, or destroy that stack first. If it is lost, remove the line 'owner' from $HOLDER on this host"
    echo "$folder/$FILE is there, and goes with another stack ($(noted stack))"
    return
  fi
  dry || note_holder
  if [ ! -e "$UNFINISHED" ] && [ "$(cat "$folder/$FILE" 2>/dev/null)" = "$wanted" ]; then
    echo "$folder/$FILE is there"
    return
  elif dry; then
    echo "would write: $folder/$FILE, and run $update"
    return
  fi
  begin
  printf '%s\n' "$wanted" >"$folder/$FILE.new"
  chmod 644 "$folder/$FILE.new"
  mv "$folder/$FILE.new" "$folder/$FILE"
  "$update" >/dev/null
  rm -f "$UNFINISHED"
  echo "$folder/$FILE is trusted"
}

delete() {
  find_store || return 0
  one_at_a_time
  forget_cut_off
  [ -e "$folder/$FILE" ] || [ -e "$UNFINISHED" ] || [ -e "$HOLDER" ] || return 0
  is_holder "$folder/$FILE" || return 0
  if dry; then
    echo "would remove: $folder/$FILE, and run $update"
    return
  fi
  begin
  rm -f "$folder/$FILE" "$folder/$FILE.new"
  "$update" ${fresh:+"$fresh"} >/dev/null
  rm -f "$UNFINISHED"
  rm -f "$HOLDER"
  echo "$folder/$FILE is removed"
}

main() {
  case $1 in
    create | delete) "$1" ;;
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
