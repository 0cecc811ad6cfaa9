#!/bin/sh
# SPDX-License-Identifier: MIT
#
# stage.sh STAGE RESULTS - run one stage of scripts/check.sh, which lists them, and write what came of it
# into the file RESULTS: a line for each test with OK, FAIL or SKIP, name and reason, separated by tabs.
# What the stage needs is installed already.
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=scripts/limit.sh
. scripts/limit.sh
stage=$1
mkdir -p "${B:=build}"
B=$(cd "$B" && pwd)
jobs=$(nproc 2>/dev/null || echo 2)
results=$2
: >"$results"

# record RESULT NAME [REASON] - RESULT is OK, FAIL or SKIP.
record() {
	printf '%s\t%s\t%s\n' "$1" "$2" "${3:-}" >>"$results"
	printf '   %-4s %s%s\n' "$1" "$2" "${3:+: $3}"
}

# until_over COMMAND... - run it until ten minutes after the last may begin; then it is stopped, with exit status 124.
until_over() {
	if [ -n "${CHECK_UNTIL:-}" ]; then
		timeout -s TERM $((CHECK_UNTIL + 600 - $(date +%s))) "$@"
	else
		"$@"
	fi
}

# tally STAGE LOG [NOTE] - add what a meson test run wrote into its testlog.json, one object a line;
# NOTE goes with what passed.
tally() {
	awk -v stage="$1" -v note="${3:-}" -v OFS='\t' '
	function field(key,   at, s) {
		at = index($0, "\"" key "\": \"")
		if (!at)
			return ""
		s = substr($0, at + length(key) + 5)
		# Quotes inside of a string are escaped, so this ends at the right one.
		return substr(s, 1, index(s, "\", \"") - 1)
	}
	{
		result = field("result")
		if (result == "" || result == "INTERRUPT")
			next
		name = field("name")
		reason = field("stdout")
		sub(/(\\n)+$/, "", reason)
		sub(/.*\\n/, "", reason)
		if (result == "OK" || result == "EXPECTEDFAIL")
			print "OK", stage ": " name, note
		else if (result == "SKIP")
			print "SKIP", stage ": " name, reason == "" ? "the test gave no reason" : reason
		else
			print "FAIL", stage ": " name, result
	}' "$2" >>"$results"
}

# try_again LOG - the tests of LOG that deserve another try, alone: those that failed on a machine that was
# busy with others. What a sanitizer reports is never forgotten: a test that shows a report gets no other try,
# and one that a process wrote into a file fails the stage (sanitizer_reports). They leave LOG.
try_again() {
	again='"result": "(TIMEOUT|FAIL)"'
	report='(Address|Leak|Thread|UndefinedBehavior)Sanitizer|runtime error:'
	grep -E "$again" "$1" | grep -v -E "$report" | sed -n 's/.*"name": "[^"]* \/ \([^"]*\)".*/\1/p'
	awk -v again="$again" -v report="$report" '$0 !~ again || $0 ~ report' "$1" >"$1.rest"
	mv "$1.rest" "$1"
}

