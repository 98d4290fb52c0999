#!/bin/sh
# create: prints k3s' kubeconfig, with its authority, for SERVER_HOST instead of the loopback address.
# Needs: SERVER_HOST. May be empty: LOOK (the script does not read it; when it changes, the kubeconfig may
# have changed too, and the command runs again), DRY_RUN (1: prints no secret; nothing is ever changed).
# Usage: k3s-kubeconfig.sh create|delete
set -eu

. ./lib/k3s.sh

: "${SERVER_HOST:?}"

create() {
  [ -s "$KUBECONFIG_FILE" ] || fail "no $KUBECONFIG_FILE: k3s has not started here"
  if dry; then
    echo "would print: $KUBECONFIG_FILE for $SERVER_HOST"
    return
  fi
  sed "s|https://127\.0\.0\.1:|https://$SERVER_HOST:|" "$KUBECONFIG_FILE"
}

main() {
  case $1 in
    create) create ;;
    delete) : ;; # it goes with k3s
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
