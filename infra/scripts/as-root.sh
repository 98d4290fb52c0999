# shellcheck shell=sh
# Runs the script on standard input as root: as it is, by sudo, or by sudo with a password that
# reaches it through a helper program and never stands on a command line.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    sh -s -- "$@"
  elif [ -z "${SUDO_PASSWORD:-}" ]; then
    if ! sudo -n true </dev/null; then
      echo "sudoPassword: not set, and sudo asks user $(id -un) of this host for one" >&2
      return 1
    fi
    sudo -n sh -s -- "$@"
  else
    askpass=$(mktemp)
    trap 'rm -f "$askpass"' EXIT
    trap 'exit 1' HUP INT PIPE TERM # when nobody listens any more
    chmod 700 "$askpass"
    # shellcheck disable=SC2016 # the variable is for the helper to expand
    printf '#!/bin/sh\nprintf "%%s\\n" "$SUDO_PASSWORD"\n' >"$askpass"
    export SUDO_PASSWORD
    if ! SUDO_ASKPASS=$askpass sudo -A true </dev/null; then
      echo "sudoPassword: sudo of this host refuses it for user $(id -un)" >&2
      return 1
    fi
    SUDO_ASKPASS=$askpass sudo -A sh -s -- "$@"
  fi
}
