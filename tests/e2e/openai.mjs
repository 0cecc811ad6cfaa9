// SPDX-License-Identifier: MIT
//
// The npm client `openai` against a running daemon: node openai.mjs SOCKET, or over TCP node openai.mjs
// http://HOST:PORT (client.mjs).
import assert from "node:assert/strict";
import { OpenAI, connect } from "./client.mjs";

const { tcp, base, key, dispatcher, fetch, client } = connect(process.argv[2]);
const messages = [{ role: "user", content: "Tell me of a fox." }];

// Without a valid key the client's own error says so.
if (tcp) {
	const stranger = client.withOptions({ apiKey: "sk-of-nobody-0123456789" });
	await assert.rejects(stranger.models.list(), (error) => {
		assert.ok(error instanceof OpenAI.AuthenticationError);
		assert.equal(error.status, 401);
		assert.equal(error.code, "invalid_api_key");
		assert.ok(!error.message.includes("sk-of-nobody"));
		return true;
	});
}

const models = await client.models.list();
assert.equal(models.data[0].id, "demo");
assert.equal((await client.models.retrieve("demo")).id, "demo");

// A chat, whole and streamed, says the same with the same seed.
const wanted = { model: "demo", messages, max_tokens: 24, seed: 42, temperature: 0.9 };
const whole = await client.chat.completions.create(wanted);
assert.equal(whole.object, "chat.completion");
assert.equal(whole.choices[0].message.role, "assistant");
assert.ok(["stop", "length"].includes(whole.choices[0].finish_reason));
assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);

const stream = await client.chat.completions.create({ ...wanted, stream: true, stream_options: { include_usage: true } });
let text = "", finish = null, usage = null, events = 0;
for await (const chunk of stream) {
	assert.equal(chunk.object, "chat.completion.chunk");
	events++;
	text += chunk.choices[0]?.delta?.content ?? "";
	finish = chunk.choices[0]?.finish_reason ?? finish;
	usage = chunk.usage ?? usage;
}
assert.equal(text, whole.choices[0].message.content);
assert.equal(finish, whole.choices[0].finish_reason);
assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
assert.ok(events > 3);

// The client's own helper puts the pieces together.
const runner = client.chat.completions.stream({ ...wanted, stream: true });
assert.equal((await runner.finalChatCompletion()).choices[0].message.content, text);

const completion = await client.completions.create({ model: "demo", prompt: ["Once", "The fox"], max_tokens: 4, n: 2, logprobs: 1 });
assert.equal(completion.choices.length, 4);
assert.ok(completion.choices[0].logprobs.token_logprobs[0] <= 0);

const scored = await client.chat.completions.create({ model: "demo", messages, max_tokens: 2, logprobs: true, top_logprobs: 3 });
assert.equal(scored.choices[0].logprobs.content[0].top_logprobs.length, 3);
assert.ok(Array.isArray(scored.choices[0].logprobs.content[0].bytes));

// What the client has members for and is not about the answer is accepted, and said in a header; what is misspelt is refused.
const { data, response } = await client.chat.completions.create({ ...wanted, metadata: { trace: "1" }, store: false, user: "u",
	service_tier: "auto", safety_identifier: "s", prompt_cache_key: "k", verbosity: "medium", modalities: ["text"],
	parallel_tool_calls: true, reasoning_effort: "low" }).withResponse();
assert.equal(data.choices[0].message.content, whole.choices[0].message.content);
assert.equal(response.headers.get("Txda-Ignored"), "metadata, store, user, service_tier, safety_identifier, prompt_cache_key, reasoning_effort");
await assert.rejects(client.chat.completions.create({ ...wanted, temprature: 1 }), (e) => {
	assert.ok(e instanceof OpenAI.BadRequestError);
	assert.equal(e.param, "temprature");
	assert.match(e.message, /temperature/);
	return true;
});

// Structured output: what comes is JSON of the schema, streamed or not, and as the client's helper reads it.
const schema = {
	type: "object",
	properties: {
		name: { type: "string", maxLength: 12 },
		age: { type: "integer", minimum: 1, maximum: 99 },
		tags: { type: "array", items: { enum: ["red", "sly", "old"] }, minItems: 1, maxItems: 3 },
	},
	required: ["name", "age", "tags"],
	additionalProperties: false,
};
const formed = {
	model: "demo", messages, max_tokens: 400, seed: 7,
	response_format: { type: "json_schema", json_schema: { name: "fox", strict: true, schema } },
};
const check = (text) => {
	const fox = JSON.parse(text);
	assert.deepEqual(Object.keys(fox), ["name", "age", "tags"]);
	assert.ok(fox.age >= 1 && fox.age <= 99 && fox.name.length <= 12);
	assert.ok(fox.tags.length >= 1 && fox.tags.length <= 3);
};
for (let seed = 0; seed < 8; seed++) {
	const answer = await client.chat.completions.create({ ...formed, seed, temperature: 1.2 });
	assert.equal(answer.choices[0].finish_reason, "stop");
	check(answer.choices[0].message.content);
}
let streamed = "";
for await (const chunk of await client.chat.completions.create({ ...formed, stream: true }))
	streamed += chunk.choices[0]?.delta?.content ?? "";
