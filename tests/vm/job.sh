#!/bin/sh
# SPDX-License-Identifier: MIT
#
# job.sh [-t DIR] [-M PROGRAM] LINE - one line of check.sh's list of jobs: kernel, options of run.sh,
# names of cases, and why the cases have failed at first, separated by tabs. Runs the cases in one
# machine, or in as many as it takes when they die; with "dkms" for options, dkms.sh. Several of these run at
# once: each prints what it has to say as a whole, with the kernel in front of each line.
#
# In the directory $TXDA_VM_WORK results go to the file "results", and lines for another try to "again".
set -eu
# shellcheck source=tests/vm/rig.sh
. "$(dirname "$0")/rig.sh"
# shellcheck source=scripts/limit.sh
. "$top/scripts/limit.sh"

stage='' model=''
while getopts t:M: option; do
	case $option in
	t) stage=$OPTARG ;;
	M) model=$OPTARG ;;
	*)
		sed -n '4,9s/^# \{0,1\}//p' "$0"
		exit 2
		;;
	esac
done
shift $((OPTIND - 1))
work=$TXDA_VM_WORK
IFS=$(printf '\t') read -r k options cases again <<LINE
$1
LINE
# What a debug kernel watches costs time.
slow=1
[ "$k" != debug ] || slow=5
dir=$(mktemp -d "$work/machines/XXXXXX")

# What a machine that is gone said last.
last_words() {
	tail -n 60 "$dir/machine/console.log" 2>/dev/null || true
	tail -n 20 "$dir/machine/qemu.log" 2>/dev/null || true
}

# failed CASE REASON - of cases that failed; a machine of which the kernel complained fails its
# case for good. Emulated processors of a busy host do not always keep up with a hot-plug driver's
# seconds: what fails otherwise may try once more, when no other machine runs, and the report says so.
failed() {
	case $2 in
	*kernel:*) ;;
	*)
		if [ -z "$again" ]; then
			printf '%s\t%s\t%s\t%s\n' "$k" "$options" "$1" "$2" >>"$work/again"
			printf '   once more, later: vm %s: %s: %s\n' "$k" "$1" "$2"
			return
		fi
		;;
	esac
	record FAIL "vm $k: $1" "$2${again:+; at first: $again}"
}

# named COMMAND... - run it, with the kernel in front of each line of its output.
named() {
	status=0
	"$@" >"$dir/output" 2>&1 || status=$?
	sed "s/^/   $k: /" "$dir/output"
	return $status
}

# boot - run the cases in $dir/list in one machine; those that it did not come to stay in the list.
boot() {
	rm -rf "$dir/machine"
	# shellcheck disable=SC2086 # options are words
	named sh "$top/tests/vm/run.sh" -k "$k" $options ${stage:+-t "$stage"} ${model:+-M "$model"} -l $((300 * slow)) \
		-C "$dir/list" -o "$dir/machine" || true
	: >"$dir/events"
	[ ! -e "$dir/machine/events" ] || mv "$dir/machine/events" "$dir/events"
	begun=
	while read -r event result name reason; do
		case $event in
		begin) begun=$name ;;
		end)
			case $result in
			FAIL) failed "$name" "$reason" ;;
			*) record "$result" "vm $k: $name" "$reason${again:+; failed at first: $again}" ;;
			esac
			sed -i "/^$name /d" "$dir/list"
			begun=
			;;
		esac
	done <"$dir/events"
	if [ -n "$begun" ]; then
		named last_words
		complaint=$(grep -E -f "$top/tests/vm/guest/klog-bad" "$dir/machine/console.log" 2>/dev/null |
			grep -v -E -f "$top/tests/vm/guest/klog-allowed" | head -n 1)
		failed "$begun" "the machine died or hung${complaint:+; kernel: $complaint}"
		sed -i "/^$begun /d" "$dir/list"
	elif [ ! -s "$dir/events" ]; then
		named last_words
		while read -r name _; do
			failed "$name" "the machine did not come up"
		done <"$dir/list"
		: >"$dir/list"
	fi
}

dkms() {
	status=0
	sh "$top/tests/vm/dkms.sh" "$k" >"$dir/dkms.log" 2>&1 || status=$?
	case $status in
	0) record OK "vm $k: dkms" ;;
	77) record SKIP "vm $k: dkms" "$(tail -n 1 "$dir/dkms.log")" ;;
	*)
		named cat "$dir/dkms.log"
		record FAIL "vm $k: dkms" "see above"
		;;
	esac
}

# told COMMAND... - print what COMMAND prints when it is through, and nobody else prints.
told() {
	"$@" >"$dir/said" 2>&1
	locked output cat "$dir/said"
}

if [ -z "$again" ] && late 0; then
	for name in $cases; do
		record SKIP "vm $k: $name" "not begun within CHECK_WITHIN"
	done
elif [ "$options" = dkms ]; then
	told dkms
else
	for name in $cases; do
		echo "$name $(($(of "$name" timeout 120) * slow))"
	done >"$dir/list"
	while [ -s "$dir/list" ]; do
		told boot
	done
fi
