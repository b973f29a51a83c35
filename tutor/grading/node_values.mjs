// Values between judge and guest, in JavaScript: MessagePack and the tags of values.py.
//
// Only what the two sides say is here: no extension types, no streaming. A plain object or a Map becomes a
// dict, an instance of a class a record of its fields, a typed array other than Uint8Array a NumPy array.
// Whole numbers within 2**53 become ints, all others floats; NaN and the infinities stay what they are. null is None.
// undefined is None as the result of a call, since a function that returns nothing gives it; inside a value
// it is refused, because it could mean "no field" as well as "no value".

export const MAX_DEPTH = 64;
const MAX_DRAWN = 1_000_000;
const utf8 = new TextEncoder();
const text = new TextDecoder("utf-8");

/** A value that cannot cross; the message continues the sentence "it returned ...". */
export class NotPlain extends Error {}

// --- MessagePack (https://github.com/msgpack/msgpack/blob/master/spec.md) ---------------------------

/** The value in `bytes`; maps become Maps, integers outside 2**53 BigInts. */
export function decode(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const take = (count) => bytes.subarray(at, (at += count));
  const number = (method, size) => {
    const value = view[method](at);
    at += size;
    return typeof value === "bigint" && Number.isSafeInteger(Number(value)) ? Number(value) : value;
  };
  const items = (count) => Array.from({ length: count }, read);
  const pairs = (count) => new Map(Array.from({ length: count }, () => [read(), read()]));
  const long = (code, first) => number(["getUint8", "getUint16", "getUint32"][code - first], 1 << (code - first));
  function read() {
    const code = number("getUint8", 1);
    if (code < 0x80) return code;
    if (code < 0x90) return pairs(code & 15);
    if (code < 0xa0) return items(code & 15);
    if (code < 0xc0) return text.decode(take(code & 31));
    if (code >= 0xe0) return code - 256;
    switch (code) {
      case 0xc0: return null;
      case 0xc2: return false;
      case 0xc3: return true;
      case 0xc4: case 0xc5: case 0xc6: return new Uint8Array(take(long(code, 0xc4)));
      case 0xca: return number("getFloat32", 4);
      case 0xcb: return number("getFloat64", 8);
      case 0xcc: case 0xcd: case 0xce: return long(code, 0xcc);
      case 0xcf: return number("getBigUint64", 8);
      case 0xd0: return number("getInt8", 1);
      case 0xd1: return number("getInt16", 2);
      case 0xd2: return number("getInt32", 4);
      case 0xd3: return number("getBigInt64", 8);
      case 0xd9: case 0xda: case 0xdb: return text.decode(take(long(code, 0xd9)));
      case 0xdc: return items(number("getUint16", 2));
      case 0xdd: return items(number("getUint32", 4));
      case 0xde: return pairs(number("getUint16", 2));
      case 0xdf: return pairs(number("getUint32", 4));
      default: throw new RangeError(`MessagePack type ${code} is not spoken here`);
    }
  }
  return read();
}

/** A growing buffer; `encode` writes trees into it. */
class Writer {
  bytes = new Uint8Array(256);
  view = new DataView(this.bytes.buffer);
  at = 0;

  room(count) {
    if (this.at + count > this.bytes.length) {
      const more = new Uint8Array(Math.max(2 * this.bytes.length, this.at + count));
      more.set(this.bytes);
      this.bytes = more;
      this.view = new DataView(more.buffer);
    }
    const at = this.at;
    this.at += count;
    return at;
  }

  // room() may replace bytes and view, so it comes before they are looked at
  byte(code) { this.number("setUint8", 1, code); }

  number(method, size, value) {
    const at = this.room(size);
    this.view[method](at, value);
  }

  sized(count, codes) {
    const size = count < 256 && codes[0] ? 0 : count < 65536 ? 1 : 2;
    this.byte(codes[size]);
    this.number(["setUint8", "setUint16", "setUint32"][size], 1 << size, count);
  }

  data(bytes) {
    const at = this.room(bytes.length);
    this.bytes.set(bytes, at);
  }
}

/** One tree (null, booleans, numbers, BigInts within 64 bits, strings, Uint8Arrays, arrays, Maps) as bytes. */
export function encode(tree, header = 0) {
  const out = new Writer();
  out.room(header);
  write(tree, out);
  return out.bytes.subarray(0, out.at);
}

function write(tree, out) {
  if (tree === null) out.byte(0xc0);
  else if (typeof tree === "boolean") out.byte(tree ? 0xc3 : 0xc2);
  else if (typeof tree === "number") writeNumber(tree, out);
  else if (typeof tree === "bigint") {
    out.byte(tree < 0n ? 0xd3 : 0xcf);
    out.number(tree < 0n ? "setBigInt64" : "setBigUint64", 8, tree);
  } else if (typeof tree === "string") {
    const bytes = utf8.encode(tree);
    out.sized(bytes.length, [0xd9, 0xda, 0xdb]);
    out.data(bytes);
  } else if (tree instanceof Uint8Array) {
    out.sized(tree.length, [0xc4, 0xc5, 0xc6]);
    out.data(tree);
  } else if (tree instanceof Map) {
    out.sized(tree.size, [0, 0xde, 0xdf]);
    for (const [key, value] of tree) { write(key, out); write(value, out); }
  } else {
    out.sized(tree.length, [0, 0xdc, 0xdd]);
    for (const item of tree) write(item, out);
  }
}

