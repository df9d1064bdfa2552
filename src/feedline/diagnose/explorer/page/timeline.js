// View 4: an epoch as our engine and as torch's loader would run it.
import { cards, counted, h, number, percent, time } from "./dom.js";
import { sampleCosts, simulate } from "./engine.js";
import { gantt, KINDS, rowsOf } from "./gantt.js";
import { mix } from "./words.js";

export const timeline = {
  name: "timeline", title: "Timeline",
  intro: "An epoch, simulated by the rules of feedline's engine and, beside it, by torch's. Drag “workers” from 0 to 4. feedline.torch takes turns as torch does unless it is told assignment=\"free\". Each worker has a CPU of its own here: samples that compute need as many CPUs as workers.",
  controls: [
    { key: "workers", label: "workers (num_workers)", min: 0, max: 32, value: 0, slide: 8 },
    { key: "prefetch", label: "prefetch_factor", min: 1, max: 16, value: 2, slide: 8 },
    { key: "step", label: "step, ms", min: 0, max: 10000, step: 0.1, value: 20, slide: 200 },
    { key: "mean", label: "a sample, ms", min: 0, max: 10000, step: 0.1, value: 2, slide: 20 },
    { key: "spread", label: "its spread, ±", min: 0, max: 1, step: 0.05, value: 0.2, slide: 1 },
    { key: "stragglers", label: "share of stragglers", min: 0, max: 1, step: 0.005, value: 0, slide: 0.2 },
    { key: "factor", label: "which take times", min: 1, max: 1000, value: 20, slide: 100 },
    { key: "collate", label: "collate a batch, ms", min: 0, max: 10000, step: 0.1, value: 1, slide: 50 },
    { key: "b", label: "batch size", min: 1, max: 512, value: 16, slide: 128 },
    { key: "batches", label: "batches", min: 1, max: 400, value: 30, slide: 100 },
    { key: "in_order", label: "in_order", kind: "check", value: true },
    { key: "splits", label: "split batches (feedline)", kind: "check", value: true },
    { key: "later", label: "a later epoch: costs are known", kind: "check", value: true },
    { key: "seed", label: "seed of the costs", min: 0, max: 9007199254740991, value: 7 },
  ],
  model, show,
};

const micros = milliseconds => Math.round(milliseconds * 1000);

export function workOf(state) {
  const costs = sampleCosts({ mean: micros(state.mean), spread: state.spread, stragglers: state.stragglers, factor: state.factor }, state.batches * state.b, mix(state.seed, 6));
  const batches = Array.from({ length: state.batches }, (_, at) => costs.slice(at * state.b, (at + 1) * state.b));
  return { batches, collate: micros(state.collate), step: micros(state.step) };
}

function known(state, work) {
  return state.later ? work.batches.flat().reduce((sum, one) => sum + one, 0) / (state.batches * state.b) / 1e6 : null;
}

// What the latest costs are, and the epochs simulated with them: a drawing asks for the same ones several times, and
// the costs of 200,000 samples take longer than an epoch of them.
const COSTS = ["mean", "spread", "stragglers", "factor", "collate", "step", "b", "batches", "later", "seed"];
let latest = { key: null };

export function run(state, changes = {}) {
  const key = JSON.stringify(COSTS.map(name => state[name]));
  if (latest.key !== key) {
    const work = workOf(state);
    latest = { key, work, known: known(state, work), epochs: new Map() };
  }
  const settings = { count: state.workers, prefetch: state.prefetch, inOrder: state.in_order, splits: state.splits, known: latest.known, ...changes };
  const wanted = JSON.stringify(settings);
  if (!latest.epochs.has(wanted)) latest.epochs.set(wanted, simulate(latest.work, settings));
  return latest.epochs.get(wanted);
}

// The fewest workers with which the loop waits at most that share of its time; null if none of up to `most` do.
export function fewest(state, share = 0.05, most = 16) {
  for (let count = 0; count <= most; count++) if (run(state, { count }).waitingShare <= share) return count;
  return null;
}

