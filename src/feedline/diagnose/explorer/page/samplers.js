// View 2: which class lands in which batch, and which rank sees what.
import { cards, counted, h, legend, number, percent, s, table } from "./dom.js";
import { batchesOf, counting, draws, randomOrder, share, weightedDraws } from "./orders.js";
import { stratifiedBatches } from "./stratified.js";
import { orderKey } from "./words.js";

const SHOWN = 60;

export const samplers = {
  name: "samplers", title: "Samplers",
  intro: "An imbalanced dataset, sorted by class as folders often are. Each column is a batch of one rank, its colours are the classes in it.",
  controls: [
    { key: "counts", label: "samples of each class", kind: "numbers", min: 1, max: 20000, most: 8, value: "900,80,20" },
    { key: "sampler", label: "sampler", kind: "choice", value: "random", choices: [["sequential", "sequential"], ["random", "random"], ["replacement", "random, with replacement"], ["weighted", "weighted by class, with replacement"], ["stratified", "stratified"]] },
    { key: "share", label: "share (stratified)", kind: "choice", value: "proportional", choices: [["proportional", "proportional"], ["at_least_one", "at_least_one"], ["equal", "equal"]] },
    { key: "b", label: "batch size", min: 8, max: 1024, value: 32, slide: 128 },
    { key: "ranks", label: "ranks", min: 1, max: 16, value: 1, slide: 16 },
    { key: "uneven", label: "if uneven", kind: "choice", value: "pad", choices: [["pad", "pad"], ["drop", "drop"], ["exact", "exact"]] },
    { key: "seed", label: "seed", min: 0, max: 9007199254740991, value: 7 },
    { key: "epoch", label: "epoch", min: 0, max: 1000000, value: 0, slide: 20 },
  ],
  model, show,
};

function classesOf(state) {
  const counts = state.counts.split(",").map(Number), codes = [];
  counts.forEach((count, code) => { for (let i = 0; i < count; i++) codes.push(code); });
  return { counts, codes };
}

// The batches of each rank.
export function batchesOfRanks(state) {
  const { counts, codes } = classesOf(state), n = codes.length, { seed, epoch } = state, ranks = Array.from({ length: state.ranks }, (_, rank) => rank);
  if (state.sampler === "stratified") {
    const all = stratifiedBatches(codes, counts.length, state.b, state.share, false, seed, epoch);
    return ranks.map(rank => share(all, state.ranks, rank, state.uneven));
  }
  const order = {
    sequential: () => counting(n), random: () => randomOrder(n, seed, epoch), replacement: () => draws(n, n, orderKey(seed, epoch)),
    weighted: () => weightedDraws(codes.map(code => 1 / counts[code]), n, orderKey(seed, epoch)),
  }[state.sampler]();
  const indices = order.slice(0, n);
  return ranks.map(rank => batchesOf(share(indices, state.ranks, rank, state.uneven), state.b, false));
}

export function model(state) {
  const { counts, codes } = classesOf(state), ranks = batchesOfRanks(state), all = ranks.flat(), times = new Array(codes.length).fill(0);
  for (const batch of all) for (const index of batch) times[index]++;
  const rare = counts.indexOf(Math.min(...counts)), shares = all.map(batch => counts.map((_, code) => batch.filter(index => codes[index] === code).length));
  return {
    batches: all.length, rare,
    rareMean: all.length ? shares.reduce((sum, one) => sum + one[rare], 0) / all.length : 0,
    without: all.length ? shares.filter(one => !one[rare]).length / all.length : 0,
    twice: times.filter(one => one > 1).length, never: times.filter(one => !one).length,
    seen: ranks.map(batches => counts.map((_, code) => batches.flat().filter(index => codes[index] === code).length)),
    shares: ranks.map(batches => batches.map(batch => counts.map((_, code) => batch.filter(index => codes[index] === code).length))),
  };
}

function bars(shares, rank) {
  const shown = shares.slice(0, SHOWN), wide = 10;
  return h("div", { class: "figure" }, h("b", { class: "small" }, "rank " + rank),
    s("svg", { viewBox: `0 0 ${Math.max(1, shown.length) * wide} 60`, preserveAspectRatio: "none", class: "chart", role: "img", "aria-label": `classes in the first ${shown.length} batches of rank ${rank}` },
      shown.map((counts, at) => {
        const total = counts.reduce((one, other) => one + other, 0);
        let top = 0;
        return counts.map((count, code) => {
          const high = total ? count / total * 60 : 0, bar = s("rect", { x: at * wide + 1, y: top, width: wide - 2, height: high, class: "l" + code }, s("title", {}, `batch ${at}, class ${code}: ${count}`));
          top += high;
          return bar;
        });
      })),
    shares.length > SHOWN ? h("p", { class: "small" }, `the first ${SHOWN} of ${number(shares.length)} batches`) : null);
}

