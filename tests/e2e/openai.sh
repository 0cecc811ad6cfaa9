#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The npm client `openai` with undici over the Unix socket and over TCP.
set -eu

. "$(dirname "$0")/node.sh"
. "$(dirname "$0")/lib.sh"

# The same weights as an embedding model, in sentence-transformers' layout.
mkdir -p "$tmp/embed/1_Pooling"
for file in "$MODEL"/*; do
	ln -s "$file" "$tmp/embed/"
done
cat >"$tmp/embed/modules.json" <<END
[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
 {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
 {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]
END
echo '{"pooling_mode_lasttoken": true}' >"$tmp/embed/1_Pooling/config.json"
key=sk-node-0123456789abcdef
printf 'node:%s\n' $key >"$tmp/keys"
chmod 600 "$tmp/keys"
start_daemon --model "embed=$tmp/embed" --host 127.0.0.1 --port 0 --api-key-file "$tmp/keys"
node "$(dirname "$0")/openai.mjs" "$socket" || fail "openai.mjs: exit status $?"
url=$(sed -n 's/.*listening on \(http:.*\)/\1/p' "$tmp/txdad.log")
TXDA_API_KEY=$key node "$(dirname "$0")/openai.mjs" "$url" || fail "openai.mjs over TCP: exit status $?"
conclude
