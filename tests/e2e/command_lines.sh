#!/bin/sh
# SPDX-License-Identifier: MIT
#
# command_lines.sh BIN PROGRAM... - every program of the directory BIN has -h, --help, -V and --version, and says in one form what is
# wrong with its command line.
set -eu
bin=$1
shift
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failures=0
fail() {
	echo "FAIL: $*"
	sed 's/^/    | /' "$tmp/out" "$tmp/err"
	failures=$((failures + 1))
}
# run ARGUMENT...: the command $command
run() {
	# shellcheck disable=SC2086 # words
	timeout 60 "$bin/"$command "$@" >"$tmp/out" 2>"$tmp/err" </dev/null && status=0 || status=$?
}
# refuses MESSAGE ARGUMENT...
refuses() {
	message=$1
	shift
	run "$@"
	[ "$status" = "$wrong" ] || fail "$command $*: exit status $status"
	printf "%s: %s\nTry '%s --help'.\n" "${command%% *}" "$message" "$command" | cmp -s - "$tmp/err" ||
		fail "$command $*: not \"$message\""
	[ ! -s "$tmp/out" ] || fail "$command $*: output"
}

# $option: one that needs a value.
for command in "$@" "txda-bench serve" "txda-bench model" "txda-bench device"; do
	wrong=2
	case $command in
	txdad) option=model wrong=78 ;;
	txdad-text) option=config ;;
	txdactl | txda-run) option=socket ;;
	txda-smi | "txda-bench device") option=chip ;;
	txda-bench) option=gen ;;
	"txda-bench serve") option=requests ;;
	"txda-bench model") option="batch" ;;
	txda-compile | txda-cdi) option=output ;;
	txda-verify) option=tp ;;
	txda-decode) option='' ;;
	txda-cmodel) option=chips ;;
	txda-holder) option=max-fds ;;
	txda-mkfw) option=build ;;
	*)
		: >"$tmp/out"
		: >"$tmp/err"
		fail "no row of this test is about $command"
		continue
		;;
	esac
	for help in -h --help --hel; do
		run $help
		[ "$status" = 0 ] && [ ! -s "$tmp/err" ] || fail "$command $help: exit status $status"
		head -n 1 "$tmp/out" | grep -q "^Usage: $command\b" || fail "$command $help"
		grep -q -e '-h\b' "$tmp/out" && grep -q -e '-V\b' "$tmp/out" || fail "$command $help names no -h and -V"
	done
	for version in -V --version; do
		run $version
		[ "$status" = 0 ] && grep -qx "${command%% *} [0-9.]*" "$tmp/out" && [ ! -s "$tmp/err" ] || fail "$command $version"
	done
	refuses "unknown option --hlep; did you mean --help?" --hlep
	refuses "unknown option --no-such-thing" --no-such-thing=1
	refuses "unknown option -Z" -Z
	refuses "--version takes no value" --version=1
	if [ -n "$option" ]; then
		refuses "--$option needs a value" "--$option"
		refuses "--$option needs a value (if it is '--help': --$option=--help)" "--$option" --help
		refuses "--$option needs a value (if it is '-V': --$option=-V)" "--$option" -V
	fi
done

while IFS='|' read -r wrong command words message; do
	# shellcheck disable=SC2086 # words
	refuses "$message" $words
done <<'END'
78|txdad|model|unexpected argument 'model'; a model is given as --model PATH or serve PATH
2|txdactl||no command is given
78|txdad|--model a --socket=|--socket: the value is empty
78|txdad|--model a --host= --port 1|--host: the value is empty
78|txdad|--config=|--config: the value is empty
2|txda-compile|model --output=|--output: the value is empty
2|txda-cmodel|--socket-dir=|--socket-dir: the value is empty
2|txda-bench|--dir=|--dir: the value is empty
2|txdactl|--socket= models|--socket: the value is empty
2|txda-run|--socket= --list|--socket: the value is empty
2|txda-bench serve|--socket= --model a|--socket: the value is empty
2|txdactl|load|there must be one MODEL for 'load'
2|txda-smi|nosuch|unknown command 'nosuch'; commands are dmon, query, topo, events and reset
2|txda-smi|reset|reset: which chip?
2|txda-cdi||no command is given: generate or list
2|txda-compile|model|no output is given: -o CASE
2|txda-compile||no model is given: a directory, a GGUF file or --synthetic NAME
2|txda-verify||MODEL_DIR is missing
2|txda-verify|model|give one of GOLDEN.safetensors, --ppl FILE and --determinism
2|txda-cmodel||--socket-dir is missing
2|txda-cmodel|--chips 0|--chips 0: must be a number from 1 to 64
2|txda-bench serve||--model NAME is missing
2|txda-bench device|--rounds 0|--rounds 0: must be a number from 1 to 100000
2|txda-bench|--gen 0|--gen 0: must be a number from 1 to 256
2|txda-bench serve|--workload none|--workload none: must be random, shared-prefix or multi-turn
2|txda-compile|--tp 0|--tp 0: must be a number from 1 to 4294967295
2|txda-verify|--weights w9|--weights w9: must be keep, bf16, f16, w8 or w4
2|txda-cmodel|--irq intx|--irq intx: must be msix or msi
2|txda-smi|--count 0|--count 0: must be a number from 1 to 1000000000
2|txda-holder|--max-fds x|--max-fds x: must be a number from 0 to 4096
2|txda-holder||no command is given
2|txda-mkfw||FILE is missing
2|txda-mkfw|--carveout 3|--carveout 3: must be a multiple of 2 up to 1048576
2|txda-decode|picture|unexpected argument 'picture'
END
[ "$failures" -eq 0 ] && echo "all checks passed"
