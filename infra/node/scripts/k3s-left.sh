#!/bin/sh
# delete: removes a k3s of this stack that is still here after everything else was removed. There is one
#   if an `up` failed or was killed while k3s-install.sh ran. Then the engine does not know that command,
#   and does not run its delete.
# Needs: NAMESPACE, GRACE_SECONDS. May be empty: OWNER (identifies the platform), HOST (the address by which
# k3s was installed), K3S_EXISTING (refuse or adopt), DRY_RUN (1: only says what would change).
# Usage: k3s-left.sh delete
set -eu

: "${NAMESPACE:?}" "${GRACE_SECONDS:?}"

. ./lib/k3s.sh
. ./lib/other-runs.sh
. ./lib/k3s-download.sh
. ./lib/k3s-files.sh
. ./lib/k3s-remove.sh
. ./lib/k3s-server.sh

main() {
  case $1 in
    delete) [ ! -e "$OWNERSHIP_FILE" ] || came_by_other_address || delete ;;
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
