// SPDX-License-Identifier: MIT
/* Bodies of requests: what is taken from them, and the words and the place of each error. */
#include <math.h>

#include "unit.h"
#include "api_params.h"
#include "json_out.h"
#include "json_strict.h"

#define M "'messages': [{'role': 'user', 'content': 'hi'}]"

/*
 * A body as it is sent, of one in which ' stands for " and which, if it is no object, has members to
 * be added to those of a chat, or none.
 */
static char *body_of(enum api_kind kind, const char *text)
{
	bool members = *text == '\'' || (kind == API_CHAT && !*text);
	char *body;

	assert_true(asprintf(&body, members ? "{" M "%s%s}" : "%s%s", members && *text ? ", " : "",
			     text) >= 0);
	for (char *c = body; *c; c++)
		*c = *c == '\'' ? '"' : *c;
	return body;
}

struct wrong {
	enum api_kind kind;
	const char *body, *param, *words;
};

#define IMAGE(image)                                                                               \
	"{'messages': [{'role': 'user', 'content': [{'type': 'image_url', 'image_url': " image     \
	"}]}]}"

static const struct wrong wrongs[] = {
	{API_COMPLETION, "", "", "not valid JSON"},
	{API_CHAT, "{", "", "not valid JSON"},
	{API_CHAT, "[]", "", "must be a JSON object"},
	{API_CHAT, "'a': 1, 'a': 2", "", "\"a\" twice"},
	{API_CHAT, "'x': {'k': [{'b': 1, 'c': 1, 'b': 1}]}", "", "\"b\" twice"},
	{API_CHAT, "{'messages': '\\ud800'}", "", "not valid JSON"},
	{API_CHAT, "{'messages': '\xff'}", "", "not valid JSON"},
	{API_CHAT, "{}", "messages", "messages is missing"},
	{API_CHAT, "{'messages': 3}", "messages", "must be an array, not 3"},
	{API_CHAT, "{'messages': []}", "messages", "empty"},
	{API_CHAT, "{'messages': [1]}", "messages[0]", "must be an object, not 1"},
	{API_CHAT, "{'messages': [{'content': 'x'}]}", "messages[0].role", "missing"},
	{API_CHAT, "{'messages': [{'role': 1, 'content': 'x'}]}", "messages[0].role", "not 1"},
	{API_CHAT, "{'messages': [{'role': 'user'}]}", "messages[0].content", "missing"},
	{API_CHAT, "{'messages': [{'role': 'user', 'content': {}}]}", "messages[0].content",
	 "not an object"},
	{API_CHAT, "{'messages': [{'role': 'user', 'content': [{'type': 'image_url'}]}]}",
	 "messages[0].content[0]", "image_url"},
	{API_CHAT, IMAGE("[{'url': 'x'}]"), "messages[0].content[0]", "string \"url\""},
	{API_CHAT, IMAGE("{'url': 5}"), "messages[0].content[0]", "string \"url\""},
	{API_CHAT, IMAGE("{'url': 'x', 'detail': 'huge'}"), "messages[0].content[0]", "\"huge\""},
	{API_CHAT, IMAGE("{'url': 'x', 'detail': 2}"), "detail", "string"},
	{API_CHAT, "{'messages': [{'role': 'user', 'content': [{'type': 'text'}]}]}",
	 "messages[0].content[0]", "no string"},
	{API_CHAT,
	 "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'tool_calls': "
	 "[5]}]}",
	 "messages[1].tool_calls[0]", "must be an object, not 5"},
	{API_CHAT,
	 "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'tool_calls': "
	 "[{}]}]}",
	 "messages[1].tool_calls[0].function", "is missing"},
	{API_CHAT,
	 "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'tool_calls': "
	 "[null]}]}",
	 "messages[1].tool_calls[0]", "not null"},
	{API_CHAT,
	 "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'tool_calls': "
	 "{}}]}",
	 "messages[1].tool_calls", "an array, not an object"},
	{API_CHAT,
	 "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'tool_calls': "
	 "[{'function': 'f'}]}]}",
	 "messages[1].tool_calls[0].function", "an object, not \"f\""},
	{API_CHAT,
	 "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'tool_calls': "
	 "[{'function': {}}]}]}",
	 "messages[1].tool_calls[0].function.name", "is missing"},
	{API_CHAT,
	 "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'tool_calls': "
	 "[{'function': {'name': ''}}]}]}",
	 "messages[1].tool_calls[0].function.name", "not empty"},
	{API_CHAT,
	 "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'tool_calls': "
	 "[{'function': {'name': 'f'}}, {'function': {'name': 7}}]}]}",
	 "messages[1].tool_calls[1].function.name", "not 7"},
	{API_CHAT,
	 "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'tool_calls': "
	 "[{'function': {'name': 'f', 'arguments': [1]}}]}]}",
	 "messages[1].tool_calls[0].function.arguments", "not an array"},
	{API_CHAT,
	 "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'tool_calls': "
	 "[{'function': {'name': 'f', 'arguments': 1}}]}]}",
	 "messages[1].tool_calls[0].function.arguments", "not 1"},
	{API_CHAT,
	 "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'tool_calls': "
	 "[{'id': 5, 'function': {'name': 'f'}}]}]}",
	 "messages[1].tool_calls[0].id", "not 5"},
	{API_CHAT,
	 "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'tool_calls': "
	 "[{'type': 'custom', 'custom': {'name': 'f'}}]}]}",
	 "messages[1].tool_calls[0]", "the type \"custom\""},
	{API_CHAT, "{'messages': [{'role': 'tool', 'tool_call_id': 5, 'content': 'a'}]}",
	 "messages[0].tool_call_id", "not 5"},
	{API_CHAT, "{'messages': [{'role': 'user', 'name': {}, 'content': 'a'}]}",
	 "messages[0].name", "not an object"},
	{API_CHAT, "'model': 5", "model", "must be a string, not 5"},
	{API_CHAT, "'stream': 'yes'", "stream", "must be true or false, not \"yes\""},
	{API_CHAT, "'stream_options': {}", "stream_options", "only allowed when stream is true"},
	{API_CHAT, "'stream': true, 'stream_options': []", "stream_options", "must be an object"},
	{API_CHAT, "'stream': true, 'stream_options': {'include_usage': 1}", "include_usage",
	 "true or false"},
	{API_CHAT, "'temperature': 2.5", "temperature", "between 0 and 2, not 2.5"},
	{API_CHAT, "'temperature': 'hot'", "temperature", "not \"hot\""},
	{API_CHAT, "'temperature': 1e999", "temperature", "between 0 and 2"},
	{API_CHAT, "'top_p': 1.1", "top_p", "between 0 and 1, not 1.1"},
	{API_CHAT, "'min_p': -1", "min_p", "between 0 and 1, not -1"},
	{API_CHAT, "'top_k': 1.5", "top_k", "integer between -1 and"},
	{API_CHAT, "'top_k': -2", "top_k", "not -2"},
	{API_CHAT, "'seed': 9223372036854775808", "seed", "not 9223372036854775808"},
	{API_CHAT, "'seed': 1.5", "seed", "not 1.5"},
	{API_CHAT, "'n': 0", "n", "between 1 and 128, not 0"},
	{API_CHAT, "'n': 129", "n", "not 129"},
	{API_CHAT, "'max_tokens': 0", "max_tokens", "between 1 and 2147483647, not 0"},
	{API_CHAT, "'max_tokens': 3000000000", "max_tokens", "not 3000000000"},
	{API_CHAT, "'max_completion_tokens': '5'", "max_completion_tokens", "not \"5\""},
	{API_CHAT, "'max_tokens': 5, 'min_tokens': 6", "min_tokens",
	 "min_tokens is 6, but max_tokens is 5"},
	{API_CHAT, "'max_tokens': 5, 'max_new_tokens': 6", "max_new_tokens",
	 "max_new_tokens is 6, but max_tokens, which means the same, is 5"},
	{API_CHAT, "'max_completion_tokens': 5, 'max_new_tokens': 6", "max_new_tokens",
	 "but max_completion_tokens"},
	{API_CHAT, "'max_new_tokens': 0", "max_new_tokens", "between 1 and"},
	{API_COMPLETION, "{'prompt': 'a', 'max_new_tokens': '5'}", "max_new_tokens", "not \"5\""},
	{API_CHAT, "'thinking_budget': -1", "thinking_budget", "not -1"},
	{API_CHAT, "'thinking_budget': 9, 'use_beam_search': true", "thinking_budget",
	 "not supported together"},
	{API_CHAT, "'max_new_tokens': 5, 'min_tokens': 6", "min_tokens", "but max_tokens is 5"},
	{API_CHAT, "'reasoning_effort': 3", "reasoning_effort", "a string, not 3"},
	/* Members that there are not. */
	{API_CHAT, "'tempreture': 1", "tempreture",
	 "Unrecognized request argument supplied: tempreture; did you mean temperature?"},
	{API_CHAT, "'Stream': true", "Stream", "did you mean stream?"},
	{API_CHAT, "'num_predict': 5", "num_predict", "did you mean max_tokens?"},
	{API_COMPLETION, "{'prompt': 'a', 'max_completion_tokens': 5}", "max_completion_tokens",
	 "Unrecognized"},
	{API_COMPLETION, "{'prompt': 'a', 'top_logprobs': 5}", "top_logprobs",
	 "did you mean logprobs?"},
	{API_COMPLETION, "{'prompt': 'a', 'messages': []}", "messages", "Unrecognized"},
	{API_CHAT, "'': 1", "", "supplied: "},
	{API_CHAT, "'zzzzzzzzzzzz': 1", "zzzzzzzzzzzz", "supplied: zzzzzzzzzzzz"},
	{API_CHAT, "'x\\r\\nA: b': 1", "x\r\nA: b", "Unrecognized"},
	{API_CHAT, "'stream': true, 'stream_options': {'include_usages': true}",
	 "stream_options.include_usages", "did you mean include_usage?"},
	{API_CHAT,
	 "'response_format': {'type': 'json_schema', 'json_schema': {'schema': {}, 'stirct': "
	 "true}}",
	 "response_format.json_schema.stirct", "did you mean strict?"},
	{API_CHAT, "'structured_outputs': {'jsn': {}}", "structured_outputs.jsn",
	 "did you mean json?"},
	{API_CHAT,
	 "'tools': [{'function': {'name': 'f'}}], 'tool_choice': {'type': 'function', 'function': "
	 "{'nam': 'f'}}",
	 "tool_choice.function.nam", "did you mean name?"},
	{API_EMBEDDING, "{'input': 'a', 'temperature': 1}", "temperature", "Unrecognized"},
	{API_TOKENIZE, "{'prompt': 'a', 'max_tokens': 1}", "max_tokens", "Unrecognized"},
	{API_DETOKENIZE, "{'tokens': [1], 'prompt': 'a'}", "prompt", "Unrecognized"},
	{API_FORWARD, "{'input_ids': {'fd': 0, 'shape': [1], 'stride': 1}}", "input_ids.stride",
	 "Unrecognized"},
	/* Members that would change the answer. */
	{API_CHAT, "'verbosity': 'low'", "verbosity",
	 "verbosity is not supported: it must be \"medium\" or absent, not \"low\""},
	{API_CHAT, "'modalities': ['text', 'audio']", "modalities", "[\"text\"]"},
	{API_CHAT, "'audio': {'voice': 'x'}", "audio", "must be null or absent"},
	{API_CHAT, "'web_search_options': {}", "web_search_options", "not supported"},
	{API_CHAT, "'functions': [{'name': 'f'}]", "functions", "must be []"},
	{API_CHAT, "'function_call': 'auto'", "function_call", "not \"auto\""},
	{API_CHAT, "'echo': true", "echo", "must be false"},
	{API_CHAT, "'bad_words': ['a']", "bad_words", "not supported"},
	{API_CHAT, "'prompt_logprobs': 1", "prompt_logprobs", "not 1"},
	{API_CHAT, "'chat_template': 'x'", "chat_template", "not supported"},
	{API_COMPLETION, "{'prompt': 'a', 'suffix': 5}", "suffix", "not 5"},
	{API_COMPLETION, "{'prompt': 'a', 'truncate_prompt_tokens': 5}", "truncate_prompt_tokens",
	 "not 5"},

	{API_CHAT, "'stop': 5", "stop", "not 5"},
	{API_CHAT, "'stop': ''", "stop", "1 to 1024 bytes, not 0"},
	{API_CHAT, "'stop': ['a', 1]", "stop", "not 1"},
	{API_CHAT, "'stop': ['a','b','c','d','e']", "stop", "5 strings; the limit is 4"},
	{API_CHAT, "'stop_token_ids': [-1]", "stop_token_ids", "not -1"},
	{API_CHAT, "'logprobs': 3", "logprobs", "true or false, not 3"},
	{API_CHAT, "'top_logprobs': 3", "top_logprobs", "logprobs is not true"},
	{API_CHAT, "'logprobs': true, 'top_logprobs': 21", "top_logprobs",
	 "between 0 and 20, not 21"},
	{API_CHAT, "'presence_penalty': 2.5", "presence_penalty", "between -2 and 2, not 2.5"},
	{API_CHAT, "'frequency_penalty': 3", "frequency_penalty", "between -2 and 2, not 3"},
	{API_CHAT, "'repetition_penalty': 0", "repetition_penalty", "between 0.01 and 100, not 0"},
	{API_CHAT, "'logit_bias': [1]", "logit_bias", "not an array"},
	{API_CHAT, "'logit_bias': {'x': 1}", "logit_bias", "key \"x\", which is no"},
	{API_CHAT, "'logit_bias': {'01': 1}", "logit_bias", "key \"01\""},
	{API_CHAT, "'logit_bias': {'5': 101}", "logit_bias", "between -100 and 100, not 101"},
	{API_CHAT, "'n': 3, 'best_of': 2", "best_of", "between 3 and 128, not 2"},
	{API_CHAT, "'best_of': 2, 'stream': true", "best_of", "cannot be streamed"},
	{API_CHAT, "'use_beam_search': true, 'n': 33", "n", "the limit is 32"},
	{API_CHAT, "'use_beam_search': true, 'n': 3, 'beam_width': 2", "beam_width",
	 "between 3 and 32, not 2"},
	{API_CHAT, "'use_beam_search': true, 'stream': true", "stream",
	 "not supported together with use_beam_search"},
	{API_CHAT, "'use_beam_search': true, 'stop': 'a'", "stop", "together with use_beam_search"},
	{API_CHAT, "'early_stopping': 'ever'", "early_stopping", "not \"ever\""},
	{API_CHAT, "'response_format': 'json'", "response_format", "not \"json\""},
	{API_CHAT, "'response_format': {'type': 'xml'}", "response_format.type",
	 "\"xml\"; supported are"},
	{API_CHAT, "'response_format': {}", "response_format.type", "is missing"},
	{API_CHAT, "'response_format': {'type': null, 'schema': {'type': 'object'}}",
	 "response_format.type", "is missing"},
	{API_COMPLETION, "{'prompt': 'a', 'response_format': {'schema': {'type': 'object'}}}",
	 "response_format.type", "is missing"},
	{API_CHAT, "'response_format': {'json_schema': {'schema': {}, 'strict': true}}",
	 "response_format.type", "is missing"},
	{API_CHAT, "'response_format': {'type': 5}", "type", "a string, not 5"},
	{API_CHAT, "'response_format': {'type': 'text', 'schema': {'type': 'object'}}",
	 "response_format.schema", "no effect beside the other members of response_format"},
	{API_CHAT, "'response_format': {'type': 'text', 'json_schema': {'schema': {}}}",
	 "response_format.json_schema", "no effect"},
	{API_CHAT, "'response_format': {'type': 'json_object', 'json_schema': {'schema': {}}}",
	 "response_format.json_schema", "no effect"},
	{API_CHAT,
	 "'response_format': {'type': 'json_schema', 'schema': {}, 'json_schema': {'schema': {}}}",
	 "response_format.schema", "no effect"},
	{API_CHAT, "'structured_outputs': {}", "structured_outputs", "has none of"},
	{API_CHAT, "'structured_outputs': {'json_object': false, 'regex': null}",
	 "structured_outputs", "has none of"},
	{API_CHAT, "'structured_outputs': {'regex': 'a', 'whitespace_pattern': ' '}",
	 "structured_outputs.whitespace_pattern", "no effect"},
	{API_CHAT, "'structured_outputs': {'choice': ['a'], 'disable_any_whitespace': true}",
	 "structured_outputs.disable_any_whitespace", "no effect"},
	{API_CHAT,
	 "'structured_outputs': {'json': {}, 'disable_any_whitespace': true, 'whitespace_pattern': "
	 "' '}",
	 "structured_outputs.whitespace_pattern", "says already"},
	{API_CHAT,
	 "'structured_outputs': {'json': {}, 'whitespace_pattern': ' '}, "
	 "'guided_whitespace_pattern': '_'",
	 "guided_whitespace_pattern", "says already"},
	{API_CHAT,
	 "'tools': [{'function': {'name': 'a'}}], 'tool_choice': {'type': 'custom', 'function': "
	 "{'name': 'a'}}",
	 "tool_choice", "the type \"custom\""},
	{API_TOKENIZE, "{'prompt': 'a', 'messages': [{'role': 'user', 'content': 'a'}]}", "prompt",
	 "exclude each other"},
	{API_CHAT, "'response_format': {'type': 'json_schema'}", "response_format.json_schema",
	 "must be an object"},
	{API_CHAT, "'response_format': {'type': 'json_schema', 'json_schema': {}}",
	 "response_format.json_schema.schema", "is missing"},
	{API_CHAT, "'response_format': {'type': 'json_object'}, 'guided_regex': 'a'",
	 "guided_regex", "exclude each other"},
	{API_CHAT, "'guided_json': 3", "guided_json", "a JSON schema, not 3"},
	{API_CHAT, "'guided_json': '{'", "guided_json", "not valid JSON"},
	{API_CHAT, "'guided_choice': []", "guided_choice",
	 "must be an array of one string or more, not an empty array"},
	{API_CHAT, "'structured_outputs': {'choice': []}", "structured_outputs.choice",
	 "not an empty array"},
	{API_CHAT, "'guided_choice': ['']", "guided_choice", "not empty, not \"\""},
	{API_FORWARD,
	 "{'input_ids': {'fd': 0, 'shape': [1]}, 'logits': {'fd': 1, 'shape': [1, 1]}, 'rows': []}",
	 "rows", "not an empty array"},
	{API_FORWARD, "{'input_ids': {'fd': 0, 'shape': []}}", "input_ids",
	 "an array of 1 integer between 1 and 2147483648, not of 0"},
	{API_CHAT, "'guided_choice': ['a', 1]", "guided_choice", "not 1"},
	{API_CHAT, "'guided_grammar': ''", "guided_grammar", "not empty"},
	{API_CHAT, "'structured_outputs': 1", "structured_outputs", "an object, not 1"},
	{API_CHAT, "'structured_outputs': {'structural_tag': {}}",
	 "structured_outputs.structural_tag", "not supported"},
	{API_CHAT, "'tools': {}", "tools", "must be an array"},
	{API_CHAT, "'tools': [1]", "tools[0]", "not 1"},
	{API_CHAT, "'tools': [{'type': 'retrieval'}]", "tools[0]", "\"retrieval\""},
	{API_CHAT, "'tools': [{'type': 'function'}]", "tools[0].function", "must be an object"},
	{API_CHAT, "'tools': [{'function': {'name': 'a b'}}]", "tools[0].function", "not \"a b\""},
	{API_CHAT, "'tools': [{'function': {'name': 'a', 'parameters': 1}}]", "tools[0].function",
	 "a JSON schema"},
	{API_CHAT, "'tool_choice': 'required'", "tool_choice", "there are no tools"},
	{API_CHAT, "'tool_choice': 'any'", "tool_choice", "not \"any\""},
	{API_CHAT,
	 "'tools': [{'function': {'name': 'a'}}], 'tool_choice': {'type': 'function', 'function': "
	 "{'name': 'b'}}",
	 "tool_choice", "not one of the tools"},
	{API_CHAT,
	 "'tools': [{'function': {'name': 'a'}}], 'tool_choice': 'required', 'guided_regex': 'x'",
	 "tool_choice", "exclude each other"},
	{API_EMBEDDING, "{}", "input", "missing"},
	{API_EMBEDDING, "{'input': []}", "input", "empty"},
	{API_EMBEDDING, "{'input': 'a', 'encoding_format': 'hex'}", "encoding_format",
	 "not \"hex\""},
	{API_EMBEDDING, "{'input': 'a', 'pooling': 'max'}", "pooling", "not \"max\""},
	{API_EMBEDDING, "{'input': 'a', 'dimensions': 0}", "dimensions", "not 0"},
	{API_TOKENIZE, "{}", "prompt", "there must be"},
	{API_TOKENIZE, "{'prompt': [1]}", "prompt", "there must be"},
	{API_DETOKENIZE, "{'tokens': 'a'}", "tokens", "array of token ids"},
	{API_DETOKENIZE, "{'tokens': [-1]}", "tokens", "not -1"},
	{API_CHAT, "'user': 5", "user", "must be a string"},
	{API_CHAT, "'ignore_eos': 0", "ignore_eos", "true or false, not 0"},
	{API_COMPLETION, "{}", "prompt", "missing"},
	{API_COMPLETION, "{'prompt': {}}", "prompt", "not an object"},
	{API_COMPLETION, "{'prompt': []}", "prompt", "empty"},
	{API_COMPLETION, "{'prompt': [[]]}", "prompt", "empty"},
	{API_COMPLETION, "{'prompt': [1, 'a']}", "prompt", "not \"a\""},
	{API_COMPLETION, "{'prompt': ['a', 1]}", "prompt", "not 1"},
	{API_COMPLETION, "{'prompt': ['a', [1]]}", "prompt", "not an array"},
	{API_COMPLETION, "{'prompt': [-1]}", "prompt", "not -1"},
	{API_COMPLETION, "{'prompt': [1.5]}", "prompt", "not 1.5"},
	{API_COMPLETION, "{'prompt': ['a', 'b', 'c'], 'n': 100}", "prompt",
	 "300 choices; the limit is 256"},
	{API_COMPLETION, "{'prompt': 'a', 'logprobs': 21}", "logprobs", "between 0 and 20, not 21"},
	{API_COMPLETION, "{'prompt': 'a', 'logprobs': true}", "logprobs", "not true"},
	{API_COMPLETION, "{'prompt': 'a', 'max_tokens': 0}", "max_tokens", "not 0"},
	{API_COMPLETION, "{'prompt': 'a', 'suffix': 'b'}", "suffix", "not supported"},
	{API_COMPLETION, "{'prompt': ['a', 'b', 'c'], 'best_of': 100}", "prompt",
	 "best_of = 100 make 300 choices; the limit is 256"},
	{API_COMPLETION, "{'prompt': 'a', 'echo': 'b'}", "echo", "true or false"},
};

