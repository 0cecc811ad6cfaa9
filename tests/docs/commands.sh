#!/bin/sh
# SPDX-License-Identifier: MIT
#
# commands.sh BUILD - runs the command lines that README, documents and manual pages show, with the programs of the build
# directory BUILD; of those that cannot run here it checks that what they name exists.
# commands.sh --place PLACE - runs those of another place (commands.table), in the current directory, as root.
# commands.sh --table - runs nothing, and only checks that the table has what the documents show.
#
# Commands run in the order of their document, in a scratch directory with the tree's files. One that starts txdad, txda-holder
# or txda-cmodel is a server: it stays until the next one takes its place, or the document ends, and must end with status 0.
# The first client of a document that starts no daemon gets one with the demo model. Until a document says "make", there are
# only the programs that "make demo" builds.
set -u
LC_ALL=C
export LC_ALL
docs=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$docs/../.." && pwd)
tmp=$(mktemp -d)
tree=$tmp/tree
socket=$tmp/txda.sock
server='' server_command='' server_where=''
failures=0 ran=0 elsewhere=0

stop_server() {
	[ -n "$server" ] || return 0
	kill "$server" 2>/dev/null
	status=0
	wait "$server" || status=$?
	server=
	[ "$status" -eq 0 ] || fail "$server_where" "$server_command" "exit status $status at its end"
}
finish() {
	trap - EXIT
	[ -z "$server" ] || kill "$server" 2>/dev/null
	wait
	rm -rf "$tmp"
}
trap finish EXIT
trap 'exit 1' INT TERM

# fail WHERE COMMAND WHAT
fail() {
	printf '%s: %s\n    %s\n' "$1" "$2" "$3"
	[ ! -s "$tmp/out" ] || tail -n 20 "$tmp/out" | sed 's/^/    | /'
	: >"$tmp/out"
	failures=$((failures + 1))
}

# What stands in documents for something that each reader has in another place, and what it is here.
here() {
	sed -e "s|/tmp/|$tmp/|g" -e "s|/var/cache/|$tmp/|g" -e "s|/srv/models/|$HOME/models/|g" \
		-e "s|/run/txda/txda.sock|$socket|g" -e "s|/run/user/1000/txda.sock|$socket|g" \
		-e 's|build/check/|build/|g' -e 's|build/check |build |g' -e 's|build/check$|build|'
}
# The same in other places: a user, and a PCI id that no device has.
there() {
	sed -e 's|adduser USER|adduser nobody|' -e 's|VENDOR DEVICE|1af4 ffff|'
}

