# shellcheck shell=sh
# Whether something on a host belongs to another stack. If no owner is recorded, it counts as this
# stack's, because older versions recorded no owner.
# Needs: `noted`, which prints what is recorded for a key. May be empty: OWNER, which identifies the
# platform.
is_of_other_stack() {
  noted_owner=$(noted owner)
  [ -n "$noted_owner" ] && [ -n "${OWNER:-}" ] && [ "$noted_owner" != "$OWNER" ]
}
