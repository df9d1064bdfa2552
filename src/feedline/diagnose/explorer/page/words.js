// Random words as the library makes them: splitmix64's mixing (randomness/rng.py, order/permutation.py), and NumPy's
// SFC64 with its seeding and its intervals, which shuffle whatever is shorter than 100,000.
const MASK = (1n << 64n) - 1n, STEP = 0x9E3779B97F4A7C15n;

function finish(state) {
  state = (state ^ (state >> 30n)) * 0xBF58476D1CE4E5B9n & MASK;
  state = (state ^ (state >> 27n)) * 0x94D049BB133111EBn & MASK;
  return state ^ (state >> 31n);
}

export function mix(...parts) {
  let state = STEP;
  for (const part of parts) state = finish(((state ^ BigInt(part)) + STEP) & MASK);
  return state;
}

const ORDER = 0x6F72646572n;  // "order"
export function orderKey(...parts) { return mix(ORDER, ...parts); }

export function randomWords(key, start, stop) {
  const found = [], base = mix(key);
  for (let place = start; place < stop; place++) found.push(finish((BigInt(place) * STEP + base) & MASK));
  return found;
}

export function uniform(word) { return Number(word >> 11n) * 2 ** -53; }

// ── NumPy's SeedSequence and SFC64; a 64-bit number is two of 32 bits, the low one first ────────────────────
function seedWords(key) {
  const entropy = [Number(key & 0xFFFFFFFFn), Number(key >> 32n)], pool = [];
  let factor = 0x43B0D7E5;
  const hashed = value => {
    value ^= factor;
    factor = Math.imul(factor, 0x931E8875);
    value = Math.imul(value, factor);
    return (value ^ (value >>> 16)) >>> 0;
  };
  for (let i = 0; i < 4; i++) pool[i] = hashed(i < 2 ? entropy[i] : 0);
  for (let from = 0; from < 4; from++) for (let to = 0; to < 4; to++) if (from !== to) {
    const value = (Math.imul(0xCA01F9DD, pool[to]) - Math.imul(0x4973F715, hashed(pool[from]))) | 0;
    pool[to] = (value ^ (value >>> 16)) >>> 0;
  }
  factor = 0x8B51F9DD;
  return Array.from({ length: 6 }, (_, i) => {
    let value = pool[i % 4] ^ factor;
    factor = Math.imul(factor, 0x58F38DED);
    value = Math.imul(value, factor);
    return (value ^ (value >>> 16)) >>> 0;
  });
}

export class SFC64 {
  constructor(key) {
    this.s = [...seedWords(key), 1, 0];
    this.rest = -1;
    for (let i = 0; i < 12; i++) this.advance();
  }
  advance() {
    const s = this.s;
    let low = s[0] + s[2] + s[6], high = s[1] + s[3] + s[7];
    high = (high + Math.floor(low / 4294967296)) >>> 0; low >>>= 0;
    if (++s[6] > 0xFFFFFFFF) { s[6] = 0; s[7] = (s[7] + 1) >>> 0; }
    s[0] = (s[2] ^ ((s[2] >>> 11) | (s[3] << 21))) >>> 0;
    s[1] = (s[3] ^ (s[3] >>> 11)) >>> 0;
    const shifted = ((s[4] << 3) >>> 0) + s[4];
    s[3] = (((s[5] << 3) | (s[4] >>> 29)) + s[5] + (shifted > 0xFFFFFFFF ? 1 : 0)) >>> 0;
    s[2] = shifted >>> 0;
    const turnedLow = ((s[4] << 24) | (s[5] >>> 8)) >>> 0, turnedHigh = ((s[5] << 24) | (s[4] >>> 8)) >>> 0;
    const sum = turnedLow + low;
    s[5] = (turnedHigh + high + (sum > 0xFFFFFFFF ? 1 : 0)) >>> 0;
    s[4] = sum >>> 0;
    this.low = low; this.high = high;
  }
  next32() {
    if (this.rest >= 0) { const value = this.rest; this.rest = -1; return value; }
    this.advance();
    this.rest = this.high;
    return this.low;
  }
  upTo(most) {  // a whole number from 0 to most: as many bits as it has, drawn again while they are more
    if (!most) return 0;
    const mask = 2 ** (32 - Math.clz32(most)) - 1;
    for (;;) { const value = (this.next32() & mask) >>> 0; if (value <= most) return value; }
  }
}

export function shuffleInPlace(items, key) {
  const random = new SFC64(key);
  for (let i = items.length - 1; i > 0; i--) {
    const j = random.upTo(i), kept = items[i];
    items[i] = items[j]; items[j] = kept;
  }
  return items;
}
