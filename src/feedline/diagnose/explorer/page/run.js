// View 7: a real run, and what would change with other numbers of workers.
import { cards, counted, h, number, percent, table, time } from "./dom.js";
import { simulate } from "./engine.js";
import { gantt, KINDS } from "./gantt.js";
import { Damaged, FITTED, fitted, fromTrace, parse, slowest, SPANS } from "./runs.js";

const COUNTS = [0, 1, 2, 4, 8, 16], BUSY = 0.05;
const kept = { run: null, name: "", error: "", reads: 0 };

export const run = {
  name: "run", title: "Your run",
  intro: "Drop a file that loader.trace(…) or loader.report(…) has written: it is read here, in this page, and sent nowhere. Or let feedline measure: feedline explore train.py:loader.",
  controls: [
    { key: "workers", label: "what if: workers", min: 0, max: 64, value: 4, slide: 16 },
    { key: "prefetch", label: "prefetch_factor", min: 1, max: 16, value: 2, slide: 8 },
  ],
  model, show,
};

export function reads() { return kept.reads; }

export function take(text, name) {
  kept.name = String(name);
  try { kept.run = parse(text); kept.error = ""; }
  catch (error) {
    if (!(error instanceof Damaged) && !(error instanceof TypeError)) throw error;
    kept.run = null;
    kept.error = error instanceof Damaged ? error.message : "the file is damaged: a part of it is missing";
  }
}

export function whatIf(run, count, prefetch) {
  const { batches, collate, step } = fitted(run), samples = batches.flat();
  const known = samples.length ? samples.reduce((sum, one) => sum + one, 0) / samples.length / 1e6 : null;
  return simulate({ batches, collate, step }, { count, prefetch, known });
}

export function model(state, data) {
  if (!kept.run && data.run && !kept.error) { kept.run = fromTrace(data.run.trace); kept.name = data.run.name; }
  if (!kept.run) return { error: kept.error };
  const fit = fitted(kept.run);
  return { batches: kept.run.given.length, waiting: fit.waitingShare, step: fit.step, collate: fit.collate, slowest: slowest(kept.run),
    whatIf: whatIf(kept.run, state.workers, state.prefetch).waitingShare, shares: COUNTS.map(count => whatIf(kept.run, count, state.prefetch).waitingShare) };
}

function place(again) {
  const read = async file => { if (file) { take(await file.text(), file.name); again(); kept.reads++; } };
  const input = h("input", { type: "file", id: "file", accept: ".json,.html,.htm", change: () => read(input.files[0]) });
  const box = h("div", { id: "drop", dragover: event => { event.preventDefault(); box.classList.add("over"); }, dragleave: () => box.classList.remove("over"),
    drop: event => { event.preventDefault(); read(event.dataTransfer.files[0]); } }, h("label", { for: "file" }, "Drop a trace or a report here, or choose it:"), input);
  return box;
}

function show(state, data, again) {
  const found = model(state, data), code = 'with loader.trace("run.json"):      # or loader.report("run.html")\n    for batch in loader:\n        train(batch)';
  if (!kept.run) return {
    numbers: found, drawing: [place(again), kept.error ? h("p", { class: "said", role: "alert" }, `${kept.name}: ${kept.error}.`) : null],
    questions: [["What will be shown?", "The timeline of the run, whether the loop had to wait, its slowest samples, and a simulation with the costs of its samples: what other numbers of workers would change."],
      ["Is anything sent?", "No. The page forbids itself all network access, and it works without any."],
      ["Which files?", "A trace (JSON) or a report (HTML) of feedline, of any run."]],
    code,
  };
  const fit = fitted(kept.run), busy = fit.waitingShare <= BUSY, best = COUNTS.find((_, at) => found.shares[at] <= BUSY);
  const rows = kept.run.rows.map((name, at) => ({ name, spans: [] })), at = new Map(kept.run.numbers.map((row, place) => [row, place]));
  let end = 1;
  for (const span of kept.run.spans) {
    end = Math.max(end, span.end);
    rows[at.get(span.row)].spans.push({ ...span, title: `${span.kind} of batch ${span.batch}, ${time(span.end - span.start)}` });
  }
  const instead = `with ${counted(state.workers, "worker")} you would wait ${percent(found.whatIf)} instead of ${percent(found.waiting)}`;
  return {
    numbers: found,
    drawing: [place(again), h("p", {}, h("b", {}, kept.name)),
      h("p", { id: "verdict", class: busy ? "good" : "slow" }, busy ? `The loader keeps up: the loop waited ${percent(fit.waitingShare)} of its time (epoch ${fit.epoch}).` : `The loader is the bottleneck: the loop waited ${percent(fit.waitingShare)} of its time (epoch ${fit.epoch}).`, h("br"), `Simulated with the same costs, ${instead}.`, fit.isPart ? ` Both are of the first ${number(FITTED)} batches of that epoch.` : "", kept.run.spans.length >= SPANS ? ` The file holds more than ${number(SPANS)} spans; what comes after them is left out.` : ""),
      cards({ "batches": number(found.batches), "the loop waited": percent(found.waiting), "a step": time(found.step), "collating": time(found.collate), [`waiting, ${counted(state.workers, "worker")}`]: percent(found.whatIf) }),
      gantt(rows, end, KINDS, "the recorded run"),
      h("h2", {}, "What if"), table(["workers", "the loop would wait"], COUNTS.map((count, place) => [number(count), percent(found.shares[place])]), 2),
      h("h2", {}, "Slowest samples"), found.slowest.length ? table(["sample", "batch", "epoch", "took"], found.slowest.map(one => [one.index, number(one.batch), number(one.epoch), time(one.took)]), 3) : h("p", {}, "Samples were not read one by one, so their times are not known.")],
    questions: [
      ["Is the loader the bottleneck?", busy ? `No: up to ${percent(BUSY)} of waiting counts as busy. A step takes ${time(found.step)}, and its batch was mostly there.` : `Yes: of ${time(fit.length)}, the loop waited ${time(fit.waited)}; a step takes ${time(found.step)}.`],
      ["How many workers would be enough?", best === undefined ? `None of ${COUNTS.join(", ")}: with ${COUNTS[COUNTS.length - 1]} the loop would still wait ${percent(found.shares[COUNTS.length - 1])}.` : `${best}: then the loop would wait ${percent(found.shares[COUNTS.indexOf(best)])}. The simulation gives each worker a CPU of its own: if samples compute, no more than there are CPUs help. feedline tune measures it.`],
      ["Which samples are slow?", found.slowest.length ? `The slowest took ${time(found.slowest[0].took)} (sample ${found.slowest[0].index}).` : "It is not known: this dataset gives many samples at once, or the file holds only batches."],
    ],
    code: `${code}\n\nloader = DataLoader(dataset, …, num_workers=${state.workers}${state.workers ? `, prefetch_factor=${state.prefetch}, persistent_workers=True` : ""})`,
  };
}
