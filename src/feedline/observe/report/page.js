// The timeline: rows of spans on a canvas, with zoom, movement and details. Everything else on the page does without it.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.getElementById("canvas");
  if (!canvas) return;
  document.documentElement.classList.add("scripted");
  const tip = document.getElementById("tip"), range = document.getElementById("range");
  const pen = canvas.getContext("2d");
  const AXIS = 24, ROW = 30, PAD = 4, COLLATING = -3;
  const KINDS = ["wait", "compute", "fetch", "collate"];
  const WORDS = { wait: "the loop waits", compute: "the loop computes", fetch: "reads samples", collate: "makes the batch" };
  let width = 0, gutter = 0, view = [0, data.length], marked = null, colours = {};

  // ── The spans, row by row, sorted by time ─────────────────────────────────────────────────────────────
  const rows = data.rows.map(name => ({ name, start: [], end: [], kind: [], batch: [] }));
  function add(row, start, end, kind, batch) {
    const to = rows[row];
    to.start.push(start); to.end.push(end); to.kind.push(kind); to.batch.push(batch);
  }
  function summed(steps) { let sum = 0; return steps.map(step => sum += step); }
  const made = data.made, given = data.given;
  made.at = summed(made.start);
  given.at = summed(given.asked);
  for (let i = 0; i < given.at.length; i++) {
    const end = given.at[i] + given.waited[i];
    add(0, given.at[i], end, 0, i);
    if (i + 1 < given.at.length && given.epoch[i + 1] === given.epoch[i]) add(0, end, given.at[i + 1], 1, i);
  }
  for (let i = 0; i < made.at.length; i++) {
    const turn = made.at[i] + made.fetch[i];
    add(made.row[i], made.at[i], turn, 2, i);
    if (made.collate[i]) add(made.row[i], turn, turn + made.collate[i], 3, i);
  }

  // ── Time and place ────────────────────────────────────────────────────────────────────────────────────
  const x = time => gutter + (time - view[0]) / (view[1] - view[0]) * (width - gutter);
  const timeAt = place => view[0] + (place - gutter) / (width - gutter) * (view[1] - view[0]);
  function said(micros) {
    if (micros < .5) return "0";
    if (micros >= 1e6) return (micros / 1e6).toPrecision(4).replace(/\.?0+$/, "") + " s";
    if (micros >= 1e3) return (micros / 1e3).toPrecision(3).replace(/\.0+$/, "") + " ms";
    return Math.round(micros) + " µs";
  }
  function firstVisible(row, time) {  // the first span that ends after that time
    let low = 0, high = row.end.length;
    while (low < high) { const mid = (low + high) >> 1; if (row.end[mid] < time) low = mid + 1; else high = mid; }
    return low;
  }

  // ── Drawing ───────────────────────────────────────────────────────────────────────────────────────────
  function readColours() {
    const style = getComputedStyle(document.documentElement);
    for (const name of [...KINDS, "ink", "faint", "rule", "card"]) colours[name] = style.getPropertyValue("--" + name).trim();
  }
  function draw() {
    const ratio = window.devicePixelRatio || 1, height = AXIS + rows.length * ROW;
    width = canvas.clientWidth;
    gutter = width < 500 ? 62 : 96;
    canvas.style.height = height + "px";
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = "12px system-ui, sans-serif";
    drawAxis(height);
    pen.save();
    pen.beginPath(); pen.rect(gutter, 0, width - gutter, height); pen.clip();
    rows.forEach((row, number) => drawRow(row, AXIS + number * ROW));
    drawEvents(height);
    pen.restore();
    pen.fillStyle = colours.ink; pen.textBaseline = "middle"; pen.textAlign = "left";
    rows.forEach((row, number) => pen.fillText(gutter < 90 ? row.name.replace("training ", "") : row.name, 6, AXIS + (number + .5) * ROW));
    range.textContent = said(view[0]) + " – " + said(view[1]);
  }
  function drawAxis(height) {
    const span = view[1] - view[0], aim = span / Math.max(2, (width - gutter) / 110);
    const power = 10 ** Math.floor(Math.log10(aim));
    const step = Math.max(1, power * [1, 2, 5, 10].find(factor => factor * power >= aim));
    pen.strokeStyle = colours.rule; pen.fillStyle = colours.faint; pen.textBaseline = "middle"; pen.textAlign = "left"; pen.lineWidth = 1;
    for (let time = Math.ceil(view[0] / step) * step; time <= view[1]; time += step) {
      const place = Math.round(x(time)) + .5;
      pen.beginPath(); pen.moveTo(place, 0); pen.lineTo(place, height); pen.stroke();
      const word = said(time);
      if (place + 4 + pen.measureText(word).width < width) pen.fillText(word, place + 4, AXIS / 2);
    }
  }
  function drawRow(row, top) {
    const first = firstVisible(row, view[0]);
    let last = first;
    while (last < row.start.length && row.start[last] <= view[1]) last++;
    if (last - first > (width - gutter)) drawDense(row, top, first, last);
    else for (let i = first; i < last; i++) drawSpan(row, top, i);
  }
  function drawSpan(row, top, i) {
    const left = x(row.start[i]), wide = Math.max(1, x(row.end[i]) - left), kind = KINDS[row.kind[i]];
    pen.fillStyle = colours[kind];
    pen.fillRect(left, top + PAD, Math.max(.75, wide - .5), ROW - 2 * PAD);
    if (kind === "fetch") drawSamples(row.batch[i], top);
    const word = kind === "fetch" ? String(made.seq[row.batch[i]]) : "";
    if (word && wide > pen.measureText(word).width + 10) {
      pen.fillStyle = colours.card; pen.textBaseline = "middle"; pen.textAlign = "left";
      pen.fillText(word, Math.max(left, gutter) + 5, top + ROW / 2);
    }
  }
  function drawSamples(batch, top) {
    const flat = made.samples && made.samples[batch];
    if (!flat || flat.length < 4 || x(made.at[batch] + made.fetch[batch]) - x(made.at[batch]) < 2.5 * flat.length) return;
    pen.fillStyle = colours.card;
    for (let i = 2; i < flat.length; i += 2) pen.fillRect(x(made.at[batch] + flat[i + 1]) - .5, top + PAD, 1, ROW - 2 * PAD);
  }
  function drawDense(row, top, first, last) {  // more spans than pixels: for each pixel, the shares of what it covers
    const pixels = Math.ceil(width - gutter), per = (view[1] - view[0]) / (width - gutter);
    const shares = KINDS.map(() => new Float32Array(pixels + 1));
    for (let i = first; i < last; i++) {
      const from = (Math.max(row.start[i], view[0]) - view[0]) / per, to = (Math.min(row.end[i], view[1]) - view[0]) / per;
      const into = shares[row.kind[i]];
      for (let p = Math.floor(from); p <= to && p < pixels; p++) into[p] += Math.max(0, Math.min(to, p + 1) - Math.max(from, p));
    }
    const tall = ROW - 2 * PAD;
    for (let p = 0; p < pixels; p++) {
      let bottom = top + ROW - PAD;
      KINDS.forEach((kind, k) => {
        const high = Math.min(1, shares[k][p]) * tall;
        if (high > 0) { pen.fillStyle = colours[kind]; pen.fillRect(gutter + p, bottom - high, 1, high); bottom -= high; }
      });
    }
  }
  function drawEvents(height) {
    pen.strokeStyle = colours.ink; pen.fillStyle = colours.ink;
    for (const [time] of data.events) {
      const place = x(time);
      pen.beginPath(); pen.setLineDash([3, 3]); pen.moveTo(place, 0); pen.lineTo(place, height); pen.stroke(); pen.setLineDash([]);
      pen.beginPath(); pen.moveTo(place - 5, 0); pen.lineTo(place + 5, 0); pen.lineTo(place, 8); pen.fill();
    }
    if (marked) {
      pen.lineWidth = 2; pen.setLineDash([]);
      pen.strokeRect(x(marked[0]) - 2, AXIS, Math.max(4, x(marked[1]) - x(marked[0]) + 4), rows.length * ROW - 1);
    }
  }
  let due = false;
  function later() { if (!due) { due = true; requestAnimationFrame(() => { due = false; draw(); }); } }

  // ── Zoom and movement ─────────────────────────────────────────────────────────────────────────────────
  function show(from, to) {
    const least = Math.min(20, data.length), span = Math.min(data.length, Math.max(least, to - from));
    const start = Math.min(data.length - span, Math.max(0, from));
    view = [start, start + span];
    hide(); later();
  }
  function zoom(factor, around) {
    const at = around === undefined ? (view[0] + view[1]) / 2 : around;
    show(at - (at - view[0]) * factor, at + (view[1] - at) * factor);
  }
  function move(share) { const by = (view[1] - view[0]) * share; show(view[0] + by, view[1] + by); }
  const whole = () => view[0] <= 0 && view[1] >= data.length;
  const ACTIONS = { in: () => zoom(.5), out: () => zoom(2), left: () => move(-.25), right: () => move(.25), all: () => { marked = null; show(0, data.length); } };
  const KEYS = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", "0": "all" };
  document.querySelectorAll("[data-do]").forEach(button => button.addEventListener("click", ACTIONS[button.dataset.do]));
  document.querySelectorAll("[data-start]").forEach(button => button.addEventListener("click", () => {
    const start = +button.dataset.start, length = Math.max(1, +button.dataset.length);
    marked = [start, start + length];
    show(start - 2 * length, start + 3 * length);
    canvas.scrollIntoView({ block: "center" });
    canvas.focus({ preventScroll: true });
  }));
  canvas.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const action = KEYS[event.key];
    if (action) { event.preventDefault(); ACTIONS[action](); }
    if (event.key === "Escape") hide();
  });
  canvas.addEventListener("wheel", event => {
    const sideways = event.shiftKey ? event.deltaY : event.deltaX;
    if (Math.abs(sideways) > Math.abs(event.deltaY) || event.shiftKey) {
      event.preventDefault(); move(sideways / 800);
    } else if (event.deltaY < 0 || !whole()) {  // the whole run is shown: the page scrolls on
      event.preventDefault(); zoom(Math.exp(Math.max(-100, Math.min(100, event.deltaY)) / 250), timeAt(event.offsetX));
    }
  }, { passive: false });
  const fingers = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", event => {
    fingers.set(event.pointerId, event.offsetX);
    canvas.setPointerCapture(event.pointerId);
    if (fingers.size === 1) moved = 0;
  });
  canvas.addEventListener("pointermove", event => {
    if (!fingers.has(event.pointerId)) { if (event.pointerType === "mouse") detail(event.offsetX, event.offsetY); return; }
    const before = [...fingers.values()], place = fingers.get(event.pointerId), per = (view[1] - view[0]) / (width - gutter);
    fingers.set(event.pointerId, event.offsetX);
    moved += Math.abs(event.offsetX - place);
    if (fingers.size === 2) {
      const now = [...fingers.values()], was = Math.abs(before[0] - before[1]), is = Math.abs(now[0] - now[1]);
      if (was > 4 && is > 4) zoom(was / is, timeAt((now[0] + now[1]) / 2));
    } else if (moved > 3) show(view[0] - (event.offsetX - place) * per, view[1] - (event.offsetX - place) * per);
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, event => {
    const tapped = fingers.delete(event.pointerId) && name === "pointerup" && !fingers.size && moved <= 3;
    if (tapped) detail(event.offsetX, event.offsetY);
  });
  canvas.addEventListener("pointerleave", event => { if (event.pointerType === "mouse") hide(); });

  // ── Details of what is under the pointer ──────────────────────────────────────────────────────────────
  function hide() { tip.hidden = true; }
  function detail(left, top) {
    const event = data.events.find(one => Math.abs(x(one[0]) - left) < 5);
    const row = rows[Math.floor((top - AXIS) / ROW)];
    const text = top < AXIS && event ? event[1] : row && left >= gutter ? words(row, timeAt(left)) : "";
    if (!text) { hide(); return; }
    tip.textContent = text;
    tip.hidden = false;
    tip.style.left = Math.max(0, Math.min(left + 14, width - tip.offsetWidth - 2)) + "px";
    tip.style.top = top + 18 + "px";
  }
  function words(row, time) {
    const near = 3 * (view[1] - view[0]) / (width - gutter);  // a thin span need not be hit exactly
    let best = -1, away = near;
    for (let i = firstVisible(row, time - near); i < row.start.length && row.start[i] <= time + near; i++) {
      const distance = Math.max(row.start[i] - time, time - row.end[i], 0);
      if (distance < away || (distance === 0 && away > 0)) { best = i; away = distance; }
    }
    if (best < 0) return row.name + ": nothing to do";
    const kind = KINDS[row.kind[best]], batch = row.batch[best], of = row.kind[best] < 2 ? given : made;
    const lines = [row.name + ": " + WORDS[kind] + ", " + said(row.end[best] - row.start[best]),
      "batch " + of.seq[batch] + " of epoch " + of.epoch[batch] + ", at " + said(row.start[best])];
    if (kind === "wait") lines.push(given.size[batch] + " samples, " + given.queued[batch] + " batches were ready");
    if (kind === "fetch") lines.push(...sample(batch, time), ...indices(batch));
    return lines.join("\n");
  }
  function sample(batch, time) {
    const flat = made.samples && made.samples[batch];
    if (!flat) return [];
    for (let i = flat.length - 2; i >= 0; i -= 2) {
      if (made.at[batch] + flat[i + 1] > time) continue;
      if (flat[i] === COLLATING) return [];
      const end = i + 3 < flat.length ? flat[i + 3] : made.fetch[batch], known = made.indices[batch][flat[i]];
      return ["here sample " + (known === undefined ? "number " + flat[i] : known) + ", " + said(end - flat[i + 1])];
    }
    return [];
  }
  function indices(batch) {
    const known = made.indices[batch], size = made.size[batch];
    if (!known.length) return [];
    const shown = known.slice(0, 24);
    return ["indices " + shown.join(", ") + (size > shown.length ? ", … (" + size + " in all)" : "")];
  }

  readColours();
  new ResizeObserver(later).observe(canvas.parentElement);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); later(); });
  draw();
})();
