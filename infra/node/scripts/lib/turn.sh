# shellcheck shell=sh
# Functions for scripts that change a host. Such a script fails with a reason, changes nothing in a
# dry run, and does not run beside another one.
# Needs: LOCK, the file that is locked while the script runs. A program that the script starts and that
# goes on after the script, such as a server, must not inherit the lock: start it with 9>&-.
readonly LOCK_SECONDS=600

fail() {
  echo "$1" >&2
  exit 1
}

dry() { [ -n "${DRY_RUN:-}" ]; }

# Waits until no other run works on this host. There may be one if the program of an earlier `up` was
# killed while its script went on, or if another person runs `up` too.
one_at_a_time() {
  dry && return
  command -v flock >/dev/null || fail "flock is missing on this host: install util-linux"
  until take_turn; do :; done
}

# Waits for the lock. Fails if the run that had it has removed its file. A third run may have made a new
# file since, and be at work.
take_turn() {
  exec 9>"$LOCK"
  lock -n || {
    echo "another run is at work on this host; waiting for it, at most $LOCK_SECONDS s" >&2
    lock -w "$LOCK_SECONDS" || fail "another run still works on this host ($LOCK is locked)"
  }
  [ "$(stat -L -c %d:%i /proc/self/fd/9)" = "$(stat -c %d:%i "$LOCK" 2>/dev/null)" ]
}

# Takes the lock. Fails if another run has it, and ends the script if flock itself does not work.
lock() { # options of flock
  flock "$@" 9 && return
  [ "$?" = 1 ] || fail "flock does not work on this host; the reason is above"
  return 1
}
