// The npm package `openai` as a load: node clients_openai.mjs FOLDER-WITH-NODE_MODULES URL REQUESTS USERS PAUSE TOKENS
// Each user sends one request, reads the answer, waits PAUSE seconds and goes on; half of them stream.
// Prints {"ok": count, "errors": [...]}.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { setTimeout as pause } from "node:timers/promises";

const [folder, url, requests, users, seconds, tokens] = process.argv.slice(2);
const { default: OpenAI } = await import(pathToFileURL(createRequire(`${folder}/`).resolve("openai")).href);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const model = (await client.models.list()).data[0].id;

async function ask(number) {
  const body = {
    model, max_tokens: Number(tokens), messages: [{ role: "user", content: `Count from ${number}.` }],
  };
  if (number % 2) {
    let reason = null;
    const stream = await client.chat.completions.create({ ...body, stream: true, stream_options: { include_usage: true } });
    for await (const chunk of stream) reason = chunk.choices[0]?.finish_reason ?? reason;
    return reason;
  }
  return (await client.chat.completions.create(body)).choices[0].finish_reason;
}

const told = { ok: 0, errors: [] };
async function user(place) {
  for (let number = place; number < Number(requests); number += Number(users)) {
    if (number >= Number(users)) await pause(1000 * Number(seconds));
    try {
      const reason = await ask(number);
      if (reason === "stop" || reason === "length") told.ok += 1;
      else told.errors.push(`finish_reason ${reason}`);
    } catch (error) {
      told.errors.push(`${error.name}: ${error.message} ${error.cause ?? ""}`);
    }
  }
}
await Promise.all(Array.from({ length: Number(users) }, (_, place) => user(place)));
console.log(JSON.stringify(told));