export function model(state) {
  const ours = run(state), torchs = run(state, { rules: "torch" });
  return { end: ours.end, waiting: ours.waitingShare, busy: ours.busyShare, torchEnd: torchs.end, torchWaiting: torchs.waitingShare, fewest: fewest(state), parts: ours.spans.length };
}

function show(state) {
  const found = model(state), ours = run(state), torchs = run(state, { rules: "torch" }), without = run(state, { count: 0 }), inOrder = run(state, { inOrder: true }), asTheyCome = run(state, { inOrder: false });
  const step = micros(state.step), end = Math.max(ours.end, torchs.end), names = KINDS;
  const one = (title, epoch) => [h("h2", {}, title), gantt(rowsOf(epoch, state.workers, step), end, names, title)];
  return {
    numbers: found,
    drawing: [cards({
      "feedline: device idle": percent(found.waiting), "feedline: epoch": time(found.end), "torch's rules: device idle": percent(found.torchWaiting), "torch's rules: epoch": time(found.torchEnd),
      "workers busy (feedline)": state.workers ? percent(found.busy) : "–",
    }), one("feedline", ours), one("torch's rules", torchs)],
    questions: [
      ["What if there were no workers, and how many are enough?", `Without workers the loop waits ${percent(without.waitingShare)} of its time, ${time(without.waited)} of ${time(without.end)}. ` + (found.fewest === null ? "Not even 16 workers bring that to 5 %; with 32 it waits " + percent(run(state, { count: 32 }).waitingShare) + "." : found.fewest ? `${counted(found.fewest, "worker")} bring${found.fewest === 1 ? "s" : ""} it to ${percent(run(state, { count: found.fewest }).waitingShare)}: at most 5 % counts as busy.` : "That is at most 5 %, so no workers are needed.")],
      ["Why does feedline's epoch differ from torch's?", state.workers === 0 ? "It does not: without workers both make each batch when the loop asks for it." : `torch gives batches to its workers in turn, so a batch waits for its own worker; feedline's workers take the next part when they are free. ` + (ours.spans.length > state.batches ? `Here ${counted(state.batches, "batch", "batches")} went out in ${number(ours.spans.length)} parts: several workers make one batch while the loop would wait for it. ` : "Here no batch was divided. ") + `That is ${time(Math.abs(found.torchEnd - found.end))} ${found.torchEnd >= found.end ? "less" : "more"} for this epoch.`],
      ["What does keeping the order cost?", state.workers === 0 ? "Nothing without workers: batches are made in order." : `In order the epoch takes ${time(inOrder.end)}; with in_order=False, each batch as soon as it is made, ${time(asTheyCome.end)}. Then the order depends on timing: runs cannot be repeated exactly. ` + (state.stragglers ? "" : "Try a share of stragglers.")],
    ],
    code: python(state),
  };
}

function python(state) {
  const more = state.workers ? `, prefetch_factor=${state.prefetch}, persistent_workers=True` + (state.in_order ? "" : ", in_order=False") : "";
  const knows = state.later ? `, known=sum(costs) / len(costs) / 1e6` : "";
  return `from feedline import DataLoader

loader = DataLoader(dataset, batch_size=${state.b}, num_workers=${state.workers}${more})

# The same simulation, in microseconds:
from feedline.diagnose.explorer.costs import Costs, sample_costs
from feedline.diagnose.simulation import Work, Workers, simulate
from feedline.randomness.rng import mix

costs = sample_costs(Costs(${micros(state.mean)}, ${state.spread}, ${state.stragglers}, ${state.factor}), ${state.batches * state.b}, key=mix(${state.seed}, 6))
batches = [costs[at : at + ${state.b}] for at in range(0, len(costs), ${state.b})]
workers = Workers(${state.workers}, ${state.prefetch}, in_order=${state.in_order ? "True" : "False"}, splits=${state.splits ? "True" : "False"}${knows})
print(simulate(Work(batches, ${micros(state.collate)}, ${micros(state.step)}), workers).waiting_share)`;
}
