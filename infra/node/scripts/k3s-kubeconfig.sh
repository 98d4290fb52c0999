#!/bin/sh
# create: prints k3s' kubeconfig, with its authority, for SERVER_HOST instead of loopback.
# Needs: SERVER_HOST; may be empty: LOOK (a text of the program: another one means that the
# kubeconfig is another one too), DRY_RUN (1: prints no secret; nothing is ever changed).
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
