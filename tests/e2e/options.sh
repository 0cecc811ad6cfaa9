#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Options of each model: what is said for all, for one, in a file, on the command line on top of it, and what a reload makes of it.
set -eu
. "$(dirname "$0")/lib.sh"

TXDA_CMODEL=chips=3,mem=512M
export TXDA_CMODEL
comp=/v1/completions

# shows MODEL WORDS...: all of them are in its listing
shows() {
	name=$1
	shift
	http "http://localhost/v1/models/$name" >"$tmp/answer"
	for words in "$@"; do
		grep -qF -- "$words" "$tmp/answer" || fail "$name: no $words in $(cat "$tmp/answer")"
	done
}

# The same checkpoint as three models, that differ.
cat >"$tmp/conf" <<END
max-num-seqs = 32
keep-alive = 1h
model = plain=$MODEL
model = small=$MODEL
weights = w8
max-model-len = 64
no-enable-prefix-caching
speculative = ngram
num-speculative-tokens = 3
model = wide=$MODEL
tp-size = 2
kv-cache-dtype = int8
max-num-seqs = 8
END
start --config "$tmp/conf"
shows plain '"tp":1' '"tp_size":0' '"weights":"keep"' '"max_num_seqs":32' '"kv_cache_dtype":"auto"' '"enable_prefix_caching":true' \
	'"max_model_len":2048' '"keep_alive":3600' '"speculative":"off"'
shows small '"tp":1' '"weights":"w8"' '"max_model_len":64' '"max_num_seqs":32' '"enable_prefix_caching":false' '"speculative":"ngram"' \
	'"num_speculative_tokens":3'
shows wide '"tp":2' '"tp_size":2' '"kv_cache_dtype":"int8"' '"max_num_seqs":8' '"enable_prefix_caching":true' '"weights":"keep"'
plain=$(ask plain)
small=$(ask small)
wide=$(ask wide)
case $plain$small$wide in *'"code"'*) fail "an error: $plain $small $wide" ;; esac
[ "$plain" != "$small" ] || fail "w8 computes what bf16 does"
[ "$plain" != "$wide" ] || fail "two chips with an int8 cache compute what one does with bf16"
post $comp '{"model":"small","prompt":"Once upon a time","max_tokens":100}' >"$tmp/answer"
grep -q "the model's context is 64" "$tmp/answer" || fail "max-model-len: $(cat "$tmp/answer")"
post $comp '{"model":"plain","prompt":"Once upon a time","max_tokens":100}' | grep -q text_completion || fail "another model's max-model-len"
weights() {
	http "http://localhost/v1/models/$1" | member weight_bytes
}
[ "$(weights small)" -lt "$(weights plain)" ] || fail "w8 takes $(weights small) bytes, bf16 $(weights plain)"

# A reload changes one of them and leaves the others alone.
loads=$(metric 'txda_model_loads_total{model_name="plain"}')
sed 's/^weights = w8/weights = keep/; s/^max-model-len = 64/max-model-len = 96/' "$tmp/conf" >"$tmp/conf.new"
mv "$tmp/conf.new" "$tmp/conf"
kill -HUP "$daemon"
is_changed() {
	http http://localhost/v1/models/small >"$tmp/answer" && grep -q '"weights":"keep"' "$tmp/answer" && grep -q '"max_model_len":96' "$tmp/answer" &&
		grep -q '"state":"ready"' "$tmp/answer"
}
until_true 60 is_changed || fail "after SIGHUP: $(cat "$tmp/answer")"
[ "$(ask small)" = "$plain" ] || fail "with the weights of plain it says something else"
[ "$(ask wide)" = "$wide" ] || fail "wide says something else"
[ "$(metric 'txda_model_loads_total{model_name="plain"}')" = "$loads" ] || fail "plain was loaded again"
stop

# On the command line, before a model of its own: over all of the file.
printf 'model = a=%s\nweights = w8\nmodel = b=%s\n' "$MODEL" "$MODEL" >"$tmp/conf"
start --config "$tmp/conf" --weights keep --max-num-seqs 4 --load demand --model "c=$MODEL" --max-num-seqs 5
shows a '"weights":"keep"' '"max_num_seqs":4'
shows b '"weights":"keep"' '"max_num_seqs":4'
shows c '"weights":"keep"' '"max_num_seqs":5' '"state":"unloaded"'
stop

# A key that there is not: which file, which line, and what was probably meant; no daemon, status 78.
printf '# settings\nmodel = a=%s\nmax-num-sequs = 3\n' "$MODEL" >"$tmp/conf"
status=0
"$TXDAD" --config "$tmp/conf" 2>"$tmp/err" || status=$?
[ "$status" = 78 ] || fail "an unknown key: status $status"
grep -qF "$tmp/conf, line 3: unknown setting 'max-num-sequs'; did you mean 'max-num-seqs'?" "$tmp/err" || fail "an unknown key: $(cat "$tmp/err")"

# A chip that hangs is lost after the time that is said, and what runs on it is told.
TXDA_CMODEL=chips=1,mem=512M,faults=hang:after=100 start --model "a=$MODEL" --step-timeout 2
shows a '"step_timeout":2'
expect 503 model_lost $comp '{"prompt":"Once","max_tokens":1000,"ignore_eos":true}'
grep -q 'did not end within 2' "$tmp/answer" || fail "a chip that hangs: $(cat "$tmp/answer")"
stop
conclude
