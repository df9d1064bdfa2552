// View 6: copies to a device, and where batches lie in the loader's memory.
import { bytes, cards, counted, h, legend, number, percent, s, time } from "./dom.js";
import { gantt } from "./gantt.js";

const MAX_LEASED = 8;  // arena/slots.py

export const memory = {
  name: "memory", title: "Memory transfer",
  intro: "A batch is made in a slot of the loader's memory, and copied to the device. From pageable memory the copy is part of the loop; from pinned memory the next batch is copied while the device computes. Bandwidths are inputs: the defaults are what a PCIe 4.0 card may reach, and nothing here was measured on a GPU.",
  controls: [
    { key: "mb", label: "a batch, MB", min: 0.001, max: 10000, step: 0.001, value: 38.5, slide: 500 },
    { key: "pageable", label: "pageable, GB/s", min: 0.1, max: 200, step: 0.1, value: 6, slide: 60 },
    { key: "pinned", label: "pinned, GB/s", min: 0.1, max: 200, step: 0.1, value: 22, slide: 60 },
    { key: "step", label: "step, ms", min: 0, max: 10000, step: 0.1, value: 15, slide: 100 },
    { key: "batches", label: "batches", min: 1, max: 100, value: 12, slide: 40 },
    { key: "workers", label: "workers", min: 1, max: 16, value: 2, slide: 16 },
    { key: "prefetch", label: "prefetch_factor", min: 1, max: 8, value: 2, slide: 8 },
    { key: "keep", label: "batches you keep", min: 1, max: 40, value: 1, slide: 20 },
  ],
  model, show,
};

// explorer/transfers.py
export function transfers(batches, copy, step, ahead) {
  const found = [];
  for (let i = 0; i < batches; i++) {
    const before = i ? found[i - 1] : { from: 0, copied: 0, ready: 0, stepped: 0 };
    const from = ahead ? Math.max(before.copied, before.ready) : before.stepped, ready = Math.max(from + copy, before.stepped);
    found.push({ from, copied: from + copy, ready, stepped: ready + step });
  }
  return found;
}

// arena/slots.py: which slot each batch is made in. `keep` batches, and the one before the loop's next, are in use.
export function slotsOf(room, keep, batches) {
  const free = [], out = [], number = { next: 0 }, made = [], retired = [], shots = [];
  let leased = [], held = [];
  const take = () => {
    const ended = leased.filter(one => !held.includes(one));
    leased = leased.filter(one => held.includes(one));
    free.push(...ended.map(one => one.slot));
    if (free.length) return free.pop();
    while (leased.length > MAX_LEASED) retired.push(leased.shift());
    return number.next++;
  };
  for (let i = 0; i < batches; i++) {
    while (out.length < room && made.length < batches) { const slot = take(); out.push(slot); made.push(slot); }
    const batch = { slot: out.shift(), batch: i };
    leased.push(batch); held.push(batch);
    while (out.length < room && made.length < batches) { const slot = take(); out.push(slot); made.push(slot); }
    held = held.slice(-keep);
    shots.push({ out: [...out], held: held.map(one => one.slot), slots: number.next, gone: retired.map(one => one.slot) });
  }
  return { made, shots, slots: number.next, retired: retired.length };
}

export function model(state) {
  const size = state.mb * 1e6, slow = Math.round(size / state.pageable / 1e3), fast = Math.round(size / state.pinned / 1e3), step = Math.round(state.step * 1000);
  const pageable = transfers(state.batches, slow, step, false), pinned = transfers(state.batches, fast, step, true), slots = slotsOf(state.workers * state.prefetch, state.keep, state.batches);
  const end = turns => turns[turns.length - 1].stepped, idle = turns => end(turns) ? 1 - state.batches * step / end(turns) : 0;
  return { copy: slow, copyPinned: fast, end: end(pageable), endPinned: end(pinned), idle: idle(pageable), idlePinned: idle(pinned), slots: slots.slots, retired: slots.retired, bytes: slots.slots * size };
}

