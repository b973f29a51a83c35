// The guest for TypeScript: imports the learner's file and answers the judge's calls, as guest.py does.
//
// Node.js runs this in place of the Python runner, in the same process, behind the same two pipes and with
// the same limits (node_guest.py). argv: the pipe to read, the pipe to write, the file with the Load message.
// A call that gives a promise is answered when the promise settles. A function of the judge blocks until it
// is answered, so that the order of what the learner's code does is the order in which the judge sees it,
// and gives a promise of the answer.

import { readSync, writeSync } from "node:fs";
import { registerHooks, stripTypeScriptTypes } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { NotPlain, decode, encode, pack, unpack } from "./node_values.mjs";

const LOAD = 1, CALL = 2, GET = 3, PUT = 4, ANSWER = 5;
const DONE = 11, RAISED = 12, CALL_BACK = 13, HELLO = 14;
const MAX_TO_JUDGE = 64 * 2 ** 20;
const MESSAGE_CAP = 2000;
const ERRORS = { TypeError, IndexError: RangeError, ValueError: RangeError };

const [incoming, outgoing, loadFile] = process.argv.slice(2).map(Number);
process.argv.length = 1;
Error.stackTraceLimit = 50;
const now = performance.now.bind(performance);
const soon = setImmediate;
const leave = process.exit.bind(process);

class MissingEntry extends Error {}
class NeverSettled extends Error {}

const kept = [];
const nonces = [];
let learner = {}; // the learner's module
let file = "", url = "", source = [];
let away = 0; // milliseconds spent in functions of the judge
let own = 0; // seconds that the newest call spent in the learner's code
let giveUp = null; // rejects the call that is being waited for

// --- frames -------------------------------------------------------------------------------------

function readExactly(fd, count) {
  const bytes = new Uint8Array(count);
  for (let filled = 0; filled < count; ) {
    const got = readSync(fd, bytes, filled, count - filled, null);
    if (got === 0) leave(0); // the judge has closed the pipe
    filled += got;
  }
  return bytes;
}

function receive(fd = incoming) {
  const header = readExactly(fd, 4);
  return decode(readExactly(fd, new DataView(header.buffer).getUint32(0)));
}

function frameOf(message) {
  const frame = encode(message, 4);
  new DataView(frame.buffer).setUint32(0, frame.length - 4);
  return frame;
}

function send(frame) {
  for (let sent = 0; sent < frame.length; ) sent += writeSync(outgoing, frame, sent, frame.length - sent);
}

function answerFrame(nonce, value) {
  const frame = frameOf([DONE, nonce, value, own]);
  if (frame.length > MAX_TO_JUDGE) {
    throw new NotPlain(`${frame.length >> 20} MiB of data; ${MAX_TO_JUDGE >> 20} is the limit`);
  }
  return frame;
}

// --- calls --------------------------------------------------------------------------------------

async function handle(message) {
  const nonce = message[1];
  nonces.push(nonce);
  let frame;
  own = 0;
  try {
    frame = answerFrame(nonce, await answer(message));
  } catch (error) {
    frame = raisedFrame(nonce, error);
  }
  nonces.pop();
  send(frame);
}

async function answer(message) {
  const [kind, , first, name] = message;
  if (kind === LOAD) return await timed(() => load(message));
  if (kind === CALL) return outcome(await timed(() => called(message)), message);
  return plainAnswer(kind, first, name);
}

/** Put and Get: no code of the learner's runs but getters. */
function plainAnswer(kind, first, name) {
  if (kind === PUT) return keep(unpack(first, special));
  if (kind === GET) return pack(name ? kept[first][name] : kept[first]);
  throw new RangeError(`message ${kind} is not spoken here`);
}

function called([, , handleNumber, name, args, kwargs]) {
  const target = handleNumber === null ? learner : kept[handleNumber];
  const values = args.map((tree) => unpack(tree, special));
  // JavaScript has no keyword arguments: they come as one object at the end
  if (kwargs.size) values.push(Object.fromEntries([...kwargs].map(([key, tree]) => [key, unpack(tree, special)])));
  const found = target[name];
  return /^class\b/.test(Function.prototype.toString.call(found)) ? new found(...values) : target[name](...values);
}

function outcome(value, message) {
  return message[6] ? keep(value) : pack(value);
}

function keep(value) {
  return ["h", kept.push(value) - 1];
}

/** Run the learner's code until what it gives has settled, and note its own seconds. */
async function timed(code) {
  const started = now(), before = away;
  let unseen = null;
  try {
    const value = await new Promise((resolve, reject) => {
      giveUp = (error) => reject((unseen = { error }).error);
      Promise.resolve(code()).then(resolve, reject);
    });
    own = Math.max(0, now() - started - (away - before)) / 1000;
    await new Promise((resolve) => soon(resolve)); // a rejection that nobody looked at comes up before this
    if (unseen) throw unseen.error;
    return value;
  } finally {
    own ||= Math.max(0, now() - started - (away - before)) / 1000;
    giveUp = null;
  }
}

/** A call that comes while the learner's code waits for the judge: it must answer at once. */
function handleNested(message) {
  const nonce = message[1];
  nonces.push(nonce);
  let frame;
  own = 0;
  try {
    const [kind, , first, name] = message;
    const value = kind === CALL ? called(message) : null;
    if (typeof value?.then === "function") {
      value.then(() => {}, () => {});
      throw new TypeError(`${name} is async; inside a function of the grader it must answer at once`);
    }
    frame = answerFrame(nonce, kind === CALL ? outcome(value, message) : plainAnswer(kind, first, name));
  } catch (error) {
    frame = raisedFrame(nonce, error);
  }
  nonces.pop();
  send(frame);
}

