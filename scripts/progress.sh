#!/bin/sh
# SPDX-License-Identifier: MIT
#
# progress.sh LOG COMMAND... - run COMMAND with all that it prints in LOG, and meanwhile show that it is
# alive: on a terminal the last line of LOG, in place; elsewhere that line every ten seconds. Exit status
# is COMMAND's.
set -u
log=$1
shift
: >"$log"
"$@" >"$log" 2>&1 </dev/null &
command=$!
trap 'kill "$command" 2>/dev/null; wait "$command"; exit 130' INT TERM
seconds=0
while kill -0 "$command" 2>/dev/null; do
	sleep 1
	seconds=$((seconds + 1))
	line=$(tail -n 1 "$log" | tr -cd '[:print:]' | cut -c 1-72)
	if [ -t 1 ]; then
		printf '\r\033[K  %3ds %s' $seconds "$line"
	elif [ $((seconds % 10)) -eq 0 ]; then
		printf '  %3ds %s\n' $seconds "$line"
	fi
done
[ ! -t 1 ] || printf '\r\033[K'
wait "$command"
