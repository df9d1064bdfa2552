// View 3: how samples of different lengths become a batch: padding, buckets, packing; detection; dropped samples.
import { bucketBatches } from "./buckets.js";
import { detected, madeImages, madeLengths, pack, paddedTo, paddingOf } from "./collating.js";
import { cards, counted, h, number, percent, table } from "./dom.js";
import { batchesOf, randomOrder } from "./orders.js";
import { mix, randomWords, uniform } from "./words.js";

const CELLS = 96, ROWS = 24;

export const collation = {
  name: "collation", title: "Collation",
  intro: "Samples become one batch. Sequences of different lengths are padded, sorted into buckets first, or packed end to end; images are stacked while their boxes stay a list; invalid samples can be dropped.",
  controls: [
    { key: "what", label: "samples are", kind: "choice", value: "sequences", choices: [["sequences", "sequences of tokens"], ["detection", "images with boxes"], ["invalid", "some of them invalid"]] },
    { key: "method", label: "sequences are", kind: "choice", value: "pad", choices: [["pad", "padded"], ["bucket", "bucketed, then padded"], ["pack", "packed"]] },
    { key: "n", label: "samples", min: 1, max: 5000, value: 512, slide: 2000 },
    { key: "longest", label: "longest sequence", min: 2, max: 2048, value: 96, slide: 512 },
    { key: "b", label: "batch size", min: 1, max: 256, value: 16, slide: 64 },
    { key: "multiple", label: "pad to a multiple of", min: 1, max: 64, value: 1, slide: 64 },
    { key: "max_padding", label: "max_padding (buckets)", min: 0, max: 0.9, step: 0.05, value: 0.15, slide: 0.9 },
    { key: "row", label: "row length (packed)", min: 2, max: 4096, value: 128, slide: 1024 },
    { key: "bad", label: "share of invalid samples", min: 0, max: 1, step: 0.01, value: 0.1, slide: 1 },
    { key: "batch", label: "shown batch", min: 0, max: 5000, value: 0, slide: 30 },
    { key: "seed", label: "seed", min: 0, max: 9007199254740991, value: 7 },
  ],
  model, show,
};

export function lengthsOf(state) { return madeLengths(state.n, state.longest, mix(state.seed, 3)); }
export function imagesOf(state) { return madeImages(state.n, mix(state.seed, 5)); }
export function invalidOf(state) { return randomWords(mix(state.seed, 4), 0, state.n).map(word => uniform(word) < state.bad); }
const plain = state => batchesOf(randomOrder(state.n, state.seed, 0).slice(0, state.n), state.b, false);
const bucketed = (state, lengths) => bucketBatches(lengths, state.b, null, state.max_padding, false, state.seed, 0);

export function packingOf(batches, lengths, row) {
  let rows = 0, filled = 0;
  for (const batch of batches) {
    const own = batch.map(index => lengths[index]);
    rows += pack(own, row).rows;
    for (const one of own) filled += one;
  }
  return { rows, share: rows ? 1 - filled / (rows * row) : 0 };
}

export function model(state) {
  const lengths = lengthsOf(state), batches = plain(state), buckets = bucketed(state, lengths), bad = invalidOf(state);
  const sizes = batches.map(batch => batch.filter(index => !bad[index]).length);
  return {
    padded: paddingOf(batches, lengths, state.multiple).share, bucketed: paddingOf(buckets, lengths, state.multiple).share,
    packed: packingOf(batches, lengths, state.row).share, rows: packingOf(batches, lengths, state.row).rows,
    batches: batches.length, dropped: bad.filter(Boolean).length,
    smallest: sizes.length ? Math.min(...sizes) : 0, empty: sizes.filter(one => !one).length,
  };
}

function mask(rows, wide, title) {
  const shown = rows.slice(0, ROWS), cells = Math.min(wide, CELLS), per = wide / cells;
  return h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": title }, h("table", { class: "mask", "aria-label": title }, h("tbody", {}, shown.map(row =>
    h("tr", {}, Array.from({ length: cells }, (_, at) => {
      const owner = row[Math.floor(at * per)];
      return h("td", { style: owner ? `background: var(--l${(owner - 1) % 7})` : "background: var(--rule)" });
    }))))), rows.length > ROWS || per > 1 ? h("p", { class: "small" }, `${shown.length} of ${number(rows.length)} rows; ${per > 1 ? "a cell is " + number(per) + " places" : "a cell is a place"}`) : null);
}

