// The simulator of diagnose/simulation.py, line by line: tests compare the two to the microsecond. Times are whole
// microseconds. What the engine's rules are is said there, and in engine/division.py.
import { randomWords, uniform } from "./words.js";

const PIECE_SECONDS = 0.002, PER_WORKER = 2, UNKNOWN = 4, REMEMBERED = 256, TIMED = 64;

// explorer/costs.py
export function sampleCosts({ mean, spread = 0, stragglers = 0, factor = 1 }, count, key) {
  const words = randomWords(key, 0, 2 * count).map(uniform);
  return Array.from({ length: count }, (_, place) => Math.trunc(
    mean * (1 + spread * (2 * words[2 * place] - 1)) * (words[2 * place + 1] < stragglers ? factor : 1)));
}

const worth = (size, seconds) => Math.trunc(size * seconds / PIECE_SECONDS);
function piecesFor(size, workers, seconds, begun, uneven) {
  if (seconds === null) return begun < UNKNOWN * workers ? Math.max(1, Math.min(size, workers)) : 0;
  if (!uneven && begun < 0) return 1;
  const wanted = uneven ? workers * PER_WORKER : workers;
  return Math.max(1, Math.min(size, wanted, worth(size, seconds)));
}

export function simulate(work, workers) {
  const given = { prefetch: 2, inOrder: true, splits: true, rules: "feedline", known: null, handing: 0, ...workers };
  const { batches, collate = 0, step = 0 } = work;
  const epoch = given.count ? run(batches, collate, step, given) : inline(batches, collate, step);
  epoch.waited = epoch.given.reduce((sum, one) => sum + one.gave - one.asked, 0);
  epoch.waitingShare = epoch.end ? epoch.waited / epoch.end : 0;
  const busy = epoch.spans.reduce((sum, one) => sum + one.end - one.start, 0), many = 1 + Math.max(-1, ...new Set(epoch.spans.map(one => one.worker)));
  epoch.busyShare = many && epoch.end ? busy / (many * epoch.end) : 0;
  return epoch;
}

const total = costs => { let sum = 0; for (const one of costs) sum += one; return sum; };

function inline(batches, collate, step) {
  const spans = [], given = [];
  let now = 0;
  batches.forEach((samples, batch) => {
    const turn = now + total(samples), end = turn + collate;
    spans.push({ worker: -1, batch, start: now, collating: turn, end, samples: samples.length });
    given.push({ batch, asked: now, gave: end });
    now = end + step;
  });
  return { spans, given, end: now };
}

function run(batches, collate, step, { count, prefetch, inOrder, splits, rules, known, handing }) {
  const ours = rules === "feedline", on = ours && splits && count > 1;
  const free = Array(count).fill(0), load = Array(count).fill(0), queue = [], arrived = [], spans = [], given = [];
  let out = [], now = 0, next = 0, turn = 0;
  // What is known about dividing batches.
  let seconds = known, past = 0, unevenFor = 0, begun = 0, quickest = Infinity, largest = 0, seen = 0, samplesSeen = 0, lookAt = 0, spent = 0;
  let idle = false, holds = false, piecesOut = 0;

  function partsFor(size) {
    if (!on || idle) return 1;
    largest = Math.max(largest, size);
    const uneven = inOrder && unevenFor > 0;
    const many = begun >= 0 || uneven ? piecesFor(size, count, seconds, begun, uneven) : 1;
    if (!many) { holds = true; return 0; }
    if (begun >= 0) begun += many;
    unevenFor = Math.max(0, unevenFor - many);
    return many;
  }
  function back(part, wasFirst) {
    if (!on) return;
    const took = part.span.end - part.span.start;
    spent += took;
    if (part.isPiece) piecesOut--;
    if (!idle) {
      if (wasFirst) past = 0; else if (++past >= count) unevenFor = REMEMBERED;
      begun = -1;
      if (part.isPiece) quickest = Math.min(quickest, took / 1e6 / part.span.samples);
    }
    seen++;
    samplesSeen += idle ? largest : part.span.samples;
    if (samplesSeen && (seen < TIMED || seen >= lookAt)) {
      lookAt = seen + TIMED;
      seconds = Math.min(quickest, spent / 1e6 / samplesSeen);
      idle = worth(largest, seconds) < 2 && !piecesOut && !holds;
    }
  }
  function anyFree() {
    let best = 0;
    for (let worker = 1; worker < count; worker++) if (Math.max(free[worker], now) < Math.max(free[best], now)) best = worker;
    return best;
  }
  function torchsTurn() {
    let worker = turn;
    for (let i = 0; i < count; i++) { worker = (turn + i) % count; if (inOrder || load[worker] < prefetch) break; }
    turn = (worker + 1) % count;
    return worker;
  }
  function sendPart(entry, start, stop, isPiece) {
    const samples = batches[entry.batch], worker = ours ? anyFree() : torchsTurn(), began = Math.max(now, free[worker]);
    const collating = began + total(samples.slice(start, stop)), end = collating + Math.floor(collate * (stop - start) / samples.length);
    const span = { worker, batch: entry.batch, start: began, collating, end, samples: stop - start };
    free[worker] = end; load[worker]++; spans.push(span);
    out.push({ serial: spans.length, entry, span, isPiece });
    if (isPiece) piecesOut++;
  }
  function send(entry) {
    const size = batches[entry.batch].length, many = partsFor(size);
    for (let i = 0; i < many; i++) sendPart(entry, Math.floor(size * i / many), Math.floor(size * (i + 1) / many), many > 1);
    entry.sent = many > 0; entry.missing = many;
  }
  function fill() {
    while (queue.length < count * prefetch && next < batches.length) {
      const entry = { batch: next++, missing: 0, sent: false, whole: false };
      queue.push(entry);
      send(entry);
    }
  }
  function take(part) {
    now += handing;
    back(part, out[0] === part);
    out = out.filter(each => each !== part);
    load[part.span.worker]--;
    if (!--part.entry.missing) { part.entry.whole = true; arrived.push(part.entry); }
  }
  function receive() {
    now = Math.max(now, Math.min(...out.map(part => part.span.end)));
    const came = out.filter(part => part.span.end <= now).sort((one, other) => one.span.end - other.span.end || one.serial - other.serial);
    for (const part of ours ? came : came.slice(0, 1)) take(part);
    if (came.length && holds) { holds = false; for (const entry of queue) if (!entry.sent) send(entry); }
  }
  for (let i = 0; i < batches.length; i++) {
    const asked = now;
    fill();
    const following = () => inOrder ? (queue[0].whole ? queue[0] : null) : arrived[0] || null;
    while (!following()) receive();
    const entry = following();
    queue.splice(queue.indexOf(entry), 1);
    if (!inOrder) arrived.shift();
    fill();
    given.push({ batch: entry.batch, asked, gave: now });
    now += step;
  }
  spans.sort((one, other) => one.start - other.start || one.worker - other.worker);
  return { spans, given, end: now };
}
