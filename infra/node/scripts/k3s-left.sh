#!/bin/sh
# delete: takes away the k3s of this stack that is still here when the stack has none any more. An
# `up` that failed or was killed while k3s-install.sh ran has left it: the engine does not know of it,
# so the delete of that script does not run.
# Needs: NAMESPACE, GRACE_SECONDS. May be empty: OWNER, which platform this is; HOST: the address by
# which it was installed; K3S_EXISTING: refuse or adopt; DRY_RUN (1: only says what would change).
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