TEST(test_wrong)
{
	for (size_t i = 0; i < ARRAY_SIZE(wrongs); i++) {
		char *body = body_of(wrongs[i].kind, wrongs[i].body);
		struct api_error e = {0};
		struct api_params p;

		if (api_params_parse(wrongs[i].kind, body, strlen(body), &p, &e))
			fail_msg("accepted: %s", body);
		if (e.status != 400 || strcmp(e.param, wrongs[i].param) ||
		    !strstr(e.message, wrongs[i].words))
			fail_msg("%s: %d, %s, %s", body, e.status, e.param, e.message);
		free(body);
	}
}

static void parse(enum api_kind kind, const char *text, struct api_params *ret)
{
	char *body = body_of(kind, text);
	struct api_error e;

	if (!api_params_parse(kind, body, strlen(body), ret, &e))
		fail_msg("%s: %s", body, e.message);
	free(body);
}

TEST(test_defaults)
{
	struct api_params p;

	parse(API_CHAT, "'stop': null, 'seed': null, 'unknown': null", &p);
	assert_null(p.model);
	assert_int_equal(p.n, 1);
	assert_false(p.max_tokens_given);
	assert_true(isnan(p.temperature) && isnan(p.top_p) && isnan(p.min_p));
	assert_int_equal(p.top_k, -1);
	assert_int_equal(p.logprobs, -1);
	assert_false(p.seed_given);
	assert_true(p.add_generation_prompt);
	api_params_free(&p);
}

