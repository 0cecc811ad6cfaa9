// SPDX-License-Identifier: MIT
//
// The npm client `openai` (6.x, over undici) on a daemon at PLACE: a socket's path, or http://HOST:PORT with a key in
// TXDA_API_KEY. TXDA_NODE_MODULES names the node_modules directory that has both.
import { createRequire } from "node:module";
import path from "node:path";

const require = createRequire(path.join(process.env.TXDA_NODE_MODULES, "x.js"));
export const { OpenAI } = require("openai");
const { Agent, fetch: undiciFetch } = require("undici");

export function connect(place) {
	const tcp = place.startsWith("http:");
	const base = tcp ? place : "http://localhost";
	const key = process.env.TXDA_API_KEY ?? "none";
	const dispatcher = new Agent(tcp ? {} : { connect: { socketPath: place } });
	const fetch = (url, init) => undiciFetch(url, { ...init, dispatcher });
	return { tcp, base, key, dispatcher, fetch, client: new OpenAI({ apiKey: key, baseURL: `${base}/v1`, maxRetries: 0, fetch }) };
}
