// Files that loader.trace() and loader.report() write, in one form; a file that is neither gets a sentence.
// A run: { rows: [name], spans: [{ row, start, end, kind, batch }], made: [{ epoch, seq, samples, indices, collate, fetch }],
// given: [{ epoch, seq, asked, gave }] }, in microseconds.

const MOST = 20000;
export const FITTED = 2000, SPANS = 4 * MOST;

export class Damaged extends Error {}

const fine = (value, what) => {
  if (typeof value !== "number" || !(Math.abs(value) <= Number.MAX_SAFE_INTEGER)) throw new Damaged(`the file is damaged: ${what} is not a number`);
  return value;
};
const list = (value, what) => {
  if (!Array.isArray(value)) throw new Damaged(`the file is damaged: ${what} is missing`);
  return value;
};
const short = value => String(value).slice(0, 60);

export function parse(text) {
  const found = /<script type="application\/json" id="data">([\s\S]*?)<\/script>/.exec(text);
  let data;
  try { data = JSON.parse(found ? found[1] : text); }
  catch (error) { throw new Damaged(found || text.trimStart().startsWith("{") ? "the file is damaged: it breaks off, or something else was written into it" : "this is neither a trace (loader.trace) nor a report (loader.report) of feedline"); }
  if (data && typeof data === "object" && Array.isArray(data.traceEvents)) return fromTrace(data.traceEvents);
  if (data && typeof data === "object" && data.made && data.given) return fromReport(data);
  throw new Damaged("this is neither a trace (loader.trace) nor a report (loader.report) of feedline");
}

export function fromTrace(events) {
  const names = new Map(), spans = [], made = [], given = [], latest = new Map();
  for (const event of events) {
    if (!event || typeof event !== "object") throw new Damaged("the file is damaged: an event is not an object");
    const { name, ph, tid } = event, args = event.args && typeof event.args === "object" ? event.args : {};
    if (name === "thread_name") names.set(fine(tid, "a row"), short(args.name));
    if (ph !== "X" || !["fetch", "sample", "collate", "wait", "compute"].includes(name)) continue;
    const row = fine(tid, "a row"), start = fine(event.ts, "a time"), took = Math.max(0, fine(event.dur, "a duration")), end = start + took;
    if (name === "sample") {
      const batch = latest.get(row);
      if (batch) { batch.samples.push(took); batch.indices.push(short(args.index)); }
      continue;
    }
    if (spans.length >= SPANS) continue;
    spans.push({ row, start, end, kind: name, batch: fine(args.batch, "a batch") });
    if (name === "fetch") {
      const batch = { epoch: fine(args.epoch, "an epoch"), seq: args.batch, fetch: took, collate: 0, samples: [], indices: [] };
      latest.set(row, batch); made.push(batch);
    }
    if (name === "collate" && latest.has(row)) latest.get(row).collate = took;
    if (name === "wait") given.push({ epoch: fine(args.epoch, "an epoch"), seq: args.batch, asked: start, gave: end });
  }
  return whole(names, spans, made, given);
}

function fromReport({ rows, made, given }) {
  const names = new Map(list(rows, "the rows").map((name, row) => [row, short(name)])), spans = [], batches = [], delivered = [];
  let at = 0;
  list(made.start, "the batches").forEach((step, i) => {
    at += fine(step, "a time");
    const fetch = fine(made.fetch[i], "a duration"), collate = fine(made.collate[i], "a duration"), row = fine(made.row[i], "a row"), flat = made.samples ? list(made.samples[i], "a batch's samples") : [];
    const samples = [], indices = [];
    for (let k = 0; k + 1 < flat.length; k += 2) {
      if (flat[k] < 0) continue;
      samples.push(Math.max(0, (k + 3 < flat.length ? fine(flat[k + 3], "a time") : fetch) - fine(flat[k + 1], "a time")));
      indices.push(short((made.indices[i] || [])[flat[k]] ?? "number " + flat[k]));
    }
    batches.push({ epoch: fine(made.epoch[i], "an epoch"), seq: fine(made.seq[i], "a batch"), fetch, collate, samples, indices });
    spans.push({ row, start: at, end: at + fetch, kind: "fetch", batch: made.seq[i] });
    if (collate) spans.push({ row, start: at + fetch, end: at + fetch + collate, kind: "collate", batch: made.seq[i] });
  });
  at = 0;
  list(given.asked, "the loop").forEach((step, i) => {
    at += fine(step, "a time");
    const gave = at + fine(given.waited[i], "a duration"), before = delivered[delivered.length - 1], epoch = fine(given.epoch[i], "an epoch");
    if (before && before.epoch === epoch) spans.push({ row: 0, start: before.gave, end: at, kind: "compute", batch: before.seq });
    spans.push({ row: 0, start: at, end: gave, kind: "wait", batch: given.seq[i] });
    delivered.push({ epoch, seq: fine(given.seq[i], "a batch"), asked: at, gave });
  });
  return whole(names, spans, batches, delivered);
}

const keyOf = one => one.epoch + " " + one.seq;

// A batch that several workers made was recorded in pieces.
function joined(pieces) {
  const batches = new Map();
  for (const piece of pieces) {
    const batch = batches.get(keyOf(piece));
    if (!batch) { batches.set(keyOf(piece), piece); continue; }
    for (const name of ["samples", "indices"]) for (const one of piece[name]) batch[name].push(one);
    batch.fetch += piece.fetch; batch.collate += piece.collate;
  }
  return [...batches.values()];
}

function whole(names, spans, pieces, given) {
  const delivered = new Set(given.map(keyOf)), made = joined(pieces).filter(one => delivered.has(keyOf(one)));
  if (!made.length) throw new Damaged("nothing was recorded in this file: no batch was made, or none was delivered");
  const rows = [...new Set(spans.map(span => span.row))].sort((one, other) => one - other);
  return { rows: rows.map(row => names.get(row) || "row " + row), numbers: rows, spans, made, given };
}

const median = values => {
  const sorted = [...values].sort((one, other) => one - other), middle = sorted.length >> 1;
  return !sorted.length ? 0 : sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};

// What the simulator needs, of the epoch with the most batches that were both made and delivered while it was recorded.
export function fitted(run) {
  const counts = new Map();
  for (const one of run.made) counts.set(one.epoch, (counts.get(one.epoch) || 0) + 1);
  let epoch = run.made[0].epoch;
  for (const [each, count] of counts) if (count > counts.get(epoch)) epoch = each;
  const all = run.given.filter(one => one.epoch === epoch), given = all.slice(0, FITTED), made = run.made.filter(one => one.epoch === epoch).sort((one, other) => one.seq - other.seq).slice(0, FITTED);
  const steps = given.slice(1).map((one, at) => one.asked - given[at].gave), waited = given.reduce((sum, one) => sum + one.gave - one.asked, 0);
  const length = given[given.length - 1].gave - given[0].asked;
  const batches = made.map(one => (one.samples.length ? one.samples : [one.fetch]).map(Math.round));
  return { epoch, isPart: all.length > FITTED, batches, collate: Math.round(median(made.map(one => one.collate))), step: Math.round(median(steps)), waited, length, waitingShare: length ? waited / length : 0 };
}

export function slowest(run, many = 10) {
  const all = run.made.flatMap(batch => batch.samples.map((took, at) => ({ index: batch.indices[at], took, batch: batch.seq, epoch: batch.epoch })));
  return all.sort((one, other) => other.took - one.took).slice(0, many);
}