TEST(test_chat)
{
	struct api_params p;
	const cJSON *content;
	char *text;

	parse(API_CHAT,
	      "{'model': 'm', 'messages': [{'role': 'user', 'content': [{'type': 'text', 'text': "
	      "'a'},{'type': 'text', 'text': 'b'}]}, {'role': 'assistant', 'name': null, "
	      "'tool_calls': [{'type': 'function', 'function': "
	      "{'name': 'f', 'arguments': '{}'}}], 'audio': null}], "
	      "'seed': -9223372036854775808,'top_k': -1, 'max_tokens': 5, 'max_completion_tokens': "
	      "7, 'stop': ['x', 'y'], 'logprobs': true,'top_logprobs': 4, 'stream': true, "
	      "'stream_options': {'include_usage': true}, 'temperature': 0}",
	      &p);
	assert_string_equal(p.model, "m");
	content = cJSON_GetObjectItem(cJSON_GetArrayItem(p.messages, 0), "content");
	assert_int_equal(cJSON_GetArraySize(content), 2);
	/* What is null is absent, except that each message has content. */
	text = cJSON_PrintUnformatted(cJSON_GetArrayItem(p.messages, 1));
	assert_non_null(text);
	assert_string_equal(text, "{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"function\","
				  "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}],"
				  "\"content\":null}");
	cJSON_free(text);
	assert_true(p.seed_given);
	assert_true(p.seed == INT64_MIN);
	assert_int_equal(p.top_k, 0);
	assert_int_equal(p.max_tokens, 7);
	assert_int_equal(p.n_stop, 2);
	assert_int_equal(p.logprobs, 4);
	assert_true(p.stream && p.include_usage);
	assert_true(p.temperature == 0);
	api_params_free(&p);
}

