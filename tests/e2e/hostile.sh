#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Checkpoints whose owners mean harm. What a model is compiled to is served as no other's; links do
# not show what the owner may not read; files that are rewritten, cut and replaced while they are
# compiled and loaded cost an error at most; the cache keeps its limit. TXDA_COMPILE names the
# compiler. RUNS=200 for each way of changing files; with root, models belong to two other users.
set -eu
. "$(dirname "$0")/lib.sh"

TXDA_CMODEL=chips=1,mem=512M
export TXDA_CMODEL
: "${RUNS:=5}"
CACHE_DIRECTORY=$tmp/cache
evil=$tmp/evil good=$tmp/good
chmod 755 "$tmp"

# own USER PATH...: gives it to another user, where that can be done
own() {
	[ "$(id -u)" -ne 0 ] || chown -RPh "$@"
}

# ---- whose model it is ---------------------------------------------------------------------------
# Two users, models of one name, size and time; evil's tokeniser is another.
for dir in "$evil" "$good"; do
	mkdir -p "$dir"
	cp -r "$MODEL" "$dir/qwen"
done
sed -i 's/"fox"/"fix"/g; s/Ġfox/Ġfix/g' "$evil/qwen/tokenizer.json"
find "$evil" "$good" -exec touch -d 2026-01-01 {} +
own 4321 "$evil"
own 4322 "$good"
key() {
	"$TXDA_COMPILE" --key "$1"
}
[ "$(key "$evil/qwen")" = "$(key "$evil/qwen")" ] || fail "a key that changes by itself"
[ "$(key "$evil/qwen")" != "$(key "$good/qwen")" ] || fail "two models have one key"
before=$(key "$good/qwen")
touch "$good/qwen/tokenizer.json"
[ "$before" != "$(key "$good/qwen")" ] || fail "the key knows no tokeniser"
tokens() {
	post /tokenize "{\"model\":\"$1\",\"prompt\":\" fox\"}"
}
start --kv-cache-memory 64M --load demand --model "evil=$evil/qwen" --model "good=$good/qwen" --model "plain=$MODEL"
post /v1/models/load '{"model":"evil"}' >/dev/null
post /v1/models/load '{"model":"good"}' >/dev/null
post /v1/models/load '{"model":"plain"}' >/dev/null
[ "$(tokens good)" = "$(tokens plain)" ] || fail "good is served as another: $(tokens good), not $(tokens plain)"
[ "$(find "$tmp/cache" -mindepth 1 -maxdepth 1 -type d | wc -l)" = 3 ] || fail "not three entries: $(ls -A "$tmp/cache")"
[ -z "$(find "$tmp/cache" -mindepth 1 -maxdepth 1 -type d ! -perm 700)" ] || fail "entries for others: $(ls -lA "$tmp/cache")"
stop

# ---- what links lead to --------------------------------------------------------------------------
# A user's private file in the place of evil's tokeniser, and of its weights (other places: test_owned, test_param_dir).
if [ "$(id -u)" -eq 0 ]; then
	mkdir "$tmp/private"
	cp "$MODEL/tokenizer.json" "$tmp/private/secret"
	own 4322 "$tmp/private"
	chmod 600 "$tmp/private/secret"
	start --kv-cache-memory 64M --load demand --model "evil=$evil/qwen"
	refused() {
		post /v1/models/load '{"model":"evil"}' >"$tmp/answer"
		grep -qF -- "$1" "$tmp/answer" || fail "no '$1' in $(cat "$tmp/answer")"
	}
	ln -sf "$tmp/private/secret" "$evil/qwen/tokenizer.json"
	refused "tokenizer.json belongs to user 4322, neither to root nor to user 4321"
	# A case dir of evil's whose weights are a link to another's: they would show in its answers.
	"$TXDA_COMPILE" -q "$MODEL" -o "$evil/case"
	mv "$evil/case/chip0/param.bin" "$tmp/private"
	own 4321 "$evil"
	own 4322 "$tmp/private"
	chmod 600 "$tmp/private/param.bin"
	ln -s "$tmp/private/param.bin" "$evil/case/chip0/param.bin"
	stop
	start --kv-cache-memory 64M --load demand --model "evil=$evil/case"
	refused "param.bin belongs to user 4322, neither to root nor to user 4321"
	stop

	# Who runs as the daemon's user, as the compiler does, does not see into it. A sanitizer's build lets itself be seen.
	if [ -z "${RSS_MARGIN_KIB:-}" ] && command -v setpriv >/dev/null; then
		as_user="setpriv --reuid=4321 --regid=4321 --clear-groups"
		mkdir -m 755 "$tmp/user"
		cp "$TXDAD" "$(dirname "$TXDAD")/txdad-text" "$tmp/user"
		own 4321 "$tmp/user"
		# shellcheck disable=SC2086 # a command and its words
		$as_user env CACHE_DIRECTORY="$tmp/user/cache" XDG_RUNTIME_DIR="$tmp/user" "$tmp/user/txdad" --socket "$tmp/user/txda.sock" \
			--kv-cache-memory 64M --load demand --model "evil=$evil/case" 2>>"$tmp/txdad.log" &
		daemon=$!
		until_true 60 curl -sf -o /dev/null --unix-socket "$tmp/user/txda.sock" http://localhost/health || fail "a daemon of another user"
		$as_user kill -0 "$daemon" || fail "it is not that user's"
		for what in fd maps mem; do
			! $as_user sh -c "ls /proc/$daemon/$what/ >/dev/null 2>&1 || head -c 1 /proc/$daemon/$what >/dev/null 2>&1" ||
				fail "the daemon's $what can be read by its user"
		done
		stop
	fi