# run_meson STAGE DIR TEST-ARGUMENTS -- SETUP-ARGUMENTS
run_meson() {
	name=$1
	dir=$2
	shift 2
	tests=
	while [ "$1" != -- ]; do
		tests="$tests $1"
		shift
	done
	shift
	if [ ! -e "$dir/build.ninja" ]; then
		if ! meson setup "$dir" "$@" >"$B/setup-$name.log" 2>&1; then
			cat "$B/setup-$name.log"
			record FAIL "$name: configure" "meson setup failed, see above"
			return
		fi
	fi
	# What only tests need is a target of its own in newer mesons.
	case $tests in
	*" --suite "*) needed=$(python3 scripts/test-targets.py "$dir" "$(echo "$tests" | sed 's/.* --suite \([^ ]*\).*/\1/')") ;;
	*) needed="all $(ninja -C "$dir" -t targets all | sed -n 's/^\(meson-test-prereq\): .*/\1/p')" ;;
	esac
	# Builds give way to tests of other lanes.
	# shellcheck disable=SC2086 # words
	if ! nice ninja -C "$dir" -j "$jobs" $needed >"$B/build-$name.log" 2>&1; then
		grep -E -A 8 'error:|FAILED|undefined' "$B/build-$name.log" | head -n 60 || tail -n 40 "$B/build-$name.log"
		record FAIL "$name: build" "does not build, see above"
		return
	fi
	echo '   built'
	if late 0; then
		record SKIP "$name: tests" "built too late for CHECK_WITHIN"
		return
	fi
	rm -f "$dir/meson-logs/testlog.json"
	over=
	# shellcheck disable=SC2086 # tests are words
	until_over $run meson test -C "$dir" --no-rebuild --print-errorlogs --num-processes "$jobs" $tests || {
		status=$?
		printf '   meson test: exit status %d\n' $status
		[ $status -ne 124 ] || over=1
	}
	[ -z "$over" ] || record SKIP "$name: the tests that are left" "CHECK_WITHIN is over"
	if [ -s "$dir/meson-logs/testlog.json" ]; then
		cp "$dir/meson-logs/testlog.json" "$B/testlog-$name.json"
		again=
		[ -n "$over" ] || again=$(try_again "$B/testlog-$name.json")
		tally "$name" "$B/testlog-$name.json"
		if [ -n "$again" ]; then
			printf "   once more, alone: %s\n" "$(echo "$again" | tr "\n" " ")"
			rm -f "$dir/meson-logs/testlog.json"
			# shellcheck disable=SC2086 # names are words
			$run meson test -C "$dir" --no-rebuild --print-errorlogs --num-processes 1 $tests $again ||
				printf '   meson test: exit status %d\n' $?
			for test in $again; do
				grep -q "\"name\": \"[^\"]* / $test\"" "$dir/meson-logs/testlog.json" ||
					record FAIL "$name: $test" "failed, and did not run again"
			done
			tally "$name" "$dir/meson-logs/testlog.json" "failed at first"
		fi
	else
		record FAIL "$name: tests" "meson test left no log"
	fi
}

# Kernels that nothing here can run are compiled in stage user alone.
avx512=$(sh scripts/avx512.sh)

# How the sanitizers' builds are configured. Their reports name functions and lines (-g1); types of variables, which no
# report has, take long to compile.
sanitized="-Dtests=true -Dwerror=true -Dbuildtype=debugoptimized -Dc_args=-g1 -Db_lundef=false"

# The sanitizers' shadow memory needs an address layout without the widest randomisation.
run=
fixed_layout() {
	run=
	if setarch "$(uname -m)" -R true 2>/dev/null; then
		run="setarch $(uname -m) -R"
	fi
}

# The OpenAI client for the end-to-end tests; they skip with a reason where it cannot be had.
node_client() {
	export TXDA_NODE_MODULES="$B/node/node_modules"
	[ -e "$TXDA_NODE_MODULES/openai/package.json" ] && [ -e "$TXDA_NODE_MODULES/undici/package.json" ] && return
	mkdir -p "$B/node"
	if npm install --prefix "$B/node" --no-audit --no-fund --no-save --loglevel=error --fetch-retries=1 --fetch-timeout=30000 \
		openai@6 undici@6 >"$B/npm.log" 2>&1; then
		printf '   npm: openai@6 undici@6 in %s\n' "$B/node"
	else
		tail -n 5 "$B/npm.log"
		printf '   npm could not fetch openai@6 and undici@6, all of it is in %s\n' "$B/npm.log"
	fi
}

# sanitizer_reports STAGE - what processes wrote into $reports, those too whose output no test looks at.
sanitizer_reports() {
	for report in "$reports".*; do
		[ -e "$report" ] || return 0
		head -n 60 "$report"
		record FAIL "$1: report of a sanitizer" "$report"
	done
}

check_user() {
	echo "user space: gcc, warnings are errors, every test"
	run=
	run_meson user "$B/check" -- -Dtests=true -Dwerror=true
}

check_asan() {
	echo "AddressSanitizer and UndefinedBehaviorSanitizer: clang"
	fixed_layout
	reports=$B/report-asan
	rm -f "$reports".*
	export ASAN_OPTIONS="abort_on_error=1:detect_stack_use_after_return=1:allocator_may_return_null=1:log_path='$reports'"
	export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1:log_path='$reports'"
	export OPS_STEPS=6
	# shellcheck disable=SC2086 # words
	CC=clang run_meson asan "$B/asan" --no-suite slow --no-suite uapi --timeout-multiplier 2 -- \
		"$avx512" $sanitized -Db_sanitize=address,undefined
	unset ASAN_OPTIONS UBSAN_OPTIONS OPS_STEPS
	sanitizer_reports asan
}