/* Texts stay apart: the template decides what comes between them. Empty ones are texts. */
TEST(test_several_texts)
{
	struct api_params p;
	char *text;

	parse(API_CHAT,
	      "{'messages': [{'role': 'user', 'content': [{'type': 'text', 'text': ''}, {'type': "
	      "'text', 'text': 'a'}, {'type': 'text', 'text': ''}]}, {'role': 'user', 'content': "
	      "[]}]}",
	      &p);
	text = cJSON_PrintUnformatted(p.messages);
	assert_non_null(text);
	assert_string_equal(
		text, "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"\"},"
		      "{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"\"}]},"
		      "{\"role\":\"user\",\"content\":[]}]");
	cJSON_free(text);
	api_params_free(&p);
}

TEST(test_images)
{
	struct api_params p;
	char *text;

	parse(API_CHAT,
	      "{'messages': [{'role': 'user', 'content': [{'type': 'text', 'text': 'a'}, {'type': "
	      "'image_url', 'image_url': {'url': 'one', 'detail': 'low'}}]}, {'role': 'user', "
	      "'content': [{'type': 'text', 'text': 'b'}, {'type': 'text', 'text': 'c'}]}, "
	      "{'role': 'user', 'content': [{'type': 'image_url', 'image_url': 'two'}]}]}",
	      &p);
	assert_int_equal(p.n_images, 2);
	assert_string_equal(
		cJSON_GetStringValue(cJSON_GetObjectItem(cJSON_GetArrayItem(p.images, 0), "url")),
		"one");
	assert_string_equal(cJSON_GetArrayItem(p.images, 1)->valuestring, "two");
	text = cJSON_PrintUnformatted(p.messages);
	assert_non_null(text);
	assert_string_equal(
		text, "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
		      "{\"type\":\"image\"}]},{\"role\":\"user\",\"content\":[{\"type\":\"text\","
		      "\"text\":\"b\"},{\"type\":\"text\",\"text\":\"c\"}]},"
		      "{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]");
	cJSON_free(text);
	api_params_free(&p);
}