else
	echo "not root: all files are one user's"
fi

# Weights that are not what was compiled.
"$TXDA_COMPILE" -q "$MODEL" -o "$tmp/flipped"
printf '\377' | dd of="$tmp/flipped/chip0/param.bin" bs=1 seek=5000000 conv=notrunc status=none
start --kv-cache-memory 64M --load demand --model "flipped=$tmp/flipped"
post /v1/models/load '{"model":"flipped"}' >"$tmp/answer"
grep -q 'param.bin: checksum is' "$tmp/answer" || fail "other weights are loaded: $(cat "$tmp/answer")"
stop

# ---- files that change ---------------------------------------------------------------------------
# A mapping that is cut short is not a finding of a sanitizer.
ASAN_OPTIONS=${ASAN_OPTIONS:-}:handle_sigbus=0
export ASAN_OPTIONS

now() {
	date +%s%N | cut -c 1-13
}
# A later moment of what takes $whole ms with each run, so that changes meet all of its phases.
pause() {
	at_ms=$((whole * ($1 % 16) / 16))
	sleep "$((at_ms / 1000)).$(printf %03d $((at_ms % 1000)))"
}

# Someone rewrites, cuts and replaces the weights and texts for as long as they are compiled.
race=$tmp/race
mkdir "$race"
cp -r "$MODEL" "$race/model"
bytes=$(stat -c %s "$MODEL/model.safetensors")
change() {
	case $1 in
	rewrite)
		printf '\377\377\377\377' | dd of="$race/model/model.safetensors" bs=1 seek=$(($2 * 7919 % bytes)) conv=notrunc status=none
		printf 'x' | dd of="$race/model/tokenizer.json" bs=1 seek=$(($2 * 7919 % 9999)) conv=notrunc status=none
		;;
	truncate)
		truncate -s $(($2 * 104729 % bytes)) "$race/model/model.safetensors"
		truncate -s $(($2 * 104729 % 9999)) "$race/model/tokenizer.json"
		;;
	replace)
		cp "$MODEL/tokenizer.json" "$race/model/new"
		mv "$race/model/new" "$race/model/tokenizer.json"
		cp "$MODEL/model.safetensors" "$race/model/new"
		mv "$race/model/new" "$race/model/model.safetensors"
		;;
	esac
}
# shellcheck disable=SC2317 # $changes
change_case() {
	case $(($2 % 4)) in
	0) file=chip0/kcore.bin ;;
	1) file=model_info.json ;;
	2) file=tokenizer.json ;;
	*) file=chip0/param.bin ;;
	esac
	bytes=$(stat -c %s "$race/good/$file")
	case $1 in
	rewrite) printf '\377\377\377\377' | dd of="$race/case/$file" bs=1 seek=$(($2 * 7919 % bytes)) conv=notrunc status=none ;;
	truncate) truncate -s $(($2 * 104729 % bytes)) "$race/case/$file" ;;
	replace)
		cp "$race/good/$file" "$race/new"
		[ $(($2 % 3)) -ne 0 ] || printf '\377' | dd of="$race/new" bs=1 seek=$(($2 * 7919 % bytes)) conv=notrunc status=none
		mv "$race/new" "$race/case/$file"
		;;
	esac
}
# By the compiler alone.
begin=$(now)
"$TXDA_COMPILE" -q --jobs 2 "$race/model" -o "$race/out"
whole=$(($(now) - begin))
for way in rewrite truncate replace; do
	run=0 failed=0
	while [ "$run" -lt "$RUNS" ]; do
		run=$((run + 1))
		rm -rf "$race/out"
		cp -r "$MODEL/." "$race/model/"
		"$TXDA_COMPILE" -q --jobs 2 "$race/model" -o "$race/out" 2>"$race/err" &
		compiler=$!
		pause "$run"
		at=0
		while kill -0 "$compiler" 2>/dev/null && [ "$at" -lt 3 ]; do
			change "$way" $((run * 31 + at))
			at=$((at + 1))
		done
		if wait "$compiler"; then status=0; else status=$?; fi
		# A mapping that is cut short kills the compiler, and only it; what it leaves then is removed by the next one.
		case $status in
		0) [ -e "$race/out/model_info.json" ] || fail "$way: no case dir" ;;
		1) [ ! -e "$race/.out.txda-new" ] || fail "$way: left behind: $(ls -A "$race")" ;;
		135) ;;
		*) fail "$way: status $status: $(cat "$race/err")" ;;
		esac
		[ "$status" -eq 0 ] || failed=$((failed + 1))
		[ "$status" -eq 0 ] || [ ! -e "$race/out" ] || fail "$way: half a case dir"
	done
	echo "$way: $failed of $RUNS compiles ended with an error, none with more"
