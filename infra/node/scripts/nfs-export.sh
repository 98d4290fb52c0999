#!/bin/sh
# create: lets one further machine mount the folder that this host serves by NFS (nfs-server.sh).
# delete: takes the permission back, unless the machine has another name now. The machine then cannot read
#   or write what it has mounted.
# Needs: DATA_ROOT, NODE (name of the machine's node), CLIENT (its address, as this host sees it).
# May be empty: OWNER, STACK, HOST (the address by which this host is reached), REPAIR_ID (when it changes,
#   the command runs again), DRY_RUN (1: only says what would change).
# Usage: nfs-export.sh create|delete
set -eu
umask 022

: "${DATA_ROOT:?}" "${NODE:?}" "${CLIENT:?}"

. ./lib/nfs.sh

# There is a file for each address, so that machines that swap their names never lose the permission.
readonly EXPORT="$EXPORTS/disttrain-$CLIENT.exports" PURPOSE="node $NODE by ${HOST:-this host}"

create() {
  case $CLIENT in
    *[!0-9A-Za-z.:-]*) fail "the machine $NODE says that its address is '$CLIENT', which is none" ;;
  esac
  if dry; then
    [ "$(exported_line "$EXPORT")" = "$DATA_ROOT $CLIENT($OPTIONS)" ] || echo "would write: $EXPORT"
    return
  fi
  one_at_a_time
  set_export "$EXPORT" "$CLIENT" "$PURPOSE"
  is_served "$CLIENT" || fail "the NFS server of this host does not serve $DATA_ROOT to $CLIENT \
($NODE): look with exportfs -s what it serves, and with systemctl status nfs-server whether it runs"
  echo "$NODE ($CLIENT) may mount $DATA_ROOT"
}

delete() {
  if dry; then
    [ ! -e "$EXPORT" ] || echo "would remove: $EXPORT"
    return
  fi
  one_at_a_time
  remove_export "$EXPORT" "$PURPOSE"
}

main() {
  case $1 in
    create | delete) "$1" ;;
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