# A directory as a reader has it: the sources, what was built, and a change that "git diff" shows; a home with models.
scratch() {
	mkdir -p "$tree" "$tmp/home/models" "$tmp/bin" "$tmp/run"
	for file in "$top"/*; do
		[ "${file##*/}" = build ] || ln -s "$file" "$tree/"
	done
	mkdir -p "$tree/build/bin"
	ln -s "$build"/* "$tree/build/" 2>/dev/null
	(cd "$tree/build" && grep -o ' bin/[a-z-]*' "$top/scripts/demo.sh" | while read -r program; do ln -s "$build/$program" bin/; done)
	for model in Qwen3-0.6B Llama-3.1-8B tales; do
		ln -s "$top/tests/models/demo" "$tmp/home/models/$model"
	done
	# Not every machine has a pager.
	command -v less >/dev/null || ln -s "$(command -v cat)" "$tmp/bin/less"
	HOME=$tmp/home PATH=$tmp/bin:$tree/build/bin:$PATH TXDA_SOCKET=$socket TXDA_BACKEND=cmodel XDG_RUNTIME_DIR=$tmp/run B=build
	export HOME PATH TXDA_SOCKET TXDA_BACKEND XDG_RUNTIME_DIR B
	unset MAKEFLAGS MFLAGS MAKELEVEL XDG_CACHE_HOME TXDA_CMODEL TXDA_VISIBLE_DEVICES TXDA_CHIP_MAP CHIP_MAP
	# The build under test is only looked at: what is missing in it is not built in the middle of the tests.
	printf '#!/bin/sh\nexec %s -n "$@"\n' "$(command -v ninja)" >"$tmp/bin/ninja"
	chmod +x "$tmp/bin/ninja"
	cd "$tree" || exit 1
	echo one >changed
	git init -q . && git add changed && echo two >changed || exit 1
}

# After "make".
all_programs() {
	rm -rf "$tree/build"
	ln -s "$build" "$tree/build"
}

# ready COMMAND: a server of COMMAND can be asked.
ready() {
	case $1 in
	*txda-cmodel*) [ -S "$tmp/chips/control.sock" ] ;;
	*) curl -sf -o /dev/null --max-time 5 --unix-socket "$socket" http://localhost/health ;;
	esac
}

# start WHERE COMMAND: a server, which the shell's "&" makes a child with the pid $!
start() {
	stop_server
	server_where=$1
	server_command=$2
	command=$(printf '%s\n' "${2%&}" | here)
	: >"$tmp/out"
	eval "$command &" >"$tmp/log" 2>&1 </dev/null
	server=$!
	tries=0
	until ready "$command"; do
		tries=$((tries + 1))
		if ! kill -0 "$server" 2>/dev/null || [ "$tries" -gt 600 ]; then
			cp "$tmp/log" "$tmp/out"
			fail "$1" "$2" "this server does not become ready"
			kill "$server" 2>/dev/null
			wait "$server"
			server=
			return 1
		fi
		sleep 0.1
	done
}

# run WHERE COMMAND AS INPUT OUTPUT: to its end, with status 0; the output is both streams.
run() {
	printf '%s' "${4:+$4
}" | timeout "${COMMAND_SECONDS:-120}" sh -c "$3" >"$tmp/out" 2>&1
	status=$?
	if [ "$status" -ne 0 ]; then
		fail "$1" "$2" "exit status $status"
	elif grep -q '^{"error":' "$tmp/out"; then
		fail "$1" "$2" "the daemon answers with an error"
	elif [ -n "$5" ] && ! grep -Eq -e "$5" "$tmp/out"; then
		fail "$1" "$2" "its output does not match: $5"
	fi
	ran=$((ran + 1))
}

# run_here WHERE COMMAND AS INPUT OUTPUT
run_here() {
	case $2 in
	*--help* | *--ctl*) ;;
	txdad\ * | build/bin/txdad\ * | *[\ /]txdad\ --* | *txda-holder\ * | *txda-cmodel\ *)
		start "$1" "$2" && ran=$((ran + 1))
		return
		;;
	*txda-run* | *txdactl* | *curl*)
		[ -n "$server" ] || start "$1" "txdad --model demo=tests/models/demo --served-model-name assistant --socket /tmp/txda.sock" || return
		;;
	esac
	run "$1" "$2" "$(printf '%s\n' "$3" | here)" "$4" "$5"
	[ "$2" != make ] || all_programs
}

# exists WHERE COMMAND: of a command that runs elsewhere, the make target, file, program and options
exists() {
	: >"$tmp/out"
	where=$1 shown=$2
	set -f
	# shellcheck disable=SC2086 # words
	set -- ${2#sudo }
	set +f
	case $1 in
	make) echo "$@" -n | timeout 60 xargs env >"$tmp/out" 2>&1 || fail "$where" "$shown" "make knows no such thing" ;; # xargs knows quotes
	sh) [ -f "$2" ] || fail "$where" "$shown" "there is no file $2" ;;
	build/* | scripts/* | tests/*) [ -x "$1" ] || fail "$where" "$shown" "there is no program $1" ;;
	esac
	case ${1##*/} in
	txda*)
		program=$1
		command -v "$program" >/dev/null || fail "$where" "$shown" "there is no program $program"
		for word; do
			case $word in
			--*) "$program" --help 2>&1 | grep -q -e "$word\b" || fail "$where" "$shown" "$program --help does not know $word" ;;
			esac
		done
		;;
	esac
	elsewhere=$((elsewhere + 1))
}

# The documents' names are those that a reader knows, in the order in which he meets them.
all_commands() {
	(cd "$top" && awk -f tests/docs/extract.awk README.md CONTRIBUTING.md scripts/demo.sh docs/*.md docs/man/*.[1-8]) >"$tmp/shown" || failures=1
	(cd "$top" && awk -f tests/docs/table.awk tests/docs/commands.table "$tmp/shown") >"$tmp/commands" || failures=1
}

place=here
case ${1:-} in
--place) place=${2:?names a place of commands.table} ;;
--table)
	all_commands
	exit $failures
	;;
*) build=$(cd "${1:?names the build directory}" && pwd) || exit 1 ;;
esac
all_commands 2>&1
if [ "$place" = here ]; then
	scratch
else
	# apt asks nothing. Root needs no sudo, which would forget that.
	echo 'APT::Get::Assume-Yes "true";' >"$tmp/apt.conf"
	APT_CONFIG=$tmp/apt.conf DEBIAN_FRONTEND=noninteractive COMMAND_SECONDS=1800
	export APT_CONFIG DEBIAN_FRONTEND
	# What several documents show is done once there: what it did stays.
	awk -F "$(printf '\037')" '!shown[$3]++' "$tmp/commands" >"$tmp/once"
	mv "$tmp/once" "$tmp/commands"
	grep "^$place" "$tmp/commands" >/dev/null || {
		echo "no command runs in '$place'"
		exit 1
	}
fi

document=
while IFS=$(printf '\037') read -r at where command as input output <&3; do
	[ "${where%:*}" = "$document" ] || stop_server
	document=${where%:*}
	case $place:$at in
	here:here) run_here "$where" "$command" "$as" "$input" "$output" ;;
	here:*) exists "$where" "$command" ;;
	"$at:$place")
		printf '%s: %s\n' "$where" "$command"
		[ "$(id -u)" -ne 0 ] || as=${as#sudo }
		run "$where" "$command" "$(printf '%s\n' "$as" | there)" "$input" "$output"
		;;
	esac
done 3<"$tmp/commands"
stop_server
echo "$ran commands were run, $elsewhere run elsewhere, $failures failed"
[ "$failures" -eq 0 ] && [ "$ran" -gt 0 ]
