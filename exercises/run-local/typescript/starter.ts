// Read a streamed answer and its timing fields, as a client does.
//
// This file runs in Node.js as it is, without packages and without a build. Where a message says None, it means
// null. What is not known is null, not undefined.

class NotImplementedError extends Error {}

/** The next bytes of the body, any number of them; none (length 0) when the body has ended. */
type Read = () => Promise<Uint8Array>;
/** Call it with each piece of text as soon as its event is complete. */
type Show = (text: string) => void;
type Json = Record<string, any>;

/** One streamed answer. */
type Reply = {
  text: string; // all pieces of text, joined
  finish_reason: string | null; // "stop", "length", or null if the stream never said
  last: Json; // the last JSON object of the stream; the counts are in it. {} if there was none
  complete: boolean; // true if [DONE] arrived
};

/** What the fields of one answer tell. null where they do not tell it. */
type Rates = {
  prefill_tps: number | null; // prompt tokens computed per second of prompt time
  decode_tps: number | null; // output tokens per second, over the time after the first one
  ttft_ms: number | null; // milliseconds until the first token: loading the model and prompt time
  context_tokens: number | null; // tokens in the context after it: prompt, cached or not, and output
};

/**
 * Read a chat completion that arrives as server-sent events (SSE).
 *
 * The body is UTF-8. An event is one or more lines and ends with a blank line. Lines end with "\n" or "\r\n".
 * A line that starts with ":" is a comment. `data:` and at most one space come before the data; several
 * data lines of one event are joined with "\n". Other fields are ignored.
 * The data is a JSON object, or `[DONE]`: then return and do not read on.
 * The text is in choices[0].delta.content, the reason in choices[0].finish_reason; either may be missing or
 * null, and `choices` may be empty. An event without its blank line at the end of the body does not count.
 */
export async function stream(read: Read, show: Show): Promise<Reply> {
  throw new NotImplementedError("collect bytes, cut off whole events, show their text");
}

/**
 * The rates of an answer, from its last JSON object in one of three dialects.
 *
 * llama.cpp: body.timings has cache_n, prompt_n, prompt_ms, predicted_n, predicted_ms.
 *     prompt_n are the computed tokens, cache_n those that were in the cache. Milliseconds.
 * OpenAI: no timings, but body.usage has prompt_tokens and completion_tokens. It tells no time.
 * Ollama: load_duration, prompt_eval_count, prompt_eval_cached_count, prompt_eval_duration, eval_count,
 *     eval_duration. prompt_eval_count counts cached tokens too. Nanoseconds. A zero field is left out.
 *
 * In both dialects with times, the first output token falls into the prompt time.
 * A rate over no time, or over no token, is null.
 */
export function read_timings(body: Json): Rates {
  throw new NotImplementedError("tell the dialects apart, mind the units");
}