done
cp -r "$MODEL/." "$race/model/"
"$TXDA_COMPILE" -q "$race/model" -o "$race/out" || fail "a compile after all this"
[ ! -e "$race/.out.txda-new" ] || fail "left behind: $(ls -A "$race")"

# A checkpoint, which the daemon has compiled, and a case dir, which it reads itself. It says what
# was wrong, and serves.
"$TXDA_COMPILE" -q "$MODEL" -o "$race/good"
cp -r "$race/good" "$race/case"
for what in model case; do
	if [ $what = model ]; then good=$MODEL changes=change; else good=$race/good changes=change_case; fi
	start --kv-cache-memory 64M --load demand --model "race=$race/$what" --model "plain=$MODEL"
	touch "$race/model/tokenizer.json"
	begin=$(now)
	post /v1/models/load '{"model":"race"}' >"$tmp/answer"
	whole=$(($(now) - begin))
	post /v1/models/unload '{"model":"race"}' >/dev/null
	for way in rewrite truncate replace; do
		run=0 failed=0
		while [ "$run" -lt "$RUNS" ]; do
			run=$((run + 1))
			cp -r "$good/." "$race/$what/"
			post /v1/models/load '{"model":"race"}' >"$tmp/answer" &
			load=$!
			pause "$run"
			$changes "$way" $((run * 31))
			$changes "$way" $((run * 35))
			wait "$load" || fail "$way: no answer"
			! grep -q '"error"' "$tmp/answer" || failed=$((failed + 1))
			post /v1/models/unload '{"model":"race"}' >/dev/null
			kill -0 "$daemon" 2>/dev/null || fail "$way: the daemon is gone"
		done
		echo "$what, $way: $failed of $RUNS loads ended with an error, none with more"
	done
	ask plain | grep -q logprobs || fail "no answer after all this: $(ask plain)"
	stop
done
if grep -E 'SUMMARY: .*Sanitizer|runtime error' "$tmp/txdad.log" | grep -vi 'Sanitizer: bus'; then fail "see above"; fi
if grep 'was killed by signal' "$tmp/txdad.log" | grep -v 'by signal 7 '; then fail "a compiler crashed, see above"; fi
left=$(find "$tmp/cache" -name '*.txda-new')
[ -z "$left" ] || fail "left in the cache: $left"

# ---- the cache's limit ---------------------------------------------------------------------------
# Room for two models: of three the one that was used longest ago goes, unless it is in use.
rm -rf "$tmp/cache"
for name in a b c d; do
	cp -r "$MODEL" "$tmp/$name"
done
entries() {
	find "$tmp/cache" -mindepth 1 -maxdepth 1 -type d ! -name '.*' | wc -l
}
size=$(du -k "$MODEL/model.safetensors" | cut -f 1)
limit=$((size * 1024 * 5 / 2))
for name in a b c; do
	start --kv-cache-memory 64M --cache-size "$limit" --model "$name=$tmp/$name"
	stop
done
[ "$(entries)" = 2 ] || fail "the cache has $(entries) entries, with room for 2"
[ ! -e "$tmp/cache/$(key "$tmp/a")" ] || fail "a was not used longest ago"
# What is too large for the cache alone is refused, and takes none with it; who goes for whom is for test_models_cache.
start --kv-cache-memory 64M --cache-size 1M --load demand --model "d=$tmp/d"
post /v1/models/load '{"model":"d"}' >"$tmp/answer"
grep -q -- '--cache-size' "$tmp/answer" || fail "d beyond the cache: $(cat "$tmp/answer")"
[ "$(entries)" = 2 ] || fail "the cache has $(entries) entries after a load in vain, not 2"
stop
conclude