function rows(turns) {
  return [{ name: "copy", spans: turns.map((one, at) => ({ start: one.from, end: one.copied, kind: "copy", title: `batch ${at}: ${time(one.copied - one.from)}` })) },
    { name: "device", spans: turns.map((one, at) => ({ start: one.ready, end: one.stepped, kind: "compute", title: "batch " + at })) }];
}

function grid(slots, state) {
  const wide = 900, shots = slots.shots, across = Math.min(40, (wide - 60) / shots.length), high = 16 * slots.slots + 16, parts = [];
  for (let slot = 0; slot < slots.slots; slot++) parts.push(s("text", { x: 0, y: 16 * slot + 12 }, "slot " + slot));
  shots.forEach((shot, at) => {
    for (let slot = 0; slot < slots.slots; slot++) {
      const kind = shot.held.includes(slot) ? "wait" : shot.out.includes(slot) ? "fetch" : slot < shot.slots && !shot.gone.includes(slot) ? "free" : null;
      if (kind) parts.push(s("rect", { x: 60 + at * across, y: 16 * slot + 1, width: across - 1, height: 14, class: kind }, s("title", {}, `after batch ${at}, slot ${slot}`)));
    }
  });
  return [legend({ fetch: "a worker writes it, or its batch waits", wait: "your loop has its batch", free: "free" }), h("div", { class: "gantt" }, s("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": `who uses each of ${slots.slots} slots, batch after batch` }, parts))];
}

function show(state) {
  const found = model(state), step = Math.round(state.step * 1000), end = Math.max(found.end, found.endPinned), room = state.workers * state.prefetch;
  const names = { copy: "the batch is copied", compute: "the device computes" }, slots = slotsOf(room, state.keep, state.batches);
  return {
    numbers: found,
    drawing: [cards({
      "a copy, pageable": time(found.copy), "a copy, pinned": time(found.copyPinned), "device idle, pageable": percent(found.idle), "device idle, pinned": percent(found.idlePinned),
      "slots": number(found.slots), "memory of slots, at most": bytes(found.bytes),
    }), h("h2", {}, "Pageable: the copy is in the loop's way"), gantt(rows(transfers(state.batches, found.copy, step, false)), end, names, "pageable copies"),
    h("h2", {}, "Pinned: the copy is under the step"), gantt(rows(transfers(state.batches, found.copyPinned, step, true)), end, names, "pinned copies"),
    h("h2", {}, "Slots and leases, in host memory"), grid(slots, state)],
    questions: [
      ["What does pinning gain here?", `A batch of ${bytes(state.mb * 1e6)} takes ${time(found.copy)} at ${state.pageable} GB/s. Copied in the loop, that leaves the device idle for ${percent(found.idle)} of ${time(found.end)}. Pinned and one batch ahead it is ${percent(found.idlePinned)} of ${time(found.endPinned)}` + (found.copyPinned > step ? `: a copy takes longer than a step (${time(step)}), so the bus is the limit, whatever the loader does. Send smaller types: bytes instead of floats are a quarter.` : ": only the first copy is seen.")],
      ["How many slots are there, and who has them?", `At most ${number(room)} batches are out (${state.workers} workers × ${state.prefetch}), and your loop has ${counted(state.keep, "batch", "batches")}: ${counted(found.slots, "slot")} in ${counted(state.batches, "batch", "batches")}. A slot is written again only when no array of its batch exists any more: a lease on each large array notices that.`],
      ["What happens when you keep batches?", state.keep <= 1 ? "You keep one, as an ordinary loop does: its slot is free again when the variable gets the next batch, and the same few slots go round, warm in the cache. Give more, as a list of batches would." : found.retired ? `Your ${state.keep} batches stay valid, each in a slot of its own. When you hold more than ${MAX_LEASED}, the oldest slots are retired (${number(found.retired)} here): all their memory but your arrays goes back, and they are never written again.` : `Your ${state.keep} batches stay valid, each in a slot of its own, and workers get other slots. Nothing waits, and nothing is overwritten.`],
    ],
    code: `from feedline.torch import DataLoader\n\nloader = DataLoader(dataset, batch_size=64, num_workers=${state.workers}, prefetch_factor=${state.prefetch}, pin_memory=True, device="cuda")`,
  };
}
