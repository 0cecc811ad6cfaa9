#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check.sh [STAGE...] - build and test everything; stages: user asan tsan arm static vm module bare.
#
#   user     user space with gcc, warnings are errors, every test
#   asan     clang, AddressSanitizer and UndefinedBehaviorSanitizer, every test but those of suites slow and uapi
#   tsan     clang, ThreadSanitizer, the tests of suite "threads"
#   arm      the kernels for ARM's NEON and two models, under QEMU
#   static   units and scripts through the tools that know them, the driver through checkpatch and coccicheck, its options
#   vm       txda.ko and user space on real kernels, in virtual machines with chips of the device model
#   module   txda.ko with W=1 for each supported kernel, and through sparse
#   bare     what README tells a newcomer to type, on bare Debian 12 and 13: demo; packages, lintian, upgrade, removal; the
#            packages of 13 in a virtual machine with systemd and a chip
#
# Without arguments: all of them. Virtual machines and installing often wait, so they run beside the others. What a
# stage prints is shown when it ends (one stage alone: as it goes); it stays in build/stages/STAGE.log.
# With CHECK_WITHIN=MINUTES nothing begins after so many minutes (stages, virtual machines, packages on a bare Debian), and
# tests that still run ten minutes later are stopped: both are reported as skipped.
# The last line is "N passed, N failed" with ", N skipped" where tests were skipped; each failure
# and each skip is named above it with its reason. Exit status 1 when anything failed.
set -eu
cd "$(dirname "$0")/.."
mkdir -p "${B:=build}"
B=$(cd "$B" && pwd)
export B
start=$(date +%s)
CHECK_UNTIL=${CHECK_WITHIN:+$((start + CHECK_WITHIN * 60))}
export CHECK_UNTIL
stages=$B/stages

elapsed() {
	now=$(date +%s)
	printf '%d:%02d' $(((now - start) / 60)) $(((now - start) % 60))
}

say() {
	printf '\n== [%s] %s\n' "$(elapsed)" "$1"
}

# The wanted stages of "$@", in that order.
among() {
	for s in "$@"; do
		case " $wanted " in *" $s "*) printf '%s ' "$s" ;; esac
	done
}

# Starts the wanted stages of "$@", one after the other, in a session of their own; its leader is noted.
# A stage that could not say how it ended has failed.
lane() {
	lane=$(among "$@")
	[ -n "$lane" ] || return 0
	# shellcheck disable=SC2086 # words
	(
		# shellcheck disable=SC2016 # for the inner shell
		setsid sh -c 'echo $$ >>"$B/stages/leaders"
			for s in "$@"; do
				date +%s >"$B/stages/$s.begun"
				status=0
				sh scripts/stage.sh "$s" "$B/stages/$s.results" >"$B/stages/$s.log" 2>&1 || status=$?
				echo $status >"$B/stages/$s.ended"
			done' lane $lane || true
		for s in $lane; do
			[ -e "$stages/$s.ended" ] || echo 1 >"$stages/$s.ended"
		done
	) &
}

# shellcheck disable=SC2317 # reached by the trap
stop_lanes() {
	trap - HUP INT TERM
	while read -r leader; do
		kill -s TERM -- "-$leader" 2>/dev/null || true
	done <"$stages/leaders"
	wait
	exit 130
}

# A line that says what runs and how far it is.
still_running() {
	printf '   [%s]' "$(elapsed)"
	for s in $wanted; do
		if [ -e "$stages/$s.begun" ] && [ ! -e "$stages/$s.ended" ]; then
			printf '  %s: %s' "$s" "$(tail -n 1 "$stages/$s.log" | tr -cd '[:print:]' | sed 's/^ *//' | cut -c 1-60)"
		fi
	done
	printf '\n'
}

# Shows stages as they end.
follow() {
	left=$wanted
	ticks=0
	while [ -n "$left" ]; do
		sleep 1
		ticks=$((ticks + 1))
		[ $((ticks % 60)) -ne 0 ] || still_running
		after=
		for s in $left; do
			if [ -e "$stages/$s.ended" ]; then
				say "$s"
				cat "$stages/$s.log" || true
			else
				after="$after $s"
			fi
		done
		left=${after# }
	done
}

wanted=${*:-user asan tsan arm static vm module bare}
for s in $wanted; do
	case $s in
	user | asan | tsan | arm | static | vm | module | bare) ;;
	*)
		sed -n '4,22s/^# \{0,1\}//p' "$0"
		exit 2
		;;
	esac
done
more=$(among vm module bare)
echo "make check installs what tests need, builds, and runs them: $wanted"
sh scripts/deps.sh build check
# shellcheck disable=SC2086 # words
[ -z "$more" ] || sh scripts/deps.sh $more || echo "Some packages are missing: stages that need them are skipped."
rm -rf "$stages"
mkdir -p "$stages"
: >"$stages/leaders"
case $wanted in
*" "*)
	trap stop_lanes HUP INT TERM
	# The longest last, as the limit may stop it.
	lane user static tsan arm asan
	lane vm module bare
	follow
	;;
*)
	say "$wanted"
	status=0
	sh scripts/stage.sh "$wanted" "$stages/$wanted.results" || status=$?
	echo $status >"$stages/$wanted.ended"
	;;
esac

# A stage that ends early has not said all.
for s in $wanted; do
	[ "$(cat "$stages/$s.ended")" -eq 0 ] ||
		printf 'FAIL\t%s\tthe stage ended early, see above\n' "$s" >>"$stages/$s.results"
	cat "$stages/$s.results"
done >"$stages/results"
passed=$(grep -c '^OK' "$stages/results" || true)
failed=$(grep -c '^FAIL' "$stages/results" || true)
skipped=$(grep -c '^SKIP' "$stages/results" || true)

say "done"
# What passed at its second try is named, too.
awk -F '\t' '$1 != "OK" || /at first/ { printf "   %-4s %s: %s\n", $1, $2, $3 }' "$stages/results"
line="$passed passed, $failed failed"
[ "$skipped" -eq 0 ] || line="$line, $skipped skipped"
echo "$line" >"$stages/summary"
echo "$line"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