check_tsan() {
	echo "ThreadSanitizer: clang, suite threads"
	fixed_layout
	reports=$B/report-tsan
	rm -f "$reports".*
	export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:log_path='$reports'"
	# shellcheck disable=SC2086 # words
	CC=clang run_meson tsan "$B/tsan" --suite threads --timeout-multiplier 2 -- \
		"$avx512" $sanitized -Db_sanitize=thread
	unset TSAN_OPTIONS
	sanitizer_reports tsan
}

# The kernels of a processor that this machine does not have.
check_arm() {
	echo "ARM: the compute kernels and two models, in an emulator of its instructions"
	run=
	if [ "$(uname -m)" = aarch64 ]; then
		record SKIP arm "this machine is one: stage user has run them"
		return
	fi
	status=0
	why=$(sh scripts/arm-root.sh "$B/arm") || status=$?
	if [ $status -ne 0 ]; then
		printf '%s\n' "$why"
		record "$([ $status -eq 77 ] && echo SKIP || echo FAIL)" arm "$(printf '%s\n' "$why" | tail -n 1)"
		return
	fi
	# Threads that wait for each other's memory take the emulator long.
	export OPS_PATHS="neon neonbf16" OPS_STEPS=7 TXDA_CMODEL=cores=1
	run_meson arm "$B/arm/build" --suite arm --timeout-multiplier 20 -- \
		--cross-file "$B/arm/cross.ini" -Dtests=true -Dwerror=true
	unset OPS_PATHS OPS_STEPS TXDA_CMODEL
}

# dkms_takes RELEASE - whether DKMS builds the module for that kernel.
dkms_takes() {
	printf '%s\n' "$1" | grep -Eq "$(sed -n 's/^BUILD_EXCLUSIVE_KERNEL="\(.*\)"$/\1/p' dkms.conf)"
}

