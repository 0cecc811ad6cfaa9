#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check.sh [-k "K..."] [-r FILE] [-j N] [-B] [-L] [CASE...] - the test cases (all, or those whose names
# begin so) in virtual machines, on each kernel K (6.12 and 7.2).
#
#   -r FILE   append the results there: OK, FAIL or SKIP, name, reason, separated by tabs
#   -j N      so many machines at once (one for each processor: machines that wait for one use it, too)
#   -B        the tree is built already
#   -L        storms (resets, removals, reloads) in full, not a tenth of them
#   -t DIR, -M PROGRAM   as for run.sh
#
# The header of a case, cases/NN-name.sh, says what machine it wants:
#   # vm: mode=fast|systemd chips=N dram=4G irq=msix|msi mem=1G plug=now|later timeout=SECONDS kernels=6.12,7.2
#         append=KERNEL-ARGUMENT+KERNEL-ARGUMENT about=driver|chip|user
# Without -L and without being named, what does not depend on the kernel runs on the last of several only: cases about
# user space, about what the driver does with the chip alone, and DKMS.
# Cases that want the same one share a boot. The output is like that of scripts/check.sh; exit status 77 when there
# can be no machine here at all.
set -eu
# shellcheck source=tests/vm/rig.sh
. "$(dirname "$0")/rig.sh"

kernels="6.12 7.2" results='' built='' stage='' model='' long=''
jobs=$(nproc 2>/dev/null || echo 2)
while getopts k:r:j:BLt:M: option; do
	case $option in
	k) kernels=$OPTARG ;;
	r) results=$OPTARG ;;
	j) jobs=$OPTARG ;;
	B) built=1 ;;
	L) long=1 ;;
	t) stage=$OPTARG built=1 ;;
	M) model=$OPTARG ;;
	*)
		sed -n '4,20s/^# \{0,1\}//p' "$0"
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
mkdir -p "$work/machines"
: >"$work/results"
: >"$work/jobs"

# The machine that a case wants, as options of run.sh.
machine_of() {
	memory=1G
	[ "$2" != debug ] || memory=3G
	options="-n $(of "$1" chips 1) -c $(of "$1" dram 4G) -i $(of "$1" irq msix) -m $(of "$1" mem $memory)"
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

# plan K [CASE...] - the machines of kernel K, as lines of the list of jobs (see job.sh), each after
# the seconds that its cases may take together.
plan() {
	k=$1
	shift
	for file in "$top"/tests/vm/cases/*.sh; do
		name=$(basename "$file" .sh)
		wanted "$name" "$@" || continue
		[ -n "$long$*" ] || [ "$(of "$name" about driver)" = driver ] || [ "$k" = "$last" ] || continue
		case ,$(of "$name" kernels "$k"), in
		*",$k,"*) printf '%s\t%s\t%s\n' "$(of "$name" timeout 120)" "$(machine_of "$name" "$k")" "$name" ;;
		esac
	done | awk -F '\t' -v OFS='\t' -v k="$k" '
		{ seconds[$2] += $1; names[$2] = names[$2] " " $3 }
		END { for (m in names) print seconds[m], k, m, substr(names[m], 2) }'
	# DKMS belongs to kernels that are installed as packages.
	[ -n "$long$*" ] || [ "$k" = "$last" ] || return 0
	if [ "$k" != debug ] && wanted dkms "$@"; then
		printf '%s\t%s\t%s\t%s\n' 300 "$k" dkms dkms
	fi
}

# pool N LIST - do the jobs of LIST, N at once.
pool() {
	xargs -d '\n' -r -n 1 -P "$1" -a "$2" sh "$top/tests/vm/job.sh" ${stage:+-t "$stage"} ${model:+-M "$model"} ||
		record FAIL vm "not all machines were run, see above"
}

last=${kernels##* }

prepare() {
	sh "$top/tests/vm/prepare.sh" "$@"
}

# Packages of kernels come while the root file system is made, user space is built while modules are.
# What goes wrong in the background is tried again in its turn, and told then.
for k in $kernels; do
	prepare fetch "$k" || true
done >"$work/fetch.log" 2>&1 &
fetch=$!
prepare root
prepare supervise
user=
if [ -z "$built" ]; then
	prepare user "$top" tree &
	user=$!
fi
wait $fetch
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
if { [ -n "$built" ] || prepare module "$top" tree $ready; } && { [ -z "$user" ] || wait $user; }; then
	for k in $ready; do
		plan "$k" "$@"
	done | sort -rn | cut -f 2- >"$work/jobs"
	: >"$work/again"
	pool "$jobs" "$work/jobs"
	# Alone, one after the other.
	mv "$work/again" "$work/jobs"
	pool 1 "$work/jobs"
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
