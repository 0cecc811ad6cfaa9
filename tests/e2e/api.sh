#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The API on a running daemon: shapes of the answers, streams, and the table of errors.
set -eu
. "$(dirname "$0")/lib.sh"

chat=/v1/chat/completions
comp=/v1/completions
hi='"messages":[{"role":"user","content":"Tell me of a fox."}]'

start_daemon --max-body 100K --served-model-name tales

# ---- what works --------------------------------------------------------------------------------

http http://localhost/v1/models >"$tmp/answer"
grep -q '"object":"list","data":\[{"id":"demo","object":"model"' "$tmp/answer" || fail "models: $(cat "$tmp/answer")"
grep -q '"id":"tales"' "$tmp/answer" || fail "the second name is not listed"
http http://localhost/v1/models/tales | grep -q '^{"id":"tales","object":"model"' || fail "one model"
http http://localhost/health | grep -q '"status":"ok"' || fail "health"
http http://localhost/version | grep -q '"version":"[0-9]' || fail "version"

post $chat "{$hi,\"max_tokens\":8,\"temperature\":0}" >"$tmp/answer"
grep -q '"object":"chat.completion".*"message":{"role":"assistant","content":"' "$tmp/answer" || fail "chat: $(cat "$tmp/answer")"
grep -q '"usage":{"prompt_tokens":[1-9][0-9]*,"completion_tokens":[1-8],"total_tokens":[0-9]*,"prompt_tokens_details":{"cached_tokens":[0-9]*}}' \
	"$tmp/answer" || fail "usage: $(cat "$tmp/answer")"
grep -q '"system_fingerprint":"fp_txda' "$tmp/answer" || fail "fingerprint"
whole=$(member content <"$tmp/answer")

