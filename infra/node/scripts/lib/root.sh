# shellcheck shell=sh
# Functions to become root. This text is put in front of every script of disttrain that needs root.
# The password for sudo is in SUDO_PASSWORD. It reaches sudo through a helper program, so it is never
# on a command line.

# Makes a helper program that prints the password. The program reads it from its environment and does
# not contain it. It has to be in a folder where programs can be run, and many machines have /tmp
# mounted noexec, so several folders are tried. Fails if none works; `tried` then names them all.
# sudo asks three times. The helper answers each sudo once, because a machine may lock the account
# after three wrong passwords.
make_askpass() {
  tried=""
  trap 'rm -rf "$askpass_folder"' EXIT
  trap 'exit 1' HUP INT PIPE TERM # the connection has ended, so nobody reads the output
  for folder in "${TMPDIR:-/tmp}" /dev/shm /var/tmp "${HOME:-/}"; do
    tried="$tried $folder"
    askpass_folder=$(mktemp -d "$folder/disttrain.XXXXXX" 2>/dev/null) || continue
    askpass=$askpass_folder/askpass
    # shellcheck disable=SC2016 # the helper expands the variables
    printf '%s\n' '#!/bin/sh' '[ "$(cat "$0.asked" 2>/dev/null)" != "$PPID" ] || exit 1' \
      'echo "$PPID" >"$0.asked"' 'printf "%s\n" "$SUDO_PASSWORD"' >"$askpass"
    chmod 700 "$askpass"
    [ "$(SUDO_PASSWORD=runs "$askpass" 2>/dev/null)" != runs ] || return 0
    rm -rf "$askpass_folder"
  done
  askpass="" askpass_folder=""
  return 1
}

# Finds out how this user becomes root. Fails if it cannot, with the reason in root_problem.
prepare_root() {
  root_problem="" sudo_option="" askpass="" askpass_folder=""
  [ "$(id -u)" != 0 ] || return 0
  if ! command -v sudo >/dev/null; then
    root_problem="sudo is not installed on this host"
    return 1
  elif [ -z "${SUDO_PASSWORD:-}" ]; then
    sudo_option=-n
  else
    sudo_option=-A
    if ! make_askpass; then
      sudo_option="" root_problem="the helper program that gives sudo its password can be run in none \
of the folders$tried (mounted noexec, full, or missing)"
      return 1
    fi
    export SUDO_PASSWORD SUDO_ASKPASS="$askpass"
  fi
  root_problem=$(sudo "$sudo_option" true 2>&1 </dev/null) && root_problem="" && return 0
  root_problem=$(printf '%s' "$root_problem" | tail -n 1)
  sudo_option=""
  return 1
}

# Does what prepare_root does, and ends the program if this user cannot become root.
require_root() {
  prepare_root && return 0
  if ! command -v sudo >/dev/null; then
    echo "user $(id -un) of this host is not root, and $root_problem: install it there, or let root log in" >&2
  elif [ -n "${SUDO_PASSWORD:-}" ] && [ -z "$askpass" ]; then
    echo "sudoPassword: $root_problem. Let user $(id -un) of this host run programs in one of them" >&2
  elif [ -n "${SUDO_PASSWORD:-}" ]; then
    echo "sudoPassword: sudo of this host refuses it for user $(id -un): $root_problem" >&2
  else
    echo "sudoPassword: not set, and sudo asks user $(id -un) of this host for one:" \
      "$root_problem" >&2
  fi
  exit 1
}

# Runs a command as root. prepare_root has to come first; if it has failed, the command runs as this
# user.
as_root() {
  if [ -n "$sudo_option" ]; then sudo "$sudo_option" "$@"; else "$@"; fi
}

# Runs the script on standard input as root, in a new environment. Of this user's variables it only
# gets PATH and HOME. The arguments are the arguments of the script.
run_script() {
  # shellcheck disable=SC2016 # root's shell expands the variables
  as_root sh -c 'root_problem=$1; shift
    exec env -i PATH="${PATH:+$PATH:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
      HOME="${HOME:-/}" LC_ALL=C ROOT_PROBLEM="$root_problem" sh -s -- "$@"' \
    sh "$root_problem" "$@"
}
