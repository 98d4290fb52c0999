# shellcheck shell=sh
# Whether something on a host belongs to another stack. What no owner is noted for is ours: older
# versions noted none.
# Needs: `noted`, which prints what is noted for a key. May be empty: OWNER, which platform this is.
is_of_other_stack() {
  noted_owner=$(noted owner)
  [ -n "$noted_owner" ] && [ -n "${OWNER:-}" ] && [ "$noted_owner" != "$OWNER" ]
}