function sequences(state, found) {
  const lengths = lengthsOf(state), all = state.method === "bucket" ? bucketed(state, lengths) : plain(state);
  const place = Math.min(state.batch, all.length - 1), own = all[place].map(index => lengths[index]);
  let rows, wide, words;
  if (state.method === "pack") {
    const { pieces, rows: many } = pack(own, state.row);
    wide = state.row;
    rows = Array.from({ length: many }, () => new Array(wide).fill(0));
    for (const piece of pieces) rows[piece.row].fill(piece.sample + 1, piece.start, piece.start + piece.size);
    words = `Batch ${place}: ${counted(own.length, "sequence")} in ${counted(many, "row")} of ${wide}. Colours are segments: attention must not cross them.`;
  } else {
    wide = paddedTo(own, state.multiple);
    rows = own.map(length => new Array(wide).fill(0).fill(1, 0, length));
    words = `Batch ${place}: ${counted(own.length, "sequence")}, padded to ${wide}. This is the attention mask: coloured is True, grey is padding.`;
  }
  return [h("p", {}, words), mask(rows, wide, "mask of batch " + place)];
}

function detection(state) {
  const all = plain(state), place = Math.min(state.batch, all.length - 1), images = imagesOf(state), own = all[place].map(index => images[index]);
  const shape = detected(own), pixels = own.reduce((sum, one) => sum + one.height * one.width, 0);
  return [h("p", {}, `Batch ${place}: images are padded at the right and at the bottom, to the largest, so boxes stay valid; ${percent(1 - pixels / (own.length * shape[2] * shape[3]))} of it is padding. Boxes stay a list with one entry for each image, however many it has.`),
    table(["field of the batch", "what it is"], [["images", `an array of shape (${shape.join(", ")})`], ["sizes", `an array of shape (${own.length}, 2)`], ...own.slice(0, 8).map((one, at) => [`targets[${at}]`, `${counted(one.boxes, "box", "boxes")} of an image of ${one.height} × ${one.width}`]), ...(own.length > 8 ? [["…", `${own.length} targets in all`]] : [])])];
}

function invalid(state) {
  const bad = invalidOf(state), all = plain(state), place = Math.min(state.batch, all.length - 1);
  return [h("p", {}, `Batch ${place}: a dataset returns None for what it cannot read, and drop_invalid() leaves it out.`),
    h("div", { class: "cells" }, all[place].map(index => h("span", { class: bad[index] ? "cell gone" : "cell", style: "--hue:" + Math.round(index / state.n * 300) }, index)))];
}

function show(state) {
  const found = model(state), parts = { sequences, detection, invalid }[state.what](state, found);
  const numbers = state.what === "invalid"
    ? { "samples dropped": number(found.dropped), "smallest batch": number(found.smallest), "empty batches (skipped)": number(found.empty) }
    : { "padding: padded": percent(found.padded), "padding: bucketed": percent(found.bucketed), "padding: packed": percent(found.packed), "batches": number(found.batches) };
  return {
    numbers: found, drawing: [cards(numbers), parts],
    questions: [
      ["How much of this is padding, and what would help?", `Padded to the longest of each random batch, ${percent(found.padded)} of all places are padding: a step computes on them for nothing. Buckets of similar lengths leave ${percent(found.bucketed)}, packing into rows of ${state.row} leaves ${percent(found.packed)}. ` + (found.padded > 0.4 ? "The report and the doctor say so above 40 %, with these remedies." : "The report and the doctor speak of a problem above 40 %.")],
      ["What do buckets cost?", `Mixing: samples meet only those of similar length. max_padding=${state.max_padding} says how much padding a batch may have while there are enough similar samples; smaller means less padding and less mixing. Batches still come in random order, and each sample once an epoch.`],
      ["What happens to a batch whose samples are invalid?", `With a share of ${percent(state.bad)}, ${counted(found.dropped, "sample")} of ${number(state.n)} would be dropped; the smallest batch keeps ${number(found.smallest)} of ${number(Math.min(state.b, state.n))}, and ${number(found.empty)} would be empty: those are skipped, not delivered. They are counted in loader.stats(): never silently.`],
    ],
    code: python(state),
  };
}

function python(state) {
  if (state.what === "detection") return `from feedline import DataLoader, collate\n\nloader = DataLoader(dataset, batch_size=${state.b}, shuffle=True, seed=${state.seed}, collate_fn=collate.detection())`;
  if (state.what === "invalid") return `from feedline import DataLoader, collate\n\nloader = DataLoader(dataset, batch_size=${state.b}, shuffle=True, seed=${state.seed}, collate_fn=collate.drop_invalid())`;
  if (state.method === "pack") return `from feedline import DataLoader, collate\n\nloader = DataLoader(dataset, batch_size=${state.b}, shuffle=True, seed=${state.seed}, collate_fn=collate.pack(${state.row}, on_long="split"))`;
  const collate = `collate_fn=collate.pad(0${state.multiple > 1 ? `, multiple=${state.multiple}` : ""})`;
  if (state.method === "bucket") return `from feedline import BucketBatchSampler, DataLoader, collate\n\nsampler = BucketBatchSampler(lengths, ${state.b}, max_padding=${state.max_padding}, seed=${state.seed})\nloader = DataLoader(dataset, batch_sampler=sampler, ${collate})`;
  return `from feedline import DataLoader, collate\n\nloader = DataLoader(dataset, batch_size=${state.b}, shuffle=True, seed=${state.seed}, ${collate})`;
}
