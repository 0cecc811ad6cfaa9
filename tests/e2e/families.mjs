// SPDX-License-Identifier: MIT
//
// Families whose replies are in formats of their own, through the npm client `openai`.
//   families.mjs make FIXTURES DIR   makes models of the fixtures, with the tokens and templates that such models have
//   families.mjs ask SOCKET          asks them; their weights are noise, so what is to come is forced
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";

const families = {
	gptoss: {
		tokens: ["<|return|>", "<|constrain|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>", "<|call|>"],
		special: true,
		ends: ["<|return|>", "<|call|>"],
		template: `{%- if tools %}<|start|>developer<|message|>{{ tools | tojson }}<|end|>{%- endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}<|start|>functions to=assistant<|channel|>commentary<|message|>{{ m.content | tojson }}<|end|>
{%- elif m.tool_calls %}{%- for call in m.tool_calls %}<|start|>assistant<|channel|>commentary to=functions.{{ call.function.name }} {#- #}
 <|constrain|>json<|message|>{{ call.function.arguments | tojson }}<|call|>{%- endfor %}
{%- elif m.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>
{%- else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>
{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{%- endif %}{#- <|channel|>analysis #}`,
	},
	qwen35: {
		tokens: ["<think>", "</think>", "<tool_call>", "</tool_call>"],
		special: false,
		ends: ["<|im_end|>"],
		template: `{%- if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{%- for call in m.tool_calls or [] %}
<tool_call>
<function={{ call.function.name }}>
{%- for key, value in call.function.arguments | items %}
<parameter={{ key }}>
{{ value }}
</parameter>
{%- endfor %}
</function>
</tool_call>{%- endfor %}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
<think>
{% if enable_thinking is defined and not enable_thinking %}
</think>

{% endif %}{%- endif %}`,
	},
};

// The new tokens take the last places of the vocabulary, and those that were there go.
function make(fixture, directory, { tokens, special, ends, template }) {
	const read = (name) => JSON.parse(fs.readFileSync(path.join(fixture, name)));
	const write = (name, data) => fs.writeFileSync(path.join(directory, name), data);
	const tokenizer = read("tokenizer.json"), config = read("config.json"), { model } = tokenizer;
	const first = (config.vocab_size ?? config.text_config.vocab_size) - tokens.length;

	for (const [token, id] of Object.entries(model.vocab))
		if (id >= first)
			delete model.vocab[token];
	const joined = (merge) => (Array.isArray(merge) ? merge.join("") : merge.replace(" ", ""));
	model.merges = model.merges.filter((merge) => joined(merge) in model.vocab);
	tokens.forEach((content, i) => tokenizer.added_tokens.push({ id: first + i, content, special, normalized: false }));
	fs.mkdirSync(directory);
	for (const name of ["config.json", "model.safetensors", "preprocessor_config.json"])
		if (fs.existsSync(path.join(fixture, name)))
			fs.symlinkSync(path.join(fixture, name), path.join(directory, name));
	write("tokenizer.json", JSON.stringify(tokenizer));
	write("tokenizer_config.json", JSON.stringify({ eos_token: ends[0] }));
	write("chat_template.jinja", template);
	const id = (token) => tokenizer.added_tokens.find((added) => added.content === token).id;
	write("generation_config.json", JSON.stringify({ eos_token_id: ends.map(id) }));
}

if (process.argv[2] === "make") {
	for (const [name, family] of Object.entries(families))
		make(path.resolve(process.argv[3], name), path.join(process.argv[4], name), family);
	process.exit(0);
}

const { connect } = await import("./client.mjs");
const { client, dispatcher } = connect(process.argv[3]);
const messages = [{ role: "user", content: "What is the weather?" }];
const schema = {
	type: "object", additionalProperties: false, required: ["city", "degrees"],
	properties: { city: { enum: ["Oslo", "Rome"] }, degrees: { type: "integer", minimum: 1, maximum: 99 } },
};
const tools = [
	{ type: "function", function: { name: "get_weather", parameters: schema } },
	{ type: "function", function: { name: "now", parameters: { type: "object", properties: {}, additionalProperties: false } } },
];
const fits = (text) => {
	const { city, degrees, ...more } = JSON.parse(text);
	assert.ok(["Oslo", "Rome"].includes(city) && degrees >= 1 && degrees <= 99);
	assert.deepEqual(more, {});
};

