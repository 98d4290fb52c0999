#!/bin/sh
# Prints what this host sees of others, one fact a line, as facts-host.sh does. Reads only.
# PEERS has a line for each question: `NAME ADDRESS tcp PORT`, `NAME ADDRESS udp PORT` or
# `NAME ADDRESS mtu BYTES`. All are asked side by side; each has PROBE_SECONDS.
# Usage: facts-pairs.sh
set -u

: "${PROBE_SECONDS:?}" "${PEERS:=}"
LC_ALL=C
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export LC_ALL PATH

fact() { printf '%s=%.300s\n' "$1" "$2"; }
unseen() { printf '%s?%.300s\n' "$1" "$2"; }
has() { command -v "$1" >/dev/null 2>&1; }
limited() { timeout -k 1 "$PROBE_SECONDS" "$@" </dev/null 2>&1; }

# The words of an attempt: open, refused (packets arrive, nobody listens), silent or unreachable.
meaning() { # exit status, text
  case "$1 $2" in
    0\ *) echo open ;;
    *"refused"*) echo refused ;;
    124\ * | 137\ * | *"timed out"*) echo silent ;;
    *) echo unreachable ;;
  esac
}

# pair.NAME.tcp.PORT
ask_tcp() { # name address port
  has bash || { unseen "pair.$1.tcp.$3" "the host has no bash" && return; }
  # shellcheck disable=SC2016 # bash is to expand it
  text=$(limited bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$2" "$3")
  fact "pair.$1.tcp.$3" "$(meaning $? "$text")"
}

# pair.NAME.udp.PORT=refused (packets arrive, nobody listens) or silent (they are lost, or somebody
# listens, who does not answer such a packet). The second packet learns what became of the first. A
# host says at most once a second to each other one that nobody listens, so more than two seconds
# pass before the packets are said to be lost. A host in k3s' pod network is not asked: its peers
# listen, and the doctor would wait for nothing.
ask_udp() { # name address port
  has bash || { unseen "pair.$1.udp.$3" "the host has no bash" && return; }
  ip link show flannel.1 >/dev/null 2>&1 && return
  # shellcheck disable=SC2016 # bash is to expand it
  text=$(limited bash -c 'exec 3<>"/dev/udp/$0/$1" && for i in 1 2 3 4 5 6 7 8 9 10 11 12 13; do
    echo >&3 || exit 1; sleep 0.2; done' "$2" "$3")
  status=$?
  if [ "$status" = 0 ]; then fact "pair.$1.udp.$3" silent; else
    fact "pair.$1.udp.$3" "$(meaning "$status" "$text")"
  fi
}

# pair.NAME.mtu=fits, too large, or silent (nobody answers pings). Two packets are sent each time: one
# that a busy machine answers late is no proof of a way that is too narrow.
ask_mtu() { # name address bytes
  has ping || { unseen "pair.$1.mtu" "the host has no ping" && return; }
  case $2 in *:*) header=48 ;; *) header=28 ;; esac
  if ! limited ping -c 2 -i 0.2 -W 2 "$2" >/dev/null; then
    fact "pair.$1.mtu" silent
  elif limited ping -c 2 -i 0.2 -W 2 -M "do" -s $(($3 - header)) "$2" >/dev/null; then
    fact "pair.$1.mtu" fits
  else
    fact "pair.$1.mtu" "too large"
  fi
}

main() {
  printf '%s\n' "$PEERS" | {
    while read -r name address kind number; do
      case $kind in
        tcp) ask_tcp "$name" "$address" "$number" & ;;
        udp) ask_udp "$name" "$address" "$number" & ;;
        mtu) ask_mtu "$name" "$address" "$number" & ;;
      esac
    done
    wait
  }
  fact pairs_done yes
}

main