/* Of a part the template gets the type and the text alone. */
TEST(test_other_members_of_parts)
{
	struct api_params p;
	char *text;

	parse(API_CHAT,
	      "{'messages': [{'role': 'user', 'content': [{'video': 1, 'type': 'text', 'image': "
	      "'x', 'text': 'a', 'image_url': {'url': 'one'}}, {'type': 'image_url', 'video': 1, "
	      "'image_url': {'url': 'two'}, 'text': 'b'}]}]}",
	      &p);
	assert_int_equal(p.n_images, 1);
	text = cJSON_PrintUnformatted(p.messages);
	assert_non_null(text);
	assert_string_equal(text,
			    "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
			    "{\"type\":\"image\"}]}]");
	cJSON_free(text);
	api_params_free(&p);
}

TEST(test_seed_is_exact)
{
	struct api_params p;

	parse(API_CHAT, "'seed': 9223372036854775807", &p);
	assert_true(p.seed == INT64_MAX);
	api_params_free(&p);
	parse(API_CHAT, "'metadata': {'seed': 1}, 'seed': 9007199254740993", &p);
	assert_true(p.seed == 9007199254740993);
	api_params_free(&p);
}

TEST(test_forms_and_tools)
{
	struct api_params p;

	parse(API_CHAT,
	      "'response_format': {'type': 'json_schema', 'json_schema': {'name': 'x', 'strict': "
	      "true, 'schema': {'type': 'null'}}}",
	      &p);
	assert_int_equal(p.format.form, API_FORM_SCHEMA);
	assert_true(p.format.strict);
	assert_string_equal(p.format.value->child->valuestring, "null");
	api_params_free(&p);
	parse(API_CHAT, "'guided_json': '{\\'type\\': \\'null\\'}'", &p);
	assert_int_equal(p.format.form, API_FORM_SCHEMA);
	assert_string_equal(p.format.value->child->valuestring, "null");
	api_params_free(&p);
	/* A string's numbers are as exact as the body's. */
	parse(API_CHAT, "'guided_json': '{\\'const\\': 1234567890123456789}'", &p);
	assert_non_null(p.format.value->child->valuestring);
	assert_string_equal(p.format.value->child->valuestring, "1234567890123456789");
	api_params_free(&p);
	parse(API_COMPLETION, "{'prompt': 'a', 'structured_outputs': {'choice': ['a', 'b']}}", &p);
	assert_int_equal(p.format.form, API_FORM_CHOICE);
	assert_string_equal(p.format.param, "structured_outputs.choice");
	api_params_free(&p);
	parse(API_CHAT, "'tools': [{'type': 'function', 'function': {'name': 'f'}}]", &p);
	assert_int_equal(p.tool_choice, API_TOOLS_AUTO);
	assert_non_null(p.tools);
	assert_true(p.parallel_tools);
	api_params_free(&p);
	parse(API_CHAT,
	      "'tools': [{'function': {'name': 'f'}}], 'parallel_tool_calls': false, "
	      "'tool_choice': {'type': 'function', 'function': {'name': 'f'}}",
	      &p);
	assert_int_equal(p.tool_choice, API_TOOLS_NAMED);
	assert_string_equal(p.tool_name, "f");
	assert_false(p.parallel_tools);
	api_params_free(&p);
	parse(API_CHAT, "'tools': [{'function': {'name': 'f'}}], 'tool_choice': 'none'", &p);
	assert_int_equal(p.tool_choice, API_TOOLS_NONE);
	assert_null(p.tools);
	api_params_free(&p);
}

