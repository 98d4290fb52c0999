# shellcheck shell=sh
# Runs the script on standard input as root: as it is, by sudo, or by sudo with a password that
# reaches it through a helper program and never stands on a command line.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    sh -s -- "$@"
  elif [ -z "${SUDO_PASSWORD:-}" ]; then
    sudo -n sh -s -- "$@"
  else
    askpass=$(mktemp)
    trap 'rm -f "$askpass"' EXIT
    chmod 700 "$askpass"
    # shellcheck disable=SC2016 # the variable is for the helper to expand
    printf '#!/bin/sh\nprintf "%%s\\n" "$SUDO_PASSWORD"\n' >"$askpass"
    export SUDO_PASSWORD
    SUDO_ASKPASS=$askpass sudo -A sh -s -- "$@"
  fi
}
