#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_tool_output.sh PROGRAM... - every tool fails when its output is lost: on a full disk and with standard output closed it
# says so, and is silent where the reader of a pipe has gone.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0

# lost REASON STATUS: what the program says and its exit status; no REASON: it says nothing
lost() {
	want=1
	[ "$name" != txda-verify ] || want=2
	said=${1:+$name: cannot write to standard output: $1}
	if [ "$2" -ne $want ] || [ "$(cat "$dir/err")" != "$said" ]; then
		echo "FAIL: $name $option, '$1': status $2, not $want, and: $(cat "$dir/err")"
		failures=$((failures + 1))
	fi
}

for program; do
	name=${program##*/}
	for option in --help --version; do
		status=0
		"$program" $option >/dev/full 2>"$dir/err" || status=$?
		lost "No space left on device" $status
		status=0
		"$program" $option >&- 2>"$dir/err" || status=$?
		lost "Bad file descriptor" $status
		# shellcheck disable=SC2016 # the inner shell's
		sh -c 'trap "" PIPE
			{
				while env echo 2>"$2/err"; do sleep 0.01; done
				status=0
				"$0" "$1" 2>"$2/err" || status=$?
				echo $status >"$2/status"
			} | :' "$program" $option "$dir"
		lost "" "$(cat "$dir/status")"
		"$program" $option >/dev/null || lost "where nothing is lost" $?
	done
done
[ $failures -eq 0 ]