TEST(test_answers)
{
	struct api_params p;

	parse(API_COMPLETION,
	      "{'prompt': 'a', 'n': 2, 'best_of': 5, 'logit_bias': {'7': -100, '0': 2.5}, "
	      "'frequency_penalty': 0.5}",
	      &p);
	assert_int_equal(p.best_of, 5);
	assert_int_equal(p.n_biases, 2);
	assert_int_equal(p.biases[0].token, 7);
	assert_true(p.biases[1].bias == 2.5f && p.frequency_penalty == 0.5);
	api_params_free(&p);
	parse(API_COMPLETION,
	      "{'prompt': 'a', 'n': 2, 'use_beam_search': true, 'beam_width': 6, 'length_penalty': "
	      "0.5, 'early_stopping': 'never'}",
	      &p);
	assert_int_equal(p.beam_width, 6);
	assert_int_equal(p.early_stopping, API_STOP_NEVER);
	assert_true(p.length_penalty == 0.5);
	api_params_free(&p);
	parse(API_EMBEDDING, "{'input': ['a', 'b'], 'encoding_format': 'base64'}", &p);
	assert_int_equal(p.n_prompts, 2);
	assert_true(p.base64 && !p.normalize_given && p.pooling == API_POOL_BY_MODEL);
	api_params_free(&p);
	parse(API_DETOKENIZE, "{'tokens': [1, 2]}", &p);
	assert_int_equal(p.prompts[0].n_ids, 2);
	api_params_free(&p);
}

TEST(test_prompts)
{
	struct api_params p;

	parse(API_COMPLETION, "{'prompt': 'a'}", &p);
	assert_int_equal(p.n_prompts, 1);
	assert_int_equal(p.max_tokens, 16);
	assert_string_equal(p.prompts[0].text, "a");
	api_params_free(&p);
	parse(API_COMPLETION,
	      "{'prompt': ['a', 'b'], 'echo': true, 'max_tokens': 0, 'logprobs': 0}", &p);
	assert_int_equal(p.n_prompts, 2);
	assert_string_equal(p.prompts[1].text, "b");
	assert_true(p.max_tokens_given && !p.max_tokens);
	assert_int_equal(p.logprobs, 0);
	api_params_free(&p);
	parse(API_COMPLETION, "{'prompt': [3, 4, 5]}", &p);
	assert_int_equal(p.n_prompts, 1);
	assert_int_equal(p.prompts[0].n_ids, 3);
	assert_int_equal(p.prompts[0].ids[2], 5);
	api_params_free(&p);
	parse(API_COMPLETION, "{'prompt': [[3], [4, 5]]}", &p);
	assert_int_equal(p.n_prompts, 2);
	assert_int_equal(p.prompts[1].ids[1], 5);
	api_params_free(&p);
}

