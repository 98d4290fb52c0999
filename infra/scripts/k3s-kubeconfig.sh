#!/bin/sh
# Prints k3s' kubeconfig, with its CA, for SERVER_HOST instead of loopback.
# Needs: SERVER_HOST; may be empty: DRY_RUN (1: prints no secret; nothing is ever changed).
# Usage: k3s-kubeconfig.sh create|delete
set -eu

: "${SERVER_HOST:?}"
readonly KUBECONFIG_FILE=/etc/rancher/k3s/k3s.yaml

create() {
  if [ ! -s "$KUBECONFIG_FILE" ]; then
    echo "no $KUBECONFIG_FILE: k3s has not started here" >&2
    exit 1
  fi
  if [ -n "${DRY_RUN:-}" ]; then
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