// --- functions and objects of the judge ---------------------------------------------------------

function special([tag, first, methods, attrs, label]) {
  if (tag === "h") return kept[first];
  if (tag !== "p") throw new TypeError(`a value with the unknown tag ${tag}`);
  if (methods === null) return remote(first, "", label);
  const made = Object.fromEntries([...attrs].map(([name, tree]) => [name, unpack(tree, special)]));
  for (const name of methods) made[name] = remote(first, name, name);
  return made;
}

function remote(target, method, label) {
  const stub = (...args) => new Promise((resolve) => resolve(callBack(target, method, args)));
  return Object.defineProperty(stub, "name", { value: label });
}

function callBack(target, method, args) {
  const nonce = nonces.at(-1) ?? new Uint8Array();
  const frame = frameOf([CALL_BACK, nonce, target, method, args.map(pack), new Map()]);
  const started = now(), before = away;
  send(frame);
  let message = receive();
  for (; message[0] !== ANSWER; message = receive()) handleNested(message);
  away = before + now() - started; // calls inside it have their own seconds
  const [, , value, kind, text] = message;
  if (kind) throw new (ERRORS[kind] ?? Error)(text);
  return unpack(value, special);
}

// --- the learner's file -------------------------------------------------------------------------

async function load([, , name, text, entry, folder]) {
  file = name;
  source = text.split("\n");
  url = pathToFileURL(join(folder, name)).href;
  const code = stripTypeScriptTypes(text, { mode: "strip" });
  registerHooks({
    resolve: (wanted, context, next) =>
      wanted === url ? { url, format: "module", shortCircuit: true } : next(wanted, context),
    load: (wanted, context, next) =>
      wanted === url ? { format: "module", source: code, shortCircuit: true } : next(wanted, context),
  });
  learner = await import(url);
  for (const wanted of entry) {
    if (typeof learner[wanted] === "function") continue;
    throw new MissingEntry(`${file} exports no function '${wanted}'; the checks call it by that name.`);
  }
  return null;
}

// --- what went wrong, as the judge wants it -------------------------------------------------------

function raisedFrame(nonce, error) {
  const { kind, message, lines, where } = described(error);
  return frameOf([RAISED, nonce, kind, message, lines, where, own]);
}

function described(error) {
  if (!(error instanceof Error)) {
    return { kind: `a thrown ${typeof error}`, message: wellFormed(safely(() => String(error))), lines: [], where: "" };
  }
  const kind = safely(() => (error.name !== "Error" ? error.name : error.constructor.name)) || "Error";
  const own = kind === "SyntaxError" ? syntaxPlace(error) : null;
  const { lines, where } = own ?? places(error);
  const message = safely(() => String(error.message).slice(0, MESSAGE_CAP));
  return { kind: wellFormed(String(kind).slice(0, 100)), message: wellFormed(own?.message ?? message), lines, where };
}

/** The learner's part of a stack trace (at most the last four places), and `file:line` of the innermost. */
function places(error) {
  const found = [];
  for (const line of safely(() => String(error.stack)).split("\n")) {
    const at = line.lastIndexOf(`${url}:`);
    const frame = /^\s+at (?:async )?(?:(.+) \()?$/.exec(line.slice(0, Math.max(at, 0)));
    const number = at < 0 ? NaN : parseInt(line.slice(at + url.length + 1), 10);
    if (!frame || !number) continue;
    const known = found.at(-1);
    if (known?.number !== number || known.name !== frame[1]) found.push({ number, name: frame[1] });
  }
  const lines = found.slice(0, 4).reverse().flatMap(({ number, name }) => [
    `${file}, line ${number}${name ? `, in ${wellFormed(name)}` : ""}`,
    `    ${shownLine(number)}`,
  ]);
  return { lines, where: found.length ? `${file}:${found[0].number}` : "" };
}

function shownLine(number) {
  return wellFormed((source[number - 1] ?? "").trim().slice(0, 200));
}

/** Where a SyntaxError of the learner's own file is; null for one that its running code threw. */
function syntaxPlace(error) {
  const number = safely(() => lineOfSyntaxError(error));
  if (!number) return null;
  const message = safely(() => String(error.message)).split("\n")[0].replace(/^\s*x\s+/, "").slice(0, MESSAGE_CAP);
  return { message, lines: [shownLine(number)], where: `${file}:${number}` };
}

function lineOfSyntaxError(error) {
  const stack = String(error.stack);
  if (stack.startsWith(`${url}:`)) return parseInt(stack.slice(url.length + 1), 10); // V8, on import
  if (!String(error.code).endsWith("_TYPESCRIPT_SYNTAX")) return 0;
  return error.startLine || parseInt(/:(\d+)\n/.exec(stack)?.[1] ?? "0", 10);
}

function safely(get) {
  try {
    return get();
  } catch {
    return ""; // a learner's error may have a getter that throws
  }
}

function wellFormed(text) {
  return String(text).toWellFormed();
}

// --- the loop -----------------------------------------------------------------------------------

function unhandled(error) {
  if (giveUp) return giveUp(error);
  process.stderr.write(`${safely(() => error.stack ?? String(error))}\n`);
  leave(1);
}

process.on("unhandledRejection", unhandled);
process.on("uncaughtException", unhandled);
process.on("beforeExit", () => {
  // nothing is left to wait for: what the call waits for can never come
  if (giveUp) soon(giveUp, new NeverSettled());
});

async function serve() {
  stripTypeScriptTypes(""); // loads the compiler: no part of the learner's time
  send(frameOf([HELLO, new Uint8Array(), []]));
  await handle(receive(loadFile));
  for (;;) await handle(receive());
}

serve();