check(streamed);
check(JSON.stringify((await client.chat.completions.parse(formed)).choices[0].message.parsed ?? JSON.parse(streamed)));

// Tools: calls are forced, their arguments fit, streamed ones add up.
const tools = [
	{ type: "function", function: { name: "get_weather", parameters: {
		type: "object", properties: { city: { type: "string", maxLength: 10 }, unit: { enum: ["C", "F"] } },
		required: ["city", "unit"], additionalProperties: false } } },
	{ type: "function", function: { name: "now" } },
];
const called = { model: "demo", messages, tools, max_tokens: 600, seed: 3, parallel_tool_calls: false,
	tool_choice: { type: "function", function: { name: "get_weather" } } };
const call = (await client.chat.completions.create(called)).choices[0];
assert.equal(call.message.content, null);
assert.equal(call.message.tool_calls.length, 1);
assert.equal(call.message.tool_calls[0].function.name, "get_weather");
assert.ok(["C", "F"].includes(JSON.parse(call.message.tool_calls[0].function.arguments).unit));
assert.equal(call.finish_reason, "stop");
const final = await client.chat.completions.stream({ ...called, stream: true }).finalChatCompletion();
assert.equal(final.choices[0].message.tool_calls[0].function.arguments, call.message.tool_calls[0].function.arguments);
const required = (await client.chat.completions.create({ ...called, tools: tools.slice(0, 1), tool_choice: "required" })).choices[0];
assert.equal(required.finish_reason, "tool_calls");
assert.equal(required.message.tool_calls.length, 1);

// Embeddings: the client asks for base64 and decodes it; floats say the same.
const inputs = ["The fox is sly.", "A fox was sly once.", "There was a king."];
const vectors = await client.embeddings.create({ model: "embed", input: inputs });
const floats = await client.embeddings.create({ model: "embed", input: inputs, encoding_format: "float" });
assert.deepEqual(vectors.data.map((entry) => entry.index), [0, 1, 2]);
assert.deepEqual(vectors.data.map((entry) => Array.from(entry.embedding)), floats.data.map((entry) => entry.embedding.map(Math.fround)));
assert.equal(vectors.usage.total_tokens, vectors.usage.prompt_tokens);
assert.ok(vectors.usage.prompt_tokens >= 12);
const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
for (const entry of vectors.data)
	assert.ok(Math.abs(dot(entry.embedding, entry.embedding) - 1) < 1e-5);

// The best of several, and beams.
const best = await client.completions.create({ model: "demo", prompt: "Once", max_tokens: 6, n: 2, best_of: 5, seed: 1 });
assert.deepEqual(best.choices.map((choice) => choice.index), [0, 1]);

// Errors arrive as the client's classes.
await assert.rejects(client.chat.completions.create({ model: "nobody", messages }), (e) => {
	assert.ok(e instanceof OpenAI.NotFoundError);
	assert.equal(e.status, 404);
	assert.equal(e.code, "model_not_found");
	assert.match(e.message, /served are: demo/);
	return true;
});
await assert.rejects(client.chat.completions.create({ model: "demo", messages, temperature: 9 }), (e) => {
	assert.ok(e instanceof OpenAI.BadRequestError);
	assert.equal(e.param, "temperature");
	assert.match(e.message, /between 0 and 2, not 9/);
	return true;
});

// An abort ends the request in the daemon, too.
const controller = new AbortController();
const long = await client.completions.create(
	{ model: "demo", prompt: "Once upon a time", max_tokens: 1500, stream: true, ignore_eos: true },
	{ signal: controller.signal },
);
for await (const chunk of long) {
	assert.equal(chunk.object, "text_completion");
	break;
}
controller.abort();
let running = "";
for (let tries = 0; tries < 50 && running !== "0"; tries++) {
	await new Promise((resolve) => setTimeout(resolve, 100));
	const metrics = await (await fetch(`${base}/metrics`, { headers: { Authorization: `Bearer ${key}` } })).text();
	// Who is no administrator sees its own requests alone.
	running = (/^txda_num_requests_running\{model_name="demo"\} (\S+)$/m.exec(metrics) ??
		/^txda_user_requests\{user="node"\} (\S+)$/m.exec(metrics))?.[1] ?? "";
}
assert.equal(running, "0");

await dispatcher.close();
console.log("the OpenAI client is content");
