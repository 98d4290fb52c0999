#!/bin/sh
# look: prints the state of k3s on this host, one `key=value` a line. It changes nothing, and takes some
#   milliseconds, or more if k3s' certificates are old.
# May be empty: DRY_RUN (1 makes no difference, because nothing is changed).
# Usage: k3s-look.sh look
set -eu

. ./lib/k3s.sh

yes_no() { if "$@"; then echo yes; else echo no; fi; }

is_healthy() {
  [ "$(noted files)" = "$(installed_files)" ] && is_active &&
    [ "$(noted kubeconfig)" = "$(kubeconfig_sum)" ] && has_noted_data && ! certificates_have_ended
}

authority_sum() { # of the certificate that its clients trust: another one in each cluster
  [ -s "$KUBECONFIG_FILE" ] || return 0
  sed -n 's/^ *certificate-authority-data: *//p' "$KUBECONFIG_FILE" | sha256sum | cut -d ' ' -f 1
}

look() {
  if is_ours; then
    echo "state=ours"
    echo "healthy=$(yes_no is_healthy)"
    echo "noted_data=$(yes_no has_noted_data)"
    echo "repair=$(noted repair)"
    echo "generation=$(noted generation)"
    echo "owner=$(noted owner)"
    echo "role=$(noted_role)"
    echo "way=$(noted way)"
  elif [ -e "$OWNERSHIP_FILE" ] || [ -e "$BINARY" ] || [ -e "$UNIT" ]; then
    echo "state=others"
  else
    echo "state=absent"
  fi
  echo "kubeconfig=$(kubeconfig_sum)"
  echo "authority=$(authority_sum)"
  echo "done=yes"
}

main() {
  case $1 in
    look) look ;;
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
