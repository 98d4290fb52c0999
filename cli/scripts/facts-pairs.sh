#!/bin/sh
# Prints what this host sees of others, one fact a line, as facts-host.sh does. Reads only.
# PEERS has a line for each question: `NAME ADDRESS tcp PORT`, `NAME ADDRESS udp PORT`, `NAME ADDRESS mtu
# BYTES` or `NAME ADDRESS way -`. All are asked side by side; each has PROBE_SECONDS.
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

# Tries all ports side by side, in processes of one bash, as the start of many programs costs more than
# the packets do. Its argument has the questions, one a line; it prints `NAME KIND PORT WORDS` for
# each that was answered, where WORDS are `open` or what the kernel said. Over UDP nobody answers such a
# packet: what is learnt is that it arrived where nobody listens. A host says that at most once a
# second to each other one, so more than two seconds pass before packets are said to be lost.
# shellcheck disable=SC2016 # bash is to expand it
readonly KNOCK='
knock() { # kind address port
  exec 3<>"/dev/$1/$2/$3" || return
  [ "$1" = udp ] || return 0
  for attempt in 1 2 3 4 5 6 7 8 9 10 11 12 13; do
    echo >&3 || return
    read -r -t 0.2 -u 3 || [ $? -gt 128 ] || return
  done
  echo timed out
  return 1
}
while read -r name address kind port; do
  { words=$(knock "$kind" "$address" "$port" 2>&1) && words=open
    printf "%s %s %s %s\n" "$name" "$kind" "$port" "${words//[[:cntrl:]]/ }"; } </dev/null &
done <<<"$1"
wait'

# pair.NAME.KIND.PORT=open, refused (packets arrive, nobody listens), silent or unreachable.
ask_ports() {
  questions=$(printf '%s\n' "$PEERS" | asked_ports)
  [ -n "$questions" ] || return
  has bash || {
    printf '%s\n' "$questions" | awk '{ print "pair." $1 "." $3 "." $4 "?the host has no bash" }'
    return
  }
  {
    limited bash -c "$KNOCK" knock "$questions"
    echo
    printf '%s\n' "$questions"
  } | awk '
    !asking && !NF { asking = 1; next }
    !asking {
      what = $1 "." $2 "." $3
      seen[what] = $4 == "open" ? "open" : /refused/ ? "refused" : /timed out/ ? "silent" : "unreachable"
      next
    }
    { what = $1 "." $3 "." $4; print "pair." what "=" (what in seen ? seen[what] : "silent") }'
}

# A host in k3s' pod network is not asked by UDP: its peers listen, and the doctor would wait for nothing.
asked_ports() {
  if ip link show flannel.1 >/dev/null 2>&1; then
    awk '$3 == "tcp"'
  else
    awk '$3 == "tcp" || $3 == "udp"'
  fi
}

# pair.NAME.mtu=fits, too large, or silent (nobody answers pings). A first packet is answered at once
# where all is well. Else two are sent of each size, as one that a busy machine answers late is no
# proof of a way that is too narrow.
ask_mtu() { # name address bytes
  has ping || { unseen "pair.$1.mtu" "the host has no ping" && return; }
  case $2 in *:*) header=48 ;; *) header=28 ;; esac
  whole="-M do -s $(($3 - header))"
  # shellcheck disable=SC2086 # words
  if answer=$(limited ping -c 1 -W 1 $whole "$2"); then
    fact "pair.$1.mtu" fits
    ask_latency "$1" "$2" "$(printf '%s\n' "$answer" | fastest)"
    return
  fi
  limited ping -c 2 -i 0.2 -W 2 "$2" >/dev/null &
  small=$!
  # shellcheck disable=SC2086 # words
  if limited ping -c 2 -i 0.2 -W 2 $whole "$2" >/dev/null; then
    fact "pair.$1.mtu" fits
  elif wait "$small"; then
    fact "pair.$1.mtu" "too large"
  else
    fact "pair.$1.mtu" silent
  fi
}

fastest() { sed -n 's|^rtt min[^=]* = \([0-9.]*\)/.*|\1|p'; } # of what ping has counted, in ms

# pair.NAME.milliseconds, until the answer. A busy machine is late once, and a long way each time: where
# the first answer is late, the fastest of some more counts.
ask_latency() { # name address milliseconds
  [ -n "$3" ] || return
  if [ "${3%%.*}" -lt 2 ]; then
    fact "pair.$1.milliseconds" "$3"
  else
    again=$(limited ping -c 8 -i 0.2 -W 1 "$2" | fastest)
    fact "pair.$1.milliseconds" "${again:-$3}"
  fi
}

# pair.NAME.name=the name and the addresses that it stands for here, where the address is a name;
# pair.NAME.source=own address and device of the packets that go there.
ask_way() { # name address
  at=$2
  case $2 in
    *[!0-9.]*)
      case $2 in
        *:*) ;;
        *)
          found=$(limited getent ahosts "$2" | awk '!seen[$1]++ { printf " %s", $1 }')
          fact "pair.$1.name" "$2$found"
          at=$(echo "$found" | awk '{ print $1 }')
          ;;
      esac
      ;;
  esac
  [ -n "$at" ] && has ip || return
  source=$(limited ip -o route get "$at" | awk '{
    for (i = 1; i < NF; i++) { if ($i == "dev") d = $(i + 1); if ($i == "src") s = $(i + 1) }
    if (s != "" && d != "") print s, d; exit }')
  [ -z "$source" ] || fact "pair.$1.source" "$source"
}

main() {
  ask_ports &
  printf '%s\n' "$PEERS" | {
    while read -r name address kind bytes; do
      case $kind in
        mtu) ask_mtu "$name" "$address" "$bytes" & ;;
        way) ask_way "$name" "$address" & ;;
      esac
    done
    wait
  }
  wait
  fact pairs_done yes
}

main
