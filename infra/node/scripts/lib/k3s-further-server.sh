# shellcheck shell=sh
# k3s as a further server, which has a copy of the cluster's data. Needs lib/k3s-further.sh and
# lib/k3s-etcd.sh.
readonly K3S_EXEC=server

# The first line only counts until k3s has joined. After that it knows the servers from its own data.
configuration() {
  echo "server: \"$SERVER_URL\""
  echo "token-file: \"$TOKEN_FILE\""
  echo "node-name: \"$NODE\""
  server_configuration
}

# Keeps systemd from starting k3s again. When a server has left etcd, its k3s ends. If systemd started it
# again before it is removed, it would join again. The next `create` takes this back.
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

# Writes the servers' token and the agents' secret. A server needs that secret too, because an agent may
# connect to any server.
put_files_of_role() {
  put "$TOKEN_FILE" "${K3S_TOKEN:-}"
  put "$AGENT_SECRET_FILE" "${AGENT_SECRET:-}"
  put_registration
}

wrong_files_of_role() {
  files_of_role=token
  wrong_text "$TOKEN_FILE" "${K3S_TOKEN:-}" || wrong_text "$AGENT_SECRET_FILE" "${AGENT_SECRET:-}"
}