TEST(test_bombs)
{
	size_t len = 3000000;
	char *body = malloc(len + 1);
	struct api_params p;
	struct api_error e;

	for (size_t i = 0; i < len; i += 2)
		memcpy(body + i, i ? "0," : "[0", 2);
	assert_false(api_params_parse(API_CHAT, body, len, &p, &e));
	assert_says(e.message, "more than 1000000 values");
	memset(body, '[', len);
	assert_false(api_params_parse(API_CHAT, body, len, &p, &e));
	assert_int_equal(e.status, 400);
	memset(body, '[', 1000);
	assert_false(api_params_parse(API_CHAT, body, 1000, &p, &e));
	assert_int_equal(e.status, 400);
	free(body);
}

TEST(test_json_out)
{
	struct json_out o;
	cJSON *json;
	char err[128];

	json_out_init(&o);
	json_begin(&o, '{');
	json_key(&o, "a\"b");
	json_string_len(&o, "x\0\x01\x7f\n\t\\\"\xff\xe2\x96\xf0\x9f\x98\x80", 15);
	json_key(&o, "n");
	json_begin(&o, '[');
	json_int(&o, INT64_MIN);
	json_uint(&o, UINT64_MAX);
	json_number(&o, 0.1);
	json_number(&o, NAN);
	json_bool(&o, true);
	json_null(&o);
	json_end(&o, ']');
	json_end(&o, '}');
	assert_false(json_out_failed(&o));
	json = txda_json_parse(o.data, o.len, err, sizeof(err));
	assert_non_null(json);
	json_raw(&o, "", 1);
	assert_string_equal(
		o.data, "{\"a\\\"b\":"
			"\"x\\u0000\\u0001\\u007f\\n\\u0009\\\\\\\"\xef\xbf\xbd\xef\xbf\xbd\xf0\x9f"
			"\x98\x80\","
			"\"n\":[-9223372036854775808,18446744073709551615,0.1,null,true,null]}");
	cJSON_Delete(json);
	json_out_free(&o);
}

/* What clients send, and what of it is said to have no effect. */
TEST(reports_what_has_no_effect)
{
	static const struct {
		enum api_kind kind;
		const char *body, *ignored;
	} cases[] = {
		{API_CHAT, "", ""},
		/* OpenAI's own clients, all that is not about the answer. */
		{API_CHAT,
		 "'metadata': {'a': 'b'}, 'store': true, 'user': 'u', 'service_tier': 'auto', "
		 "'safety_identifier': 's', 'prompt_cache_key': 'k', 'parallel_tool_calls': true",
		 "metadata, store, user, service_tier, safety_identifier, prompt_cache_key"},
		{API_CHAT,
		 "'stream': true, 'stream_options': {'include_usage': true, 'include_obfuscation': "
		 "false}",
		 "stream_options.include_obfuscation"},
		/* Defaults of what is not supported; null asks for nothing anywhere. */
		{API_CHAT,
		 "'verbosity': 'medium', 'modalities': [ 'text' ], 'audio': null, 'functions': [], "
		 "'function_call': 'none', 'echo': false, 'bad_words': [], "
		 "'spaces_between_special_tokens': true, 'vllm_xargs': {}, 'nonsense': null",
		 ""},
		{API_COMPLETION, "{'prompt': 'a', 'suffix': '', 'user': 'u'}", "user"},
		{API_EMBEDDING, "{'input': 'a', 'user': 'u'}", "user"},
		/* Messages and tools are open, for templates; once is enough to say it. */
		{API_CHAT,
		 "{'messages': [{'role': 'user', 'content': 'a', 'mood': 1}, {'role': 'assistant', "
		 "'content': [{'type': 'text', 'text': 'b', 'cache_control': {'type': "
		 "'ephemeral'}}], 'refusal': null, 'annotations': []}, {'role': 'user', 'content': "
		 "'c', 'mood': 2}], 'tools': [{'type': 'function', 'function': {'name': 'f', 'x': "
		 "1}}]}",
		 "messages[].mood, messages[].content[].cache_control, messages[].annotations, "
		 "tools[].function.x"},
		/* No header can be made of it. */
		{API_CHAT,
		 "{'messages': [{'role': 'user', 'content': 'a', 'x\\r\\nSet-Cookie: y, \\u00e9': "
		 "1}]}",
		 "messages[].x??Set-Cookie??y????"},
		{API_TOKENIZE, "'request_id': 'r'", "request_id"},
		/* Members that need others; what means the same as none is no news. */
		{API_CHAT, "'length_penalty': 0.5, 'early_stopping': true, 'beam_width': 4",
		 "length_penalty, early_stopping, beam_width"},
		{API_CHAT, "'length_penalty': 1.0, 'early_stopping': false", ""},
		{API_CHAT,
		 "'use_beam_search': true, 'length_penalty': 0.5, 'top_p': 0.5, 'seed': 1",
		 "top_p, seed"},
		{API_CHAT, "'max_tokens': 5, 'max_completion_tokens': 6", "max_tokens"},
		{API_CHAT, "'thinking_budget': 5, 'thinking_token_budget': 6",
		 "thinking_token_budget"},
		{API_CHAT, "'guided_whitespace_pattern': ' '", "guided_whitespace_pattern"},
		{API_CHAT, "'guided_whitespace_pattern': ' ', 'response_format': {'type': 'text'}",
		 "guided_whitespace_pattern"},
		{API_CHAT,
		 "'guided_whitespace_pattern': ' ', 'response_format': {'type': 'json_object'}",
		 ""},
		{API_CHAT, "'structured_outputs': {'regex': 'a', 'disable_any_whitespace': false}",
		 ""},
		{API_CHAT,
		 "'response_format': {'type': 'json_schema', 'json_schema': {'name': 'n', "
		 "'description': 'd', 'schema': {}, 'strict': false}}",
		 ""},
		{API_CHAT, "'parallel_tool_calls': false", "parallel_tool_calls"},
		{API_CHAT,
		 "'tools': [{'function': {'name': 'f'}}], 'tool_choice': 'none', "
		 "'parallel_tool_calls': false",
		 "parallel_tool_calls"},
		{API_CHAT, "'tools': [{'function': {'name': 'f', 'strict': true}}]",
		 "tools[].function.strict"},
		{API_CHAT,
		 "'tools': [{'function': {'name': 'f', 'strict': true}}], 'tool_choice': "
		 "'required', 'parallel_tool_calls': false",
		 ""},
		{API_CHAT,
		 "'reasoning_effort': 'low', 'chat_template_kwargs': {'reasoning_effort': 'high'}",
		 "reasoning_effort"},
		{API_CHAT, "'reasoning_effort': 'low'", ""},
		{API_EMBEDDING, "{'input': 'a', 'tools': [], 'continue_final_message': true}",
		 "tools, continue_final_message"},
		{API_TOKENIZE, "{'prompt': 'a', 'chat_template_kwargs': {'a': 1}}",
		 "chat_template_kwargs"},
		/* A part has what belongs to its type. */
		{API_CHAT,
		 "{'messages': [{'role': 'user', 'content': [{'type': 'image_url', 'image_url': "
		 "{'url': 'u', 'detail': 'low', 'format': 'png'}, 'text': 'a'}, {'type': 'text', "
		 "'text': 'b', 'image_url': {'url': 'v'}, 'file': {}}]}]}",
		 "messages[].content[].image_url.format, messages[].content[].text, "
		 "messages[].content[].image_url, messages[].content[].file"},
	};
	struct api_params p;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		parse(cases[i].kind, cases[i].body, &p);
		assert_string_equal(p.ignored, cases[i].ignored);
		api_params_free(&p);
	}
}

