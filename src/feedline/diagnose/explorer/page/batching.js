// View 1: how samples become batches, epoch by epoch.
import { cards, counted, h, number, percent } from "./dom.js";
import { batchesOf, counting, randomOrder } from "./orders.js";

const ROWS = 12, CELLS = 64;

export const batching = {
  name: "batching", title: "Batching",
  intro: "An epoch is the order of all samples, cut into batches. A cell's colour is the sample's place in the dataset: with shuffling, each batch is a mixture. This is the order of feedline.DataLoader; feedline.torch draws torch's order from torch's generator.",
  controls: [
    { key: "n", label: "samples", min: 1, max: 1000000, value: 100, slide: 2000 },
    { key: "b", label: "batch size", min: 1, max: 4096, value: 16, slide: 256 },
    { key: "shuffle", label: "shuffle", kind: "check", value: true },
    { key: "drop_last", label: "drop_last", kind: "check", value: false },
    { key: "seed", label: "seed", min: 0, max: 9007199254740991, value: 7 },
    { key: "epoch", label: "epoch", min: 0, max: 1000000, value: 0, slide: 20 },
  ],
  model, show,
};

export function orderOf(state, epoch = state.epoch) {
  return state.shuffle ? randomOrder(state.n, state.seed, epoch) : counting(state.n);
}

export function model(state) {
  const { n, b, drop_last } = state, up = Math.ceil(n / b), down = Math.floor(n / b), rest = n % b, batches = drop_last ? down : up;
  const last = drop_last || !rest ? (batches ? b : 0) : rest;
  return { up, down, batches, last, lost: drop_last ? rest : 0, rest };
}

function meeting(state) {  // of this epoch's first batch, how many come together again
  const size = Math.min(state.b, state.n), first = new Set(orderOf(state).slice(0, size));
  const together = epoch => orderOf(state, epoch).slice(0, size).filter(index => first.has(index)).length;
  return { size, again: together(state.epoch + 1) };
}

function show(state) {
  const found = model(state), order = orderOf(state), shown = Math.min(ROWS, found.batches), rows = [];
  const cell = (index, gone) => h("span", { class: gone ? "cell gone" : "cell", style: "--hue:" + Math.round(index / state.n * 300), title: "sample " + index }, index);
  const row = (number, gone) => {
    const start = number * state.b, stop = Math.min(start + state.b, state.n), indices = order.slice(start, Math.min(stop, start + CELLS));
    return h("div", { class: "batch", style: "--at:" + rows.length }, h("b", {}, gone ? "dropped" : "batch " + number),
      h("div", { class: "cells" }, indices.map(index => cell(index, gone)), stop - start > CELLS ? h("span", {}, "… " + counted(stop - start, "sample")) : null));
  };
  const firstOnes = found.batches > shown ? shown - 1 : shown;
  for (let number = 0; number < firstOnes; number++) rows.push(row(number, false));
  if (found.batches > shown) rows.push(h("p", { class: "small" }, "… " + counted(found.batches - shown, "batch", "batches") + " more …"), row(found.batches - 1, false));
  if (found.lost) rows.push(row(found.batches, true));
  const together = state.shuffle ? meeting(state) : null;
  return {
    numbers: found,
    drawing: [cards({
      "⌈N / B⌉": number(found.up), "⌊N / B⌋ (drop_last)": number(found.down), "batches of this loader": number(found.batches),
      "samples in the last": number(found.last), "samples dropped": number(found.lost),
    }), h("div", { class: "batches", role: "img", "aria-label": counted(found.batches, "batch", "batches") + "; the first indices of each" }, rows)],
    questions: [
      ["How many batches does drop_last lose here, and why?", found.rest
        ? `${counted(state.n, "sample")} fill ${counted(found.down, "batch", "batches")} of ${number(state.b)}, and ${counted(found.rest, "sample")} remain. Without drop_last they are one more batch (${number(found.up)} in all); with it that batch is dropped, so an epoch sees ${percent(found.rest / state.n)} less. ` + (state.shuffle ? "With shuffling it is other samples in each epoch." : "Without shuffling it is the same samples in every epoch: they would never be seen.")
        : `None: ${number(state.n)} is a multiple of ${number(state.b)}, so every batch is full, and drop_last changes nothing.`],
      ["What does the last batch do to batch norm?", lastBatch(state, found)],
      ["Does the next epoch have the same batches?", !found.batches ? "There is no batch in any epoch: drop_last drops the only one." : state.b >= state.n ? `Yes: all ${counted(state.n, "sample")} are in its only batch` + (state.shuffle ? ", in the order that follows from seed and epoch." : ".") : together === null
        ? "Yes, without shuffling every epoch has the same batches in the same order, and what follows what is learnt with the rest."
        : `No: of the ${counted(together.size, "sample")} of this epoch's first batch, ${number(together.again)} ${together.again === 1 ? "is" : "are"} in the first batch of epoch ${state.epoch + 1}. The order is a function of seed and epoch: the same two numbers give the same batches, with any number of workers.`],
    ],
    code: `from feedline import DataLoader\n\nloader = DataLoader(dataset, batch_size=${state.b}, shuffle=${state.shuffle ? "True" : "False"}, drop_last=${state.drop_last ? "True" : "False"}, seed=${state.seed})`,
  };
}

function lastBatch(state, found) {
  if (!found.batches) return `There is no batch at all: drop_last drops the only one, of ${counted(found.rest, "sample")}.`;
  if (state.b === 1) return "It is like all others: each has a single sample, whose variance is 0. Batch norm needs a larger batch size.";
  if (found.last === 1) return "It has a single sample: its variance is 0, and torch raises “Expected more than 1 value per channel when training”. feedline warns of it. Use drop_last=True, or another batch size.";
  if (found.last < state.b) return `It has ${counted(found.last, "sample")} instead of ${number(state.b)}: its means are ${number(Math.sqrt(state.b / found.last))} times as noisy, and its step counts as much as any other, so each of its samples weighs ${number(state.b / found.last)} times as much.`;
  return `Nothing: it is full, like all others, with ${counted(found.last, "sample")}.`;
}
