#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check.sh [-1] [-k "K..."] [-r FILE] [-j N] [-B] [-L] [CASE...] - the test cases (all, or those whose names
# begin so) in virtual machines, on each kernel K (6.12 and newest).
#
#   -1        what each change is tested with: cases with level=check, shortened, in one machine with the newest kernel
#   -r FILE   append the results there: OK, FAIL or SKIP, name, reason, seconds, separated by tabs
#   -j N      so many machines at once (one for each processor)
#   -B        the tree is built already
#   -L        storms (resets, removals, reloads) in full, not a tenth of them
#   -t DIR, -M PROGRAM   as for run.sh
#
# The header of a case, cases/NN-name.sh, says what machine it wants:
#   # vm: mode=fast|systemd chips=N dram=4G irq=msi|msix mem=1G root=base|full plug=now|later cpus=turns|parallel
#         append=KERNEL-ARGUMENT+KERNEL-ARGUMENT timeout=SECONDS kernels=6.12,7.2 about=driver|chip|user level=check|full
#   # not elsewhere: why kernels= leaves out others, where they are skipped
# Without -L and without being named, what does not depend on the kernel runs on the last of several only: cases about
# user space, and about what the driver does with the chip alone.
# Cases that want the same machine share a boot; after one that fails those that follow get another. With -1 all share
# the default machine. A case that was to run and has no result fails. Exit status 77 when there can be no machine here
# at all.
set -eu
# shellcheck source=tests/vm/rig.sh
. "$(dirname "$0")/rig.sh"

kernels="6.12 newest" results='' built='' stage='' model='' storms='' level=full
jobs=$(nproc 2>/dev/null || echo 2)
while getopts 1k:r:j:BLt:M: option; do
	case $option in
	1) level=check kernels=newest ;;
	k) kernels=$OPTARG ;;
	r) results=$OPTARG ;;
	j) jobs=$OPTARG ;;
	B) built=1 ;;
	L) storms=long ;;
	t) stage=$OPTARG built=1 ;;
	M) model=$OPTARG ;;
	*)
		sed -n '4,24s/^# \{0,1\}//p' "$0"
		exit 2
		;;
	esac
done

# Machines, builds and downloads are a process group of their own, which a signal ends as a whole: in
# the background the shell has children ignore Ctrl-C. They end before their directory goes.
if [ -z "${TXDA_VM_WORK:-}" ]; then
	TXDA_VM_WORK=$(mktemp -d "${TMPDIR:-/tmp}/txda-vm-check.XXXXXX")
	export TXDA_VM_WORK
	# shellcheck disable=SC2317 # reached by the trap
	end_group() {
		kill -s TERM -- "-$group" 2>/dev/null || return 0
		tries=300
		while [ "$tries" -gt 0 ] && kill -s 0 -- "-$group" 2>/dev/null; do
			tries=$((tries - 1))
			sleep 0.1
		done
		kill -s KILL -- "-$group" 2>/dev/null || true
	}
	group=
	trap '[ -z "$group" ] || end_group; rm -rf "$TXDA_VM_WORK"' EXIT
	trap 'exit 130' HUP INT TERM
	setsid sh "$0" "$@" &
	group=$!
	status=0
	wait $group || status=$?
	exit $status
fi
shift $((OPTIND - 1))
work=$TXDA_VM_WORK
: >"$work/results"
: >"$work/planned"
last=${kernels##* }

# record RESULT NAME [REASON [SECONDS]] - RESULT is OK, FAIL or SKIP.
record() {
	printf '%s\t%s\t%s\t%s\n' "$1" "$2" "${3:-}" "${4:-}" >>"$work/results"
	[ "$1" = OK ] || printf '   %-4s %s%s\n' "$1" "$2" "${3:+: $3}"
}

# The machine that a case wants, as options of run.sh.
machine_of() {
	memory=1G
	[ "$2" != debug ] || memory=3G
	if [ $level = check ]; then
		echo "-n 2 -i msi -m $memory -a txda.storms=check"
		return
	fi
	options="-n $(of "$1" chips 2) -c $(of "$1" dram 4G) -i $(of "$1" irq msi) -m $(of "$1" mem $memory) -R $(of "$1" root base)"
	[ "$(of "$1" mode fast)" = fast ] || options="$options -s"
	for word in $(of "$1" append "" | tr + ' ') ${storms:+txda.storms=$storms}; do
		options="$options -a $word"
	done
	[ "$(of "$1" plug now)" = now ] || options="$options -p"
	[ "$(of "$1" cpus turns)" = turns ] || options="$options -P"
	echo "$options"
}

# wanted CASE K [PREFIX...]
wanted() {
	name=$1 k=$2
	shift 2
	if [ $# -eq 0 ]; then
		[ "$level" = full ] || [ "$(of "$name" level full)" = check ] || return 1
		[ -n "$storms" ] || [ "$k" = "$last" ] || [ "$(of "$name" about driver)" = driver ]
		return
	fi
	for prefix; do
		case $name in "$prefix"*) return 0 ;; esac
	done
	return 1
}

# runs_on CASE K - the kernel is one of the case's, by its name or its version.
runs_on() {
	version=$(cut -d . -f 1,2 "$vm/kernel/$2/release")
	case ,$(of "$1" kernels "$2"), in *",$2,"* | *",$version,"*) return 0 ;; esac
	return 1
}