# The stream says the same, and is framed as the API has it.
post $chat "{$hi,\"max_tokens\":8,\"temperature\":0,\"stream\":true,\"stream_options\":{\"include_usage\":true}}" -i >"$tmp/stream"
tr -d '\r' <"$tmp/stream" | grep -q '^Content-Type: text/event-stream' || fail "the stream's type"
grep '^data: ' "$tmp/stream" | head -n 1 | grep -q '"delta":{"role":"assistant","content":""}' || fail "the role does not come first"
grep '^data: ' "$tmp/stream" | tail -n 1 | grep -q '^data: \[DONE\]' || fail "[DONE] is not last"
grep '^data: ' "$tmp/stream" | tail -n 2 | head -n 1 | grep -q '"choices":\[\],"usage":{"prompt_tokens":' || fail "usage is not last but one"
[ "$(grep -c '"finish_reason":"' "$tmp/stream")" = 1 ] || fail "one finish_reason"
pieces=$(grep '"delta":{"content":' "$tmp/stream" | member content | sed 's/^"//; s/"$//' | tr -d '\n')
[ "\"$pieces\"" = "$whole" ] || fail "the stream says \"$pieces\", the whole answer $whole"

post $comp '{"prompt":"Once upon a time","max_tokens":0,"logprobs":0,"echo":true}' >"$tmp/answer"
grep -q '"text":"Once upon a time","logprobs".*"completion_tokens":0' "$tmp/answer" || fail "scoring a prompt: $(cat "$tmp/answer")"

# Several prompts and choices; ids as prompts; the same seed, the same text, alone or among others.
post $comp '{"prompt":["Once","The fox"],"n":2,"max_tokens":3,"seed":5}' >"$tmp/answer"
[ "$(grep -o '"index":[0-3],"text"' "$tmp/answer" | sort -u | wc -l)" = 4 ] || fail "four choices: $(cat "$tmp/answer")"
post $comp '{"prompt":[[5,6,7],[8]],"max_tokens":1}' | grep -q '"prompt_tokens":4' || fail "ids as prompts"
seed9='"seed":9223372036854775807,"temperature":1,"max_tokens":12'
a=$(post $comp "{\"prompt\":\"The old king\",$seed9}" | member text)
b=$(post $comp "{\"prompt\":[\"The old king\",\"A fox\"],$seed9}" | sed 's/},{"index":1.*//' | member text)
[ "$a" = "$b" ] || fail "the same seed gives $a and $b"

# A chunked body, Expect, HEAD, a strange Host, two requests on one connection, a client of HTTP/1.0.
post $chat "{$hi,\"max_tokens\":1}" -H 'Transfer-Encoding: chunked' -H 'Expect: 100-continue' -H 'Host: evil.example' |
	grep -q chat.completion || fail "chunked"
http -I http://localhost/health | grep -q '^HTTP/1.1 200' || fail "HEAD"
connects=$(http -o /dev/null -o /dev/null -w '%{num_connects} ' http://localhost/health http://localhost/version)
[ "$connects" = "1 0 " ] || fail "the connection was not kept: two requests connected $connects times"
post $chat "{$hi,\"max_tokens\":2,\"stream\":true}" -0 | tail -n 2 | grep -q DONE || fail "HTTP/1.0"
http http://localhost/metrics >"$tmp/metrics"
for name in num_requests_running num_requests_waiting kv_cache_usage_perc prefix_cache_queries_total prefix_cache_hits_total \
	num_preemptions_total prompt_tokens_total generation_tokens_total request_success_total time_to_first_token_seconds_bucket \
	inter_token_latency_seconds_sum e2e_request_latency_seconds_count request_queue_time_seconds_count \
	request_prefill_time_seconds_count request_decode_time_seconds_count; do
	grep -q "^txda_$name{model_name=\"demo\"" "$tmp/metrics" || fail "no metric $name"
done

# Forms of answers.
post $comp '{"prompt":"Is it?","guided_choice":["yes","no"],"max_tokens":9}' | member text | grep -qE '^"(yes|no)"$' || fail "guided_choice"
post $comp '{"prompt":"Call","guided_regex":"[0-9]{3}-[0-9]{4}","max_tokens":30}' | member text | grep -qE '^"[0-9]{3}-[0-9]{4}"$' ||
	fail "guided_regex"
post $comp '{"prompt":"Say","guided_grammar":"root ::= \"<\" [a-z]{2,4} \">\"","max_tokens":30}' | member text |
	grep -qE '^"<[a-z]{2,4}>"$' || fail "guided_grammar"
# An answer with a call can be sent back as it is, to a template that concatenates as well.
called='{"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}'
post $chat '{"messages":[{"role":"user","content":"hi"},'"$called"',{"role":"tool","tool_call_id":"c","content":"10"}],"max_tokens":1}' |
	grep -q '"chat.completion"' || fail "a call with content null"
# The markup of a forced call that is cut off is no content, whole and streamed.
for n in 1 2 3 5 9; do
	for choice in '"required"' '{"type":"function","function":{"name":"f"}}'; do
		body="{$hi,\"max_tokens\":$n,\"temperature\":0,\"tool_choice\":$choice,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"
		post $chat "$body}" >"$tmp/answer"
		grep -q '"finish_reason":"length"' "$tmp/answer" || fail "a forced call of $n tokens: $(cat "$tmp/answer")"
		grep -q '"content":"[^"]' "$tmp/answer" && fail "content beside a forced call: $(cat "$tmp/answer")"
		post $chat "$body,\"stream\":true}" | grep '"content":"[^"]' && fail "content beside a forced call, streamed"
	done
done
# Penalties, biases, tokens.
post $comp '{"prompt":"Once upon a time","max_tokens":4,"temperature":0,"logit_bias":{"300":50},"frequency_penalty":1}' |
	grep -q text_completion || fail "logit_bias"
post /tokenize '{"prompt":"Once upon a time"}' | grep -qE '"count":[1-9][0-9]*,"max_model_len":[0-9]+,"tokens":\[[0-9,]+\]' || fail "tokenize"
post /tokenize '{"prompt":"Once upon","return_token_strs":true}' | grep -q '"token_strs":\["Once",' || fail "token_strs"
ids=$(post /tokenize '{"prompt":"Once upon a time"}' | sed 's/.*"tokens":\(\[[0-9,]*\]\).*/\1/')
[ "$(post /detokenize "{\"tokens\":$ids}")" = '{"prompt":"Once upon a time"}' ] || fail "detokenize $ids"
grep -q '"POST /tokenize" 200 ' "$tmp/txdad.log" || fail "no access log"

# What has no effect is said in a header: of whole answers, streams, and every kind of request.
extra='"user":"u","metadata":{"a":"b"},"store":true'
said='Txda-Ignored: user, metadata, store'
for body in "$chat {$hi,\"max_tokens\":1,$extra}" "$chat {$hi,\"max_tokens\":1,\"stream\":true,$extra}" \
	"$comp {\"prompt\":\"Once\",\"max_new_tokens\":1,$extra}" "/tokenize {\"prompt\":\"Once\",$extra}" \
	"/detokenize {\"tokens\":[5],$extra}"; do
	post "${body%% *}" "${body#* }" -i | tr -d '\r' >"$tmp/answer"
	grep -qx "$said" "$tmp/answer" || fail "${body%% *}: no '$said': $(head -c 400 "$tmp/answer")"
done
# So is what a grammar does not enforce: when it is made, and when it is kept from before.
for round in made kept; do
	post $comp '{"prompt":"Say","guided_json":{"type":"array","items":{"not":{}},"uniqueItems":true},"max_tokens":1}' -i |
		tr -d '\r' | grep -qx 'Txda-Ignored: guided_json.uniqueItems, guided_json.not' || fail "a $round grammar"
done
# And what the model does not know: its template has neither such variables nor tools, and it does not reason.
tool='"tools":[{"type":"function","function":{"name":"f"}}]'
while IFS='|' read -r members ignored; do
	post $chat "{$hi,\"max_tokens\":1,$members}" -i | tr -d '\r' >"$tmp/answer"
	grep -qx "Txda-Ignored: $ignored" "$tmp/answer" || fail "$members: no '$ignored': $(head -c 400 "$tmp/answer")"
done <<END
"chat_template_kwargs":{"mood":1,"add_generation_prompt":false}|chat_template_kwargs.mood, chat_template_kwargs.add_generation_prompt
"reasoning_effort":"low"|reasoning_effort
"reasoning_effort":"none","chat_template_kwargs":{"enable_thinking":true}|chat_template_kwargs.enable_thinking, reasoning_effort
"thinking_token_budget":5|thinking_token_budget
$tool|tools
END
post $chat "{$hi,\"max_tokens\":1}" -i | grep -qi ignored && fail "something is ignored of what is honoured"
post $chat '{"messages":[{"role":"user","content":"a","x\r\nSet-Cookie: y":1}],"max_tokens":1}' -i | tr -d '\r' >"$tmp/answer"
grep -qx 'Txda-Ignored: messages\[\].x??Set-Cookie??y' "$tmp/answer" || fail "a hostile name: $(head -c 400 "$tmp/answer")"
grep -qi '^set-cookie' "$tmp/answer" && fail "a client wrote a header"
# ---- errors ------------------------------------------------------------------------------------

while IFS='|' read -r status words path body; do
	[ -n "$status" ] || continue
	expect "$status" "$words" "$path" "$body"
done <<END
400|the body is empty|$chat|
400|not valid JSON|$chat|{
400|not valid JSON|$chat|{$hi,"x":"\\ud800"}
400|twice|$chat|{$hi,"n":1,"n":1}
400|messages is missing|$chat|{"model":"demo"}
400|max_tokens is 100000, but the model's context is|$chat|{$hi,"max_tokens":100000}
400|"code":"context_length_exceeded"|$chat|{$hi,"max_tokens":100000}
400|Unrecognized request argument supplied: max_token; did you mean max_tokens?|$chat|{$hi,"max_token":5}
400|"param":"max_token","code":"unknown_parameter"|$chat|{$hi,"max_token":5}
400|stream_options.include_use; did you mean include_usage?|$chat|{$hi,"stream":true,"stream_options":{"include_use":true}}
400|Unrecognized request argument supplied: \u0001\"|$comp|{"prompt":"a","\\u0001\"":1}
400|Unrecognized request argument supplied: force|/v1/models/load|{"model":"demo","force":true}
400|Unrecognized request argument supplied: wait|/v1/models/unload|{"model":"demo","wait":true}
400|Unrecognized request argument supplied: model|/v1/requests/cancel|{"id":"x","model":"demo"}
400|the model does not support images|$chat|{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}
400|\\"image_url\\" are supported|$chat|{"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}]}
400|prompt has the token id 99999999|$comp|{"prompt":[99999999]}
400|prompt[1] has the token id 99999999|$comp|{"prompt":[[5],[99999999]]}
400|prompt[2] must hold token ids, not -1|$comp|{"prompt":[[5],[6],[7,-1]]}
400|"message":"prompt must not be empty|$comp|{"prompt":[]}
400|logit_bias has the id 99999999|$comp|{"prompt":"a","logit_bias":{"99999999":1}}
400|"message":"prompt has the token id 99999999|$comp|{"prompt":[[99999999]]}
400|input[1] is empty: the model needs at least one token","type":"invalid_request_error","param":"input[1]"|/v1/embeddings|{"input":["a","","b"],"add_special_tokens":false}
400|token|$comp|{"prompt":""}
400|may begin with itself|$comp|{"prompt":"a","guided_grammar":"root ::= root \\"a\\" | \\"b\\""}
400|invalid_grammar|$comp|{"prompt":"a","guided_regex":"("}
400|does not resolve|$comp|{"prompt":"a","guided_json":{"\$ref":"#/x"}}
404|the model \\"gpt-4\\" does not exist; served are: demo, tales|$chat|{$hi,"model":"gpt-4"}
404|"code":"model_not_found"|$chat|{$hi,"model":"gpt-4"}
404|there is nothing at /v1/nothing|/v1/nothing|{}
405|takes GET, not POST|/health|{}
END
request 405 "takes POST, not DELETE" $chat -X DELETE
http -i -X DELETE http://localhost$chat | tr -d '\r' | grep -q '^Allow: POST' || fail "no Allow"
for type in text/plain multipart/form-data application/x-www-form-urlencoded; do
	request 200 chat.completion $chat -d "{$hi,\"max_tokens\":1}" -H "Content-Type: $type"
done
request 415 "only identity is supported" $chat -d "{$hi}" -H 'Content-Encoding: gzip'
request 431 "the header lines are longer than 32768 bytes" $chat -d "{$hi}" -H "X-Long: $(head -c 40000 /dev/zero | tr '\0' a)"
request 501 "Transfer-Encoding" $chat -X POST -H 'Transfer-Encoding: gzip'
request 200 chat.completion $chat -d "{$hi,\"max_tokens\":1}"
{
	printf '{"prompt":"'
	head -c 200000 /dev/zero | tr '\0' a
	printf '"}'
} >"$tmp/long"
request 413 "the body has 200013 bytes; the limit is 102400" $comp --data-binary "@$tmp/long"
request 413 "the limit is 102400" $comp --data-binary "@$tmp/long" -H 'Transfer-Encoding: chunked'
{
	printf '{"prompt":"'
	yes 'a fox and' | head -c 60000 | tr '\n' ' '
	printf '"}'
} >"$tmp/long"
request 400 "context is" $comp --data-binary "@$tmp/long"
# Bytes that are no UTF-8, and a NUL.
printf '{"prompt":"a\377b"}' >"$tmp/bad"
request 400 "not valid JSON" $comp --data-binary "@$tmp/bad"
printf '{"prompt":"a\000b"}' >"$tmp/bad"
request 400 "not valid JSON" $comp --data-binary "@$tmp/bad"
expect 200 text_completion $comp '{"prompt":"a\u0000b","max_tokens":1}'

# It is still there.
post $chat "{$hi,\"max_tokens\":1}" | grep -q chat.completion || fail "no answer at the end"
stop

# Of many names whole ones are listed.
set --
for i in 1 2 3 4 5 6 7; do
	set -- "$@" --served-model-name "$(printf '%060d' $i)"
done
start_daemon "$@"
expect 404 "$(printf '%060d and 3 more' 4)\"" $chat "{$hi,\"model\":\"gpt-4\"}"
conclude
