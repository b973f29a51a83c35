// fails: whole events
// says: choices may be empty
// Read a streamed answer and its timing fields, as a client does.

type Read = () => Promise<Uint8Array>;
type Show = (text: string) => void;
type Json = Record<string, any>;
type Reply = { text: string; finish_reason: string | null; last: Json; complete: boolean };
type Rates = {
  prefill_tps: number | null;
  decode_tps: number | null;
  ttft_ms: number | null;
  context_tokens: number | null;
};

/** Read server-sent events from `read`, give their text to `show`; see starter.ts for the rules. */
export async function stream(read: Read, show: Show): Promise<Reply> {
  const reply: Reply = { text: "", finish_reason: null, last: {}, complete: false };
  for await (const data of events(read)) {
    if (data === "[DONE]") return { ...reply, complete: true };
    reply.last = JSON.parse(data);
    const choice = reply.last.choices[0];
    const piece = choice.delta.content;
    if (piece) {
      reply.text += piece;
      show(piece);
    }
    reply.finish_reason = choice?.finish_reason ?? reply.finish_reason;
  }
  return reply;
}

/** The data of each whole event. The decoder keeps the bytes of a character that was cut in two. */
async function* events(read: Read): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  let data: string[] = [];
  for (let chunk = await read(); chunk.length > 0; chunk = await read()) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines.map((whole) => whole.replace(/\r$/, ""))) {
      if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
      else if (line === "" && data.length > 0) {
        yield data.join("\n");
        data = [];
      }
    }
  }
}

/** The rates of an answer, from its last JSON object in one of three dialects. */
export function read_timings(body: Json): Rates {
  if (body.timings) {
    const t = body.timings;
    return rates(t.prompt_n, t.prompt_ms / 1e3, t.predicted_n, t.predicted_ms / 1e3, 0, t.cache_n + t.prompt_n);
  }
  if (body.usage) {
    const context_tokens = body.usage.prompt_tokens + body.usage.completion_tokens;
    return { prefill_tps: null, decode_tps: null, ttft_ms: null, context_tokens };
  }
  const { load_duration = 0, prompt_eval_count = 0, prompt_eval_cached_count = 0 } = body;
  const { prompt_eval_duration = 0, eval_count = 0, eval_duration = 0 } = body;
  const computed = prompt_eval_count - prompt_eval_cached_count;
  const [load, prefill, decode] = [load_duration, prompt_eval_duration, eval_duration].map((ns) => ns / 1e9);
  return rates(computed, prefill, eval_count, decode, load, prompt_eval_count);
}

/** Counts are tokens, times are seconds. */
function rates(
  computed: number, prefill: number, output: number, decode: number, load: number, prompt: number,
): Rates {
  return {
    prefill_tps: prefill && computed ? computed / prefill : null,
    decode_tps: decode && output > 1 ? (output - 1) / decode : null,
    ttft_ms: load + prefill ? (load + prefill) * 1e3 : null,
    context_tokens: prompt + output,
  };
}
