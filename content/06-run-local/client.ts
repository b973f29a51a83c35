// Asks an OpenAI-compatible server and prints the answer as it comes, then how long it took.
//   node client.ts [URL] [PROMPT]                           with Node.js 22.18, 23.6 or newer
//   node --input-type=module - [URL] [PROMPT] < client.ts   with older ones, from 18 on
const [url = "http://127.0.0.1:8080", prompt = "What is a KV cache?"] = process.argv.slice(2);
const models = await fetch(`${url}/v1/models`);
if (!models.ok) throw new Error(`${models.status}: ${await models.text()}`);
const model = (await models.json()).data[0].id;
const started = performance.now();
const response = await fetch(`${url}/v1/chat/completions`, {
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify({
    model, messages: [{ role: "user", content: prompt }], max_tokens: 64, temperature: 0,
    stream: true, stream_options: { include_usage: true },
  }),
});
if (!response.ok || !response.body) throw new Error(`${response.status}: ${await response.text()}`);
let rest = "", ttft = 0, usage, timings;
const decoder = new TextDecoder(); // keeps the bytes of a character that was cut in two
const reader = response.body.getReader();
for (let read = await reader.read(); !read.done; read = await reader.read()) {
  const lines = (rest + decoder.decode(read.value, { stream: true })).split("\n");
  rest = lines.pop() ?? ""; // an event may be cut in two as well
  for (const line of lines) {
    const data = line.startsWith("data:") ? line.slice(5).trim() : "";
    if (!data || data === "[DONE]") continue;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    const text = chunk.choices[0]?.delta?.content; // the usage chunk has no choices
    if (text) {
      ttft ||= performance.now() - started; // the first chunk has a role and no text
      process.stdout.write(text);
    }
    usage = chunk.usage ?? usage;
    timings = chunk.timings ?? timings;
  }
}
console.log(`\n${JSON.stringify({ ttft_ms: ttft, e2e_ms: performance.now() - started, usage, timings })}`);
export {};