check_module() {
	echo "kernel module: txda.ko with W=1"
	dirs=$(sh scripts/kernel-headers.sh "$B/kernel-headers")
	for dir in /lib/modules/*/build; do
		[ -e "$dir/.config" ] || continue
		if grep -q '^CONFIG_DRM_ACCEL=y' "$dir/.config"; then
			dirs="$dir $dirs"
		else
			record SKIP "module: $dir" "this kernel is built without CONFIG_DRM_ACCEL"
		fi
	done
	if [ -z "$dirs" ]; then
		record SKIP module "no kernel headers here, and none could be fetched"
		return
	fi
	sparse_dir=
	for dir in $dirs; do
		release=$(cat "$dir/include/config/kernel.release")
		# The one whose header package has all that sparse's part of kbuild asks for.
		flags=W=1 what="module: $release"
		case $release in
		6.12.*)
			sparse_dir=$dir
			! command -v sparse >/dev/null || flags="W=1 C=2" what="module: $release, and through sparse"
			;;
		esac
		if B=$B KFLAGS=$flags sh scripts/module.sh "$dir" >/dev/null; then
			record OK "$what"
			# Debian's newest may be newer than this tree.
			dkms_takes "$release" ||
				record SKIP "module: $release by DKMS" "it builds, and dkms.conf leaves it out"
		else
			record FAIL "$what" "see above"
		fi
	done
	for release in 6.11.9 6.13.1 7.1.4 8.0.1; do
		! dkms_takes "$release" ||
			record FAIL "module: $release by DKMS" "dkms.conf accepts it, and nobody has built it"
	done
	if [ -z "$sparse_dir" ]; then
		record SKIP "module: sparse" "no headers of 6.12 here"
	elif ! command -v sparse >/dev/null; then
		record SKIP "module: sparse" "sparse is not installed"
	fi
}

# explained STATUS NAME RESULTS - a script that ended with STATUS has said why in RESULTS, or it failed.
explained() {
	case $1 in
	0) ;;
	77) grep -q '^SKIP' "$3" || printf 'SKIP\t%s\tit cannot be done here, see above\n' "$2" >>"$3" ;;
	*) grep -q '^FAIL' "$3" || printf 'FAIL\t%s\texit status %s, see above\n' "$2" "$1" >>"$3" ;;
	esac
}

check_vm() {
	echo "virtual machines: the module, chips as PCI devices, user space on top"
	status=0
	sh tests/vm/check.sh -r "$results" || status=$?
	explained $status vm "$results"
}

# static_check NAME COMMAND... - skipped where COMMAND is not installed, or when it ends with exit status 77
# and has said why in its last line.
static_check() {
	name=$1
	shift
	if ! command -v "$1" >/dev/null 2>&1; then
		record SKIP "static: $name" "$1 is not installed"
		return
	fi
	status=0
	output=$("$@" 2>&1) || status=$?
	case $status in
	0) record OK "static: $name" ;;
	77) record SKIP "static: $name" "$(printf '%s\n' "$output" | tail -n 1)" ;;
	*)
		printf '%s\n' "$output"
		record FAIL "static: $name" "see above"
		;;
	esac
}

check_static() {
	echo "units, scripts, licences; udev rules are verified in virtual machines, by the udev of Debian 13"
	if command -v systemd-analyze >/dev/null; then
		static_check "systemd units" sh scripts/verify-units.sh
	else
		record SKIP "static: systemd units" "systemd-analyze is not installed"
	fi
	static_check "shell scripts" shellcheck -x -e SC1091 scripts/*.sh packaging/*.sh packaging/container/*.sh tests/container/*.sh tests/vm/*.sh \
		tests/vm/guest/boot tests/vm/guest/lib.sh tests/vm/guest/packages.sh \
		tests/vm/guest/run-cases tests/vm/guest/systemd-setup tests/vm/guest/vmhost
	# They run under the guest's own shells, and read lines of which they want some words.
	static_check "shell scripts in virtual machines" shellcheck -x -S warning -e SC1091,SC2034,SC2154,SC3044,SC3045 \
		tests/vm/cases/*.sh
	static_check "licence headers" sh scripts/verify-spdx.sh
	static_check "one version" sh scripts/verify-version.sh
	static_check "layout of C files" sh scripts/verify-format.sh
	static_check "lists and tables in comments" sh scripts/verify-comments.sh
	static_check "checkpatch" sh scripts/checkpatch.sh "$B/kernel-scripts"
	static_check "options of the driver" sh scripts/verify-kconfig.sh "$B/kernel-headers"
	static_check "coccicheck" sh scripts/coccicheck.sh "$B/kernel-scripts"
	static_check "commands of the documents" sh tests/docs/commands.sh --table
	static_check "what a folder may know" python3 scripts/verify-includes.py
	static_check "functions that only tests call" python3 scripts/verify-unused.py
	if promtool=$(sh scripts/promtool.sh "$B/promtool"); then
		static_check "alert rules" "$promtool" check rules packaging/prometheus/txda.rules.yml
		static_check "alert rules, when they fire" "$promtool" test rules tests/monitoring/rules.test.yml
	else
		record SKIP "static: alert rules" "no promtool here, and none could be fetched"
	fi
}

# Both suites at once: each often waits for its packages.
check_bare() {
	echo "README on bare Debian 12 and 13: demo, packages, removal"
	: >"$results.13"
	sh scripts/bare.sh -r "$results.13" trixie >"$B/bare-13.log" 2>&1 &
	other=$!
	trap 'kill "$other" 2>/dev/null; wait "$other"; exit 130' HUP INT TERM
	status=0 status_13=0
	sh scripts/bare.sh -r "$results" bookworm || status=$?
	wait "$other" || status_13=$?
	cat "$B/bare-13.log"
	explained $status "bare bookworm" "$results"
	explained $status_13 "bare trixie" "$results.13"
	cat "$results.13" >>"$results"
}

if late 0; then
	record SKIP "$stage" "not begun within CHECK_WITHIN"
	exit 0
fi
case $stage in
user | asan | tsan) node_client ;;
esac
start=$(date +%s)
"check_$stage"
# Where the time of a whole run goes: that of processors is added up over all that the stage has waited for.
times >"$B/times-$stage"
awk -v start="$start" -v now="$(date +%s)" 'function seconds(t) { return substr(t, 1, index(t, "m") - 1) * 60 + substr(t, index(t, "m") + 1) }
	{ used += seconds($1) + seconds($2) }
	END { printf "   took %d s, and %d s of processors\n", now - start, used }' "$B/times-$stage"
