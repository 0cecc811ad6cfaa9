#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check.sh [-k "K..."] [-r FILE] [-B] [-L] [CASE...] - the test cases (all, or those whose names begin so)
# in virtual machines, on each kernel K (6.12 and 7.2).
#
#   -r FILE   append the results there: OK, FAIL or SKIP, name, reason, separated by tabs
#   -B        the tree is built already
#   -L        storms (resets, removals, reloads) in full, not a tenth of them
#   -t DIR, -M PROGRAM   as of run.sh
#
# The header of a case, cases/NN-name.sh, says what machine it wants:
#   # vm: mode=fast|systemd chips=N irq=msix|msi mem=1G plug=now|later timeout=SECONDS kernels=6.12,7.2
#         append=KERNEL-ARGUMENT+KERNEL-ARGUMENT
# Cases that want the same one share a boot. Output as of scripts/check.sh; exit status 77 when there
# can be no machine here at all.
set -eu
# shellcheck source=tests/vm/rig.sh
. "$(dirname "$0")/rig.sh"

kernels="6.12 7.2" results='' built='' stage='' model='' long=''
while getopts k:r:BLt:M: option; do
	case $option in
	k) kernels=$OPTARG ;;
	r) results=$OPTARG ;;
	B) built=1 ;;
	L) long=1 ;;
	t) stage=$OPTARG built=1 ;;
	M) model=$OPTARG ;;
	*)
		sed -n '4,19s/^# \{0,1\}//p' "$0"
		exit 2
		;;
	esac
done
shift $((OPTIND - 1))
work=$(mktemp -d "${TMPDIR:-/tmp}/txda-vm-check.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
: >"$work/results"

# record RESULT NAME [REASON]
record() {
	printf '%s\t%s\t%s\n' "$1" "$2" "${3:-}" >>"$work/results"
	printf '   %-4s %s%s\n' "$1" "$2" "${3:+: $3}"
}

# of CASE KEY DEFAULT - what the header of CASE says of KEY.
of() {
	value=$(sed -n "s/^# vm:.*[[:space:]]$2=\([^[:space:]]*\).*/\1/p" "$top/tests/vm/cases/$1.sh" | head -n 1)
	echo "${value:-$3}"
}

# The machine that a case wants, as options of run.sh.
machine_of() {
	options="-n $(of "$1" chips 1) -i $(of "$1" irq msix) -m $(of "$1" mem "${memory:-1G}")"
	[ "$(of "$1" mode fast)" = fast ] || options="$options -s"
	for word in $(of "$1" append "" | tr + ' '); do
		options="$options -a $word"
	done
	[ "$(of "$1" plug now)" = now ] || options="$options -p"
	[ -z "$long" ] || options="$options -a txda.long=1"
	echo "$options"
}

wanted() {
	[ $# -gt 1 ] || return 0
	name=$1
	shift
	for prefix in "$@"; do
		case $name in "$prefix"*) return 0 ;; esac
	done
	return 1
}

# What a machine that is gone said last.
last_words() {
	tail -n 60 "$work/machine/console.log" 2>/dev/null || true
	tail -n 20 "$work/machine/qemu.log" 2>/dev/null || true
}

# failed K OPTIONS CASE REASON - of cases that failed; a machine of which the kernel complained fails its
# case for good. Emulated processors of a busy host do not always keep up with a hot-plug driver's
# seconds: what fails otherwise may try once more, alone, and the report says so.
failed() {
	case $4 in
	*kernel:*) ;;
	*)
		if [ -z "$again" ]; then
			printf '%s\t%s\t%s\t%s\n' "$2" "$3" "$(of "$3" timeout 120)" "$4" >>"$work/again"
			printf '   once more, later: vm %s: %s: %s\n' "$1" "$3" "$4"
			return
		fi
		;;
	esac
	record FAIL "vm $1: $3" "$4${again:+; at first: $again}"
}

