#!/bin/bash
# SPDX-License-Identifier: MIT
#
# completions.sh SOURCE BIN - bash completes every option of every program, and what is known of their values.
set -eu
source=$1 bin=$2 failures=0
# shellcheck disable=SC1091 # found by an argument
. "$source/packaging/completions/txda.bash"
# It is for completion functions that the shell itself calls.
compopt() { :; }

# completes PROGRAM WORDS...: what the last word may become, sorted, on one line
completes() {
	COMP_WORDS=("$@")
	COMP_CWORD=$(($# - 1))
	COMPREPLY=()
	_txda "$bin/$1" "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}"
	printf '%s\n' "${COMPREPLY[@]}" | sort | tr '\n' ' ' | sed 's/ $//'
}

# check EXPECTED PROGRAM WORDS...
check() {
	local expected=$1
	shift
	local got
	got=$(completes "$@")
	if [ "$got" != "$expected" ]; then
		echo "FAIL: $*: '$got', not '$expected'"
		failures=$((failures + 1))
	fi
}

programs=0
for path in "$bin"/*; do
	[ -f "$path" ] || continue
	program=${path##*/}
	# It is not installed.
	[ "$program" != txda-mkfw ] || continue
	programs=$((programs + 1))
	complete -p "$program" >/dev/null 2>&1 || {
		echo "FAIL: nothing completes $program"
		failures=$((failures + 1))
	}
	all=" $(completes "$program" --) "
	for option in $("$path" --help | sed 's/--\[no-\]\([a-z-]*\)/--\1 --no-\1/g' | grep -oE -- '--[a-z]+[a-z-]*[a-z]' | sort -u); do
		case $all in
		*" $option "*) ;;
		*)
			echo "FAIL: $program $option is not completed"
			failures=$((failures + 1))
			;;
		esac
	done
done

check '--tensor-parallel-size' txdad --tens
check '--no-pin' txdad --no-pi
check '--max-body' txdad --model x --max-bo
check 'bf16 keep w4 w8' txdad --weights ''
check 'w4 w8' txdad --weights w
check 'demand' txdad --load d
check 'sleep unload' txdad --when_idle ''
check 'debug error info warning' txdad --log-level = ''
check 'info' txdad --log-level = i
check 'deepseek_r1' txdad --reasoning-parser d
check 'mistral mistral_list' txdad --tool_call_parser = m
check 'pythonic' txdad --tool-call-parser py
check 'debug' txda-cmodel --log-level d
check 'root' txdad --allow-user roo
check 'root' txdad --model-group roo
check "$source/README.md" txdad --config "$source/READM"
check "$source/packaging" txdad --cache-dir "$source/packagin"
check "$source/tests/models" txdad --model = "$source/tests/model"
check "$source/README.md" txdad --log-file "$source/READM"
check '' txdad --max-queue ''
echo "$programs programs, $failures failures"
[ "$failures" -eq 0 ] && [ "$programs" -gt 0 ]
