#!/usr/bin/env bash
# serve.sh SIGNAL CMD...
#
# Runs CMD until standard input ends, and then sends it SIGNAL: a server cannot outlive the process that started it.
set -uo pipefail
signal=$1
shift
exec 3<&0
"$@" </dev/null 3<&- &
server=$!
cat <&3 >/dev/null &
input=$!
trap 'kill -s "$signal" "$server" 2>/dev/null' INT TERM
until ! kill -0 "$server" 2>/dev/null || ! kill -0 "$input" 2>/dev/null; do sleep 0.05; done
kill -s "$signal" "$server" 2>/dev/null
kill "$input" 2>/dev/null
wait "$server"
exit 0