function writeNumber(value, out) {
  if (!Number.isSafeInteger(value) || Object.is(value, -0)) {
    out.byte(0xcb);
    out.number("setFloat64", 8, value);
  } else if (value >= 0 && value < 128) out.byte(value);
  else {
    out.byte(0xd3);
    out.number("setBigInt64", 8, BigInt(value));
  }
}

// --- tagged trees, as in values.py ------------------------------------------------------------------

const DTYPES = new Map([
  ["<f4", Float32Array], ["<f8", Float64Array], ["|i1", Int8Array], ["|u1", Uint8Array], ["<i2", Int16Array],
  ["<u2", Uint16Array], ["<i4", Int32Array], ["<u4", Uint32Array], ["<i8", BigInt64Array], ["<u8", BigUint64Array],
]);
const NAMES = new Map([...DTYPES].map(([dtype, kind]) => [kind, dtype]));

/** A learner's value as a tree; NotPlain says what cannot cross. */
export function pack(value) {
  return value === undefined ? null : packed(value, new Set(), "");
}

function packed(value, above, where) {
  switch (typeof value) {
    case "boolean": case "number": return value;
    case "string":
      if (!value.isWellFormed()) throw new NotPlain("text with a lone surrogate, which is no valid Unicode");
      return value;
    case "bigint": return packedBig(value);
    case "object": break;
    case "undefined":
      throw new NotPlain(`a value whose ${where} is undefined (for "nothing" write null)`);
    default: throw new NotPlain(`a ${typeof value}`);
  }
  if (value === null) return null;
  if (typeof value.then === "function") throw new NotPlain("a promise inside a value (await it first)");
  if (above.size >= MAX_DEPTH) throw new NotPlain(`a value nested more than ${MAX_DEPTH} levels deep`);
  if (above.has(value)) throw new NotPlain("a value that contains itself");
  above.add(value);
  const tree = composite(value, above, where);
  above.delete(value);
  return tree;
}

function packedBig(value) {
  if (value >= -(2n ** 63n) && value < 2n ** 64n) return value;
  return ["i", value.toString(16)];
}

function composite(value, above, where) {
  const one = (item, index) => packed(item, above, `${where}[${index}]`);
  const pair = ([key, item]) => [packed(key, above, where), packed(item, above, inside(where, key))];
  if (Array.isArray(value)) return ["l", Array.from(value, one)];
  if (value instanceof Uint8Array) return new Uint8Array(value);
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  if (NAMES.has(value.constructor)) return packedArray(value);
  if (value instanceof Map) return ["d", Array.from(value, pair)];
  if (value instanceof Set) return ["s", Array.from(value, one)];
  const prototype = Object.getPrototypeOf(value);
  if (prototype === Object.prototype || prototype === null) return ["d", Object.entries(value).map(pair)];
  if (typeof value.next === "function" && Symbol.iterator in value) return ["l", drawn(value).map(one)];
  const kind = String(value.constructor?.name || "object");
  const fields = Object.entries(value);
  const simple = fields.length > 0 && fields.every(([, item]) => typeof item !== "function");
  if (!simple || value instanceof Error) throw new NotPlain(`a value of type ${kind}`);
  return ["r", kind, fields.map(pair)];
}

function inside(where, key) {
  return where ? `${where}.${String(key)}` : String(key);
}

function drawn(iterator) {
  const items = [];
  for (const item of iterator) {
    if (items.push(item) > MAX_DRAWN) throw new NotPlain(`an iterator that goes on after ${MAX_DRAWN} items`);
  }
  return items;
}

function packedArray(value) {
  const shape = Array.isArray(value.shape) ? value.shape : [value.length];
  return ["a", NAMES.get(value.constructor), shape, new Uint8Array(value.buffer, value.byteOffset, value.byteLength)];
}

/** The judge's tree as a JavaScript value. `special` makes handles and callables of theirs. */
export function unpack(tree, special) {
  if (!Array.isArray(tree)) return tree;
  const [tag, first, ...rest] = tree;
  const all = (items) => items.map((item) => unpack(item, special));
  switch (tag) {
    case "l": case "t": return all(first);
    case "s": return new Set(all(first));
    case "i": return first.startsWith("-") ? -BigInt(`0x${first.slice(1)}`) : BigInt(`0x${first}`);
    case "d": return dict(first.map(all));
    case "r": return dict(rest[0].map(([key, item]) => [key, unpack(item, special)]));
    case "a": return array(first, ...rest);
    default: return special(tree);
  }
}

function dict(pairs) {
  if (!pairs.every(([key]) => typeof key === "string")) return new Map(pairs);
  return Object.fromEntries(pairs);
}

function array(dtype, shape, bytes) {
  const kind = DTYPES.get(dtype);
  if (!kind) throw new TypeError(`JavaScript has no array of dtype ${dtype}`);
  const made = new kind(new Uint8Array(bytes).buffer);
  return Object.defineProperty(made, "shape", { value: shape });
}