# plan K [CASE...] - the machines of kernel K: kernel, options of run.sh, names of cases, separated by tabs; more cases first.
plan() {
	for file in "$top"/tests/vm/cases/*.sh; do
		name=$(basename "$file" .sh)
		wanted "$name" "$@" || continue
		if runs_on "$name" "$1"; then
			echo "vm $1: $name" >>"$work/planned"
			printf '%s\t%s\n' "$(machine_of "$name" "$1")" "$name"
		elif [ "$(of "$name" kernels '')" != debug ]; then
			record SKIP "vm $1: $name" "$(sed -n 's/^# not elsewhere: //p' "$file")" >&2
		fi
	done | awk -F '\t' -v OFS='\t' -v k="$1" '
		{ count[$1]++; names[$1] = names[$1] " " $2 }
		END { for (m in names) print count[m], k, m, substr(names[m], 2) }'
}

# machine NUMBER KERNEL OPTIONS CASES - run the cases in one machine, or in as many as it takes when they fail.
machine() {
	dir=$work/machine$1 k=$2 options=$3
	mkdir -p "$dir"
	# What a debug kernel watches costs time.
	slow=1
	[ "$k" != debug ] || slow=5
	for name in $4; do
		echo "$name $(($(of "$name" timeout 900) * slow))"
	done >"$dir/list"
	while [ -s "$dir/list" ]; do
		boot "$1" | sed -u "s/^/   $k.$1: /"
	done
}

# boot NUMBER - run the cases in $dir/list in one machine; those that it did not come to stay in the list.
boot() {
	rm -rf "$dir/files"
	mkdir "$dir/files"
	: >"$dir/files/events"
	# shellcheck disable=SC2086 # options are words
	sh "$top/tests/vm/run.sh" -k "$k" $options ${stage:+-t "$stage"} ${model:+-M "$model"} -l $((300 * slow)) -C "$dir/list" \
		-o "$dir/files" 2>&1 || true
	begun='' ended=0
	while read -r event result seconds name reason; do
		case $event in
		begin) begun=$seconds ;;
		end)
			record "$result" "vm $k: $name" "$reason" "$seconds"
			sed -i "/^$name /d" "$dir/list"
			begun='' ended=1
			;;
		esac
	done <"$dir/files/events"
	[ -n "$begun" ] || [ $ended -eq 0 ] || return 0
	tail -qn 60 "$dir/files/console.log" "$dir/files/qemu.log" 2>/dev/null || true
	if [ -n "$begun" ]; then
		complaint=$(grep -E -f "$top/tests/vm/guest/klog-bad" "$dir/files/console.log" 2>/dev/null |
			grep -v -E -f "$top/tests/vm/guest/klog-allowed" | head -n 1)
		record FAIL "vm $k: $begun" "the machine died or hung${complaint:+; kernel: $complaint}"
		sed -i "/^$begun /d" "$dir/list"
	else
		while read -r name _; do
			record FAIL "vm $k: $name" "the machine did not come up"
		done <"$dir/list"
		: >"$dir/list"
	fi
}

# take - the next line of the list of jobs, which several take from.
take() {
	exec 7>"$work/lock"
	flock 7
	head -n 1 "$work/jobs" | grep . && sed -i 1d "$work/jobs"
}

worker() {
	while job=$(take); do
		IFS=$(printf '\t') read -r number k options cases <<-END
			$job
		END
		machine "$number" "$k" "$options" "$cases"
	done
}

prepare() {
	sh "$top/tests/vm/prepare.sh" "$@"
}

prepare root base
prepare qemu
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
status=0
# shellcheck disable=SC2086 # kernels are words
[ -n "$built" ] || prepare stage $level $ready || status=$?
case $status in
0)
	for k in $ready; do
		plan "$k" "$@"
	done | sort -rn | cut -f 2- | awk '{ print NR "\t" $0 }' >"$work/jobs"
	i=0
	while [ $i -lt "$jobs" ]; do
		i=$((i + 1))
		worker &
	done
	wait
	# A worker may have died.
	while read -r name; do
		cut -f 2 "$work/results" | grep -qxF "$name" || record FAIL "$name" "it was not run"
	done <"$work/planned"
	;;
77) exit 77 ;;
*) record FAIL vm "the tree does not build for the guests, see above" ;;
esac

passed=$(grep -c '^OK' "$work/results" || true)
failed=$(grep -c '^FAIL' "$work/results" || true)
skipped=$(grep -c '^SKIP' "$work/results" || true)
if [ -n "$results" ]; then
	cat "$work/results" >>"$results"
else
	awk -F '\t' '$1 != "OK" { printf "   %-4s %s: %s\n", $1, $2, $3 }' "$work/results"
	echo "$passed passed, $failed failed, $skipped skipped"
fi
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
