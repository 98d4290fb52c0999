# shellcheck shell=sh
# For scripts that change a host: they fail with a reason, change nothing in a dry run, and take
# turns. Needs: LOCK, the file that is locked meanwhile. What is started meanwhile must not inherit
# the lock (9>&-) if it goes on, as a server does.
readonly LOCK_SECONDS=600

fail() {
  echo "$1" >&2
  exit 1
}

dry() { [ -n "${DRY_RUN:-}" ]; }

# An earlier run may still be at work: its program was killed, or another person runs `up` too.
one_at_a_time() {
  dry && return
  command -v flock >/dev/null || fail "flock is missing on this host: install util-linux"
  exec 9>"$LOCK"
  lock -n || {
    echo "another run is at work on this host; waiting for it, at most $LOCK_SECONDS s" >&2
    lock -w "$LOCK_SECONDS" || fail "another run still works on this host ($LOCK is locked)"
  }
}

# Fails if another run has the lock, and ends the script if flock itself does not work.
lock() { # options of flock
  flock "$@" 9 && return
  [ "$?" = 1 ] || fail "flock does not work on this host; the reason is above"
  return 1
}