# boot K OPTIONS - run the cases in $work/list in one machine; those that it did not come to end up
# in $work/list again.
boot() {
	rm -rf "$work/machine"
	# shellcheck disable=SC2086 # options are words
	sh "$top/tests/vm/run.sh" -k "$1" $2 ${stage:+-t "$stage"} ${model:+-M "$model"} -l $((300 * slow)) \
		-C "$work/list" -o "$work/machine" || true
	: >"$work/machine/events.new"
	[ ! -e "$work/machine/events" ] || mv "$work/machine/events" "$work/machine/events.new"
	begun=
	while read -r event result name reason; do
		case $event in
		begin) begun=$name ;;
		end)
			case $result in
			FAIL) failed "$1" "$2" "$name" "$reason" ;;
			*) record "$result" "vm $1: $name" "$reason${again:+; failed at first: $again}" ;;
			esac
			sed -i "/^$name /d" "$work/list"
			begun=
			;;
		esac
	done <"$work/machine/events.new"
	if [ -n "$begun" ]; then
		last_words
		complaint=$(grep -E -f "$top/tests/vm/guest/klog-bad" "$work/machine/console.log" 2>/dev/null |
			grep -v -E -f "$top/tests/vm/guest/klog-allowed" | head -n 1)
		failed "$1" "$2" "$begun" "the machine died or hung${complaint:+; kernel: $complaint}"
		sed -i "/^$begun /d" "$work/list"
	elif [ ! -s "$work/machine/events.new" ]; then
		last_words
		while read -r name _; do
			failed "$1" "$2" "$name" "the machine did not come up"
		done <"$work/list"
		: >"$work/list"
	fi
}

check_kernel() {
	k=$1
	shift
	# What a debug kernel watches costs time and memory.
	slow=1 memory=1G
	[ "$k" != debug ] || slow=5 memory=3G
	for file in "$top"/tests/vm/cases/*.sh; do
		name=$(basename "$file" .sh)
		wanted "$name" "$@" || continue
		case ,$(of "$name" kernels "$k"), in
		*",$k,"*) printf '%s\t%s\t%s\n' "$(machine_of "$name")" "$name" "$(of "$name" timeout 120)" ;;
		esac
	done >"$work/cases"
	cut -f 1 "$work/cases" | sort -u >"$work/machines"
	: >"$work/again"
	again=
	# The list is read from another descriptor: what runs in the loop may read its input.
	while read -r options <&3; do
		awk -F '\t' -v o="$options" -v slow="$slow" '$1 == o { print $2, $3 * slow }' "$work/cases" >"$work/list"
		while [ -s "$work/list" ]; do
			boot "$k" "$options"
		done
	done 3<"$work/machines"
	while IFS=$(printf '\t') read -r options name seconds again <&3; do
		echo "$name $seconds" >"$work/list"
		boot "$k" "$options"
	done 3<"$work/again"
}

check_dkms() {
	status=0
	sh "$top/tests/vm/dkms.sh" "$1" >"$work/dkms.log" 2>&1 || status=$?
	case $status in
	0) record OK "vm $1: dkms" ;;
	77) record SKIP "vm $1: dkms" "$(tail -n 1 "$work/dkms.log")" ;;
	*)
		cat "$work/dkms.log"
		record FAIL "vm $1: dkms" "see above"
		;;
	esac
}

prepare() {
	sh "$top/tests/vm/prepare.sh" "$@"
}
prepare root
prepare supervise
ready=
for k in $kernels; do
	status=0
	prepare kernel "$k" || status=$?
	case $status in
	0) ready="$ready $k" ;;
	77) record SKIP "vm $k" "there is no such kernel here, see above" ;;
	*) record FAIL "vm $k" "the kernel cannot be prepared, see above" ;;
	esac
done
# shellcheck disable=SC2086 # kernels are words
if [ -n "$built" ] || { prepare module "$top" tree $ready && prepare user "$top" tree; }; then
	for k in $ready; do
		check_kernel "$k" "$@"
		# DKMS belongs to kernels that are installed as packages.
		if [ "$k" != debug ] && wanted dkms "$@"; then
			check_dkms "$k"
		fi
	done
else
	record FAIL vm "the tree does not build for the guests, see above"
fi

passed=$(grep -c '^OK' "$work/results" || true)
failed=$(grep -c '^FAIL' "$work/results" || true)
skipped=$(grep -c '^SKIP' "$work/results" || true)
[ -z "$results" ] || cat "$work/results" >>"$results"
if [ -z "$results" ]; then
	awk -F '\t' '$1 != "OK" { printf "   %-4s %s: %s\n", $1, $2, $3 }' "$work/results"
	line="$passed passed, $failed failed"
	[ "$skipped" -eq 0 ] || line="$line, $skipped skipped"
	echo "$line"
fi
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
