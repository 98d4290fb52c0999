#!/bin/sh
# Prints k3s' kubeconfig, with its CA, for SERVER_HOST instead of loopback.
# Needs: SERVER_HOST. Usage: k3s-kubeconfig.sh create|delete
set -eu

: "${SERVER_HOST:?}"
readonly KUBECONFIG_FILE=/etc/rancher/k3s/k3s.yaml

create() {
  if [ ! -s "$KUBECONFIG_FILE" ]; then
    echo "no $KUBECONFIG_FILE: k3s has not started here" >&2
    exit 1
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
