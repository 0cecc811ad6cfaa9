#!/bin/sh
# SPDX-License-Identifier: MIT
#
# compile_memory.sh TXDA-COMPILE - how much memory a large checkpoint takes to compile.
#
# Makes a sparse checkpoint of TXDA_MEMORY_GB gigabytes (1), compiles it, and watches the compiler's
# anonymous memory: what it has beyond the page cache must stay below 256 MB, whatever the size.
set -eu
compile=$1
gb=${TXDA_MEMORY_GB:-1}
dir=$(mktemp -d "${TMPDIR:-/tmp}/txda-memory-XXXXXX")
trap 'rm -rf "$dir"' EXIT INT TERM
free=$(df -Pk "$dir" | awk 'NR == 2 { print int($4 / 1048576) }')
if [ "$free" -lt $((gb * 2 + 2)) ]; then
	echo "$free GB free below ${TMPDIR:-/tmp}, $((gb * 2 + 2)) are wanted"
	exit 77
fi
mkdir "$dir/model"
# A layer of this shape has 202 MB in bf16; vocabulary and head 131 MB.
layers=$((gb * 1000 / 202))
cat >"$dir/model/config.json" <<EOF
{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 5504, "num_hidden_layers": $layers,
 "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 8000, "torch_dtype": "bfloat16"}
EOF
header=$(awk -v layers="$layers" '
function put(name, n, k,   bytes) {
	bytes = n * (k ? k : 1) * 2
	printf "%s\"%s.weight\":{\"dtype\":\"BF16\",\"shape\":[%d%s],\"data_offsets\":[%.0f,%.0f]}", sep, name, n,
		k ? "," k : "", at, at + bytes
	sep = ","
	at += bytes
}
BEGIN {
	printf "{"
	put("model.embed_tokens", 8000, 4096)
	put("lm_head", 8000, 4096)
	put("model.norm", 4096, 0)
	for (l = 0; l < layers; l++) {
		p = "model.layers." l "."
		put(p "input_layernorm", 4096, 0)
		put(p "post_attention_layernorm", 4096, 0)
		for (i = 1; i <= 4; i++)
			put(p "self_attn." substr("qkvo", i, 1) "_proj", 4096, 4096)
		put(p "mlp.gate_proj", 5504, 4096)
		put(p "mlp.up_proj", 5504, 4096)
		put(p "mlp.down_proj", 4096, 5504)
	}
	printf "}\n%.0f", at
}')
data=$(printf '%s\n' "$header" | tail -n 1)
json=$(printf '%s\n' "$header" | head -n 1)
bytes=$(printf '%s' "$json" | wc -c)
file=$dir/model/model.safetensors
# The length as 8 bytes, little endian.
n=$bytes
for _ in 1 2 3 4 5 6 7 8; do
	# shellcheck disable=SC2059 # the format is the byte
	printf "\\$(printf '%03o' $((n % 256)))"
	n=$((n / 256))
done >"$file"
printf '%s' "$json" >>"$file"
truncate -s $((8 + bytes + data)) "$file"
"$compile" "$dir/model" -o "$dir/case" --quiet &
pid=$!
peak=0
while kill -0 $pid 2>/dev/null; do
	now=$(awk '/^RssAnon/ { print $2 }' /proc/$pid/status 2>/dev/null || true)
	[ -n "$now" ] && [ "$now" -gt "$peak" ] && peak=$now
	sleep 0.05
done
wait $pid
written=$(stat -c %s "$dir/case/chip0/param.bin")
echo "$data bytes of weights compiled to $written, at most $((peak / 1024)) MB of memory"
[ "$peak" -gt 0 ] && [ "$peak" -lt 262144 ] && [ "$written" -ge "$data" ]