/* The report has a limit, whatever stands in the messages. */
TEST(reports_no_more_than_fits)
{
	char *body = malloc(1 << 16);
	struct api_params p;
	size_t n;

	n = (size_t)sprintf(body, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"");
	for (unsigned i = 0; i < 1000; i++)
		n += (size_t)sprintf(body + n, ", \"member%u\": %u", i, i);
	sprintf(body + n, "}]}");
	parse(API_CHAT, body, &p);
	assert_true(strlen(p.ignored) < API_IGNORED_MAX);
	assert_string_equal(p.ignored + strlen(p.ignored) - 5, ", ...");
	assert_ptr_equal(strstr(p.ignored, "messages[].member0, messages[].member1,"), p.ignored);
	api_params_free(&p);
	free(body);
}

TEST(knows_max_new_tokens)
{
	struct api_params p;

	parse(API_CHAT, "'max_new_tokens': 7", &p);
	assert_true(p.max_tokens_given && p.max_tokens == 7);
	api_params_free(&p);
	parse(API_COMPLETION, "{'prompt': 'a', 'max_new_tokens': 7, 'max_tokens': 7}", &p);
	assert_true(p.max_tokens_given && p.max_tokens == 7);
	api_params_free(&p);
	/* As ever. */
	parse(API_CHAT, "'max_tokens': 5, 'max_completion_tokens': 6", &p);
	assert_int_equal(p.max_tokens, 6);
	api_params_free(&p);
	parse(API_COMPLETION, "{'prompt': 'a', 'max_new_tokens': 0, 'echo': true, 'logprobs': 0}",
	      &p);
	assert_true(p.max_tokens_given && !p.max_tokens);
	api_params_free(&p);
}

/* It goes to the template; what the client says of its own goes first. */
TEST(passes_the_effort_on)
{
	struct api_params p;

	parse(API_CHAT, "'reasoning_effort': 'low'", &p);
	assert_string_equal(cJSON_GetObjectItem(p.template_kwargs, "reasoning_effort")->valuestring,
			    "low");
	assert_null(cJSON_GetObjectItem(p.template_kwargs, "enable_thinking"));
	api_params_free(&p);
	parse(API_CHAT, "'reasoning_effort': 'none', 'chat_template_kwargs': {'a': 1}", &p);
	assert_int_equal(cJSON_GetArraySize(p.template_kwargs), 3);
	assert_true(cJSON_IsFalse(cJSON_GetObjectItem(p.template_kwargs, "enable_thinking")));
	api_params_free(&p);
	parse(API_CHAT,
	      "'reasoning_effort': 'none', 'chat_template_kwargs': {'reasoning_effort': 'high', "
	      "'enable_thinking': true}",
	      &p);
	assert_int_equal(cJSON_GetArraySize(p.template_kwargs), 2);
	assert_true(cJSON_IsTrue(cJSON_GetObjectItem(p.template_kwargs, "enable_thinking")));
	api_params_free(&p);
	parse(API_CHAT, "'chat_template_kwargs': null, 'reasoning_effort': 'x'", &p);
	assert_non_null(p.template_kwargs);
	api_params_free(&p);
}

TEST_MAIN
