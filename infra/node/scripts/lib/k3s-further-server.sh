# shellcheck shell=sh
# k3s as a further server, with a copy of the cluster's data. Needs lib/k3s-further.sh and
# lib/k3s-etcd.sh.
readonly K3S_EXEC=server

# Once it has joined, k3s knows its servers from its own data, and the first line counts no more.
configuration() {
  echo "server: \"$SERVER_URL\""
  echo "token-file: \"$TOKEN_FILE\""
  echo "node-name: \"$NODE\""
  server_configuration
}

# k3s that etcd has let go ends, and when it is started again it joins anew: systemd must not do that
# before k3s is removed. The next create takes this back.
retire() {
  one_at_a_time
  if dry; then
    echo "would keep systemd from starting k3s again"
    return
  fi
  removable || return 0
  mkdir -p "$NO_RESTART"
  printf '[Service]\nRestart=no\n' >"$NO_RESTART/disttrain.conf"
  systemctl daemon-reload
}

# The servers' token, and the agents' secret: an agent may come to any server.
put_files_of_role() {
  put "$TOKEN_FILE" "${K3S_TOKEN:-}"
  put "$AGENT_SECRET_FILE" "${AGENT_SECRET:-}"
  put_registration
}

wrong_files_of_role() {
  files_of_role=token
  wrong_text "$TOKEN_FILE" "${K3S_TOKEN:-}" || wrong_text "$AGENT_SECRET_FILE" "${AGENT_SECRET:-}"
}