// The chance that `size` of n samples, each once, have none of `rare` ones.
export function lacking(n, rare, size) {
  let chance = 1;
  for (let i = 0; i < size; i++) chance *= Math.max(0, n - rare - i) / (n - i);
  return chance;
}

function show(state) {
  const found = model(state), { counts, codes } = classesOf(state), n = codes.length, rare = counts[found.rare] / n;
  const size = Math.min(state.b, n), blind = lacking(n, counts[found.rare], size), stratified = state.sampler === "stratified";
  const names = Object.fromEntries(counts.map((count, code) => ["l" + code, `class ${code} (${number(count)})`]));
  return {
    numbers: found,
    drawing: [cards({
      "batches, all ranks": number(found.batches), [`of the rare class ${found.rare}, a batch`]: number(found.rareMean),
      "batches without it": percent(found.without), "samples seen twice or more": number(found.twice), "samples never seen": number(found.never),
    }), legend(names), found.shares.slice(0, 4).map(bars), state.ranks > 4 ? h("p", { class: "small" }, `the first 4 of ${state.ranks} ranks`) : null,
    table(["rank", "batches", ...counts.map((_, code) => "class " + code)], found.seen.map((seen, rank) => [rank, number(found.shares[rank].length), ...seen.map(one => number(one))]), counts.length + 1)],
    questions: [
      ["How often does a batch lack the rare class, and what would chance give?", `Here ${percent(found.without)} of the batches have none of class ${found.rare}. It is ${percent(rare)} of the data, so a random batch of ${size} has ${number(rare * size)} of it on average, and none with a probability of ${percent(blind)}. ` + (stratified ? "Stratified batches always have it." : "A stratified sampler puts it into every batch; a weighted one makes it as frequent as any other class.")],
      ["What is seen twice, and what never?", found.twice || found.never
        ? `${counted(found.twice, "sample comes", "samples come")} more than once and ${number(found.never)} ${found.never === 1 ? "does" : "do"} not come in this epoch. ` + (state.sampler === "weighted" || state.sampler === "replacement" ? "Draws with replacement are independent of each other: even uniform ones leave about 37 % of a dataset unseen in an epoch." : stratified ? "Samples of a class that is too small for all batches are repeated, to be in each of them" + (state.share === "equal" ? "; of a frequent class each epoch takes the next part." : ".") + (state.ranks > 1 && state.uneven !== "exact" ? ` Batches that cannot be divided evenly among the ranks are ${state.uneven === "drop" ? "left out" : "filled up with the first ones"}.` : "") : `The ${number(n)} samples cannot be divided evenly among ${state.ranks} ranks: "${state.uneven}" ${state.uneven === "drop" ? "leaves the last out" : "repeats the first"}.`)
        : "Nothing: each sample comes exactly once, over all ranks together."],
      ["Which rank sees what?", state.ranks === 1 ? "There is one rank, which sees everything. Give more ranks: together they see what one would have seen." : stratified
        ? `Of each ${state.ranks} batches in a row, rank r takes the one at place r, so each batch is stratified on every rank.`
        : `The order is global: of each ${state.ranks} indices in a row, rank r takes the one at place r. ` + (state.sampler === "sequential" ? "Without shuffling the ranks' batches are sorted by class, too: all ranks see the same class at the same time." : "Every rank sees a random share of each class; torch's DistributedSampler can do this for uniform shuffling only.")],
    ],
    code: python(state),
  };
}

function python(state) {
  const seed = `, seed=${state.seed}`, lines = ["import feedline", "from feedline import DataLoader", ""];
  const made = {
    sequential: "feedline.SequentialSampler(dataset)", random: `feedline.RandomSampler(dataset${seed})`,
    replacement: `feedline.RandomSampler(dataset, replacement=True${seed})`,
    weighted: `feedline.WeightedRandomSampler(feedline.weights_from_labels(labels), num_samples=len(dataset)${seed})`,
    stratified: `feedline.StratifiedBatchSampler(labels, ${state.b}, share="${state.share}"${seed})`,
  }[state.sampler];
  lines.push("sampler = " + made);
  if (state.ranks > 1) lines.push(`sampler = feedline.DistributedSampler(sampler, num_replicas=${state.ranks}, rank=rank, uneven="${state.uneven}")`);
  lines.push(state.sampler === "stratified" ? "loader = DataLoader(dataset, batch_sampler=sampler)" : `loader = DataLoader(dataset, batch_size=${state.b}, sampler=sampler)`);
  return lines.join("\n");
}