// What comes whole and what streamed pieces add up to are the same.
async function both(wanted) {
	const whole = await client.chat.completions.create(wanted);
	const choice = whole.choices[0], sum = { content: "", reasoning_content: "", calls: [] };
	let finish = null;
	for await (const chunk of await client.chat.completions.create({ ...wanted, stream: true })) {
		const delta = chunk.choices[0]?.delta ?? {};
		sum.content += delta.content ?? "";
		sum.reasoning_content += delta.reasoning_content ?? "";
		for (const call of delta.tool_calls ?? []) {
			sum.calls[call.index] ??= { name: "", arguments: "" };
			sum.calls[call.index].name += call.function.name ?? "";
			sum.calls[call.index].arguments += call.function.arguments ?? "";
		}
		finish = chunk.choices[0]?.finish_reason ?? finish;
	}
	assert.equal(sum.content, choice.message.content ?? "");
	assert.equal(sum.reasoning_content, choice.message.reasoning_content ?? "");
	assert.deepEqual(sum.calls, (choice.message.tool_calls ?? []).map((call) => ({ ...call.function })));
	assert.equal(finish, choice.finish_reason);
	return { ...choice, usage: whole.usage };
}

// Calls that are forced; then their results go back.
async function callsTools(model, options) {
	const wanted = { model, messages, tools, parallel_tool_calls: false, max_tokens: 800, ...options };
	const required = await both({ ...wanted, tool_choice: "required" });
	assert.equal(required.finish_reason, "tool_calls");
	assert.ok(["get_weather", "now"].includes(required.message.tool_calls[0].function.name));
	const named = await both({ ...wanted, tool_choice: { type: "function", function: { name: "get_weather" } } });
	assert.equal(named.message.tool_calls.length, 1);
	assert.ok(!named.message.content);
	fits(named.message.tool_calls[0].function.arguments);
	const turn = await client.chat.completions.create({ model, tools, max_tokens: 4, ...options, messages: [...messages,
		{ role: "assistant", content: "", tool_calls: named.message.tool_calls },
		{ role: "tool", tool_call_id: named.message.tool_calls[0].id, content: "12 degrees" }] });
	assert.ok(turn.usage.prompt_tokens > 20);
}

// JSON of a schema, and as the client's helper reads it; @options may make the model reason before.
async function answersInForm(model, options) {
	const wanted = { model, messages, max_tokens: 800, ...options,
		response_format: { type: "json_schema", json_schema: { name: "weather", strict: true, schema } } };
	const answer = await both(wanted);
	assert.equal(answer.finish_reason, "stop");
	fits(answer.message.content);
	fits(JSON.stringify((await client.chat.completions.parse(wanted)).choices[0].message.parsed));
	return answer;
}

assert.deepEqual((await client.models.list()).data.map((model) => model.id).sort(), ["gptoss", "qwen35"]);
for (const model of Object.keys(families)) {
	const chat = await both({ model, messages, max_tokens: 16, seed: 5 });
	assert.ok(["stop", "length"].includes(chat.finish_reason));
	assert.ok((chat.message.content ?? "") + (chat.message.reasoning_content ?? ""));
}

// Qwen3.5 reasons up to its budget, or not at all.
const budget = { thinking_budget: 9, seed: 3 };
const thought = await both({ model: "qwen35", messages, max_tokens: 40, ...budget });
assert.ok(thought.message.reasoning_content);
assert.ok(thought.usage.completion_tokens_details.reasoning_tokens <= 10);
const silent = { chat_template_kwargs: { enable_thinking: false }, seed: 4 };
assert.ok(!(await both({ model: "qwen35", messages, max_tokens: 20, ...silent })).message.reasoning_content);
for (const options of [budget, silent]) {
	await callsTools("qwen35", options);
	const answer = await answersInForm("qwen35", options);
	assert.equal(Boolean(answer.message.reasoning_content), options === budget);
}

// gpt-oss speaks on channels; it ends its analysis sooner or later, here sooner.
const ends = families.gptoss.tokens.indexOf("<|end|>") + 512 - families.gptoss.tokens.length;
let reasoned = 0, plain = 0;
for (let seed = 0; seed < 40 && !(reasoned && plain); seed++) {
	const answer = await answersInForm("gptoss", { seed, logit_bias: { [ends]: 8 } });
	assert.ok(!answer.message.content.includes("<|"));
	assert.ok(!answer.message.reasoning_content?.includes("<|"));
	reasoned += answer.message.reasoning_content ? 1 : 0;
	plain += answer.message.reasoning_content ? 0 : 1;
}
assert.ok(reasoned && plain, `${reasoned} replies with reasoning, ${plain} without`);
await callsTools("gptoss", { seed: 1, logit_bias: { [ends]: 8 } });

await dispatcher.close();
console.log("the OpenAI client is content");
