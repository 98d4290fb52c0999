# shellcheck shell=sh
# Runs the script on standard input as root where that works without a person, else as this user
# with ROOT_PROBLEM saying why. A sudo password reaches sudo by a helper program, not by arguments.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    sh -s -- "$@"
    return
  fi
  if [ -z "${SUDO_PASSWORD:-}" ]; then
    option=-n
  else
    option=-A askpass=$(mktemp)
    trap 'rm -f "$askpass"' EXIT
    trap 'exit 1' HUP INT PIPE TERM # when nobody listens any more
    chmod 700 "$askpass"
    # shellcheck disable=SC2016 # the variable is for the helper to expand
    printf '#!/bin/sh\nprintf "%%s\\n" "$SUDO_PASSWORD"\n' >"$askpass"
    export SUDO_PASSWORD SUDO_ASKPASS="$askpass"
  fi
  if problem=$(sudo "$option" true 2>&1 </dev/null); then
    sudo "$option" sh -s -- "$@"
  else
    ROOT_PROBLEM=$(printf '%s' "$problem" | tail -n 1) sh -s -- "$@"
  fi
}
