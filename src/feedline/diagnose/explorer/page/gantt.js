// A Gantt chart as SVG: rows of spans over time, with zoom by buttons and keys. At most MOST spans are drawn; of more,
// those are left out that would be thinner than half a pixel.
import { h, legend, s, time } from "./dom.js";

const WIDE = 900, ROW = 22, LEFT = 92, TOP = 18, MOST = 4000;

// rows: [{ name, spans: [{ start, end, kind, title }] }]; names of kinds for the legend.
export function gantt(rows, end, names, label) {
  let from = 0, to = Math.max(end, 1);
  const high = TOP + rows.length * ROW + 4, box = s("svg", { viewBox: `0 0 ${WIDE} ${high}`, tabindex: 0, role: "img", "aria-label": label + ". Keys: plus and minus zoom, arrows move, 0 shows everything.", keydown: key });
  const said = h("output", {}, "");
  function draw() {
    const scale = (WIDE - LEFT) / (to - from), x = at => LEFT + (at - from) * scale, parts = [];
    for (let i = 0; i <= 6; i++) {
      const at = from + (to - from) * i / 6;
      parts.push(s("path", { class: "rule", d: `M${x(at)} ${TOP - 4}V${high}` }), s("text", { x: x(at), y: 11, "text-anchor": i === 6 ? "end" : i ? "middle" : "start" }, time(at)));
    }
    let drawn = 0;
    rows.forEach((row, number) => {
      const top = TOP + number * ROW;
      parts.push(s("text", { x: 2, y: top + ROW / 2 + 4 }, row.name));
      for (const span of row.spans) {
        if (span.end <= from || span.start >= to || (span.end - span.start) * scale < 0.5 && row.spans.length > 500 || drawn++ > MOST) continue;
        const left = Math.max(LEFT, x(span.start)), wide = Math.max(0.7, Math.min(WIDE, x(span.end)) - left - 0.3);
        parts.push(s("rect", { x: left, y: top + 2, width: wide, height: ROW - 4, class: span.kind }, s("title", {}, span.title || "")));
      }
    });
    box.replaceChildren(...parts);
    said.textContent = time(from) + " – " + time(to);
  }
  function zoom(factor) { const middle = (from + to) / 2, half = (to - from) / 2 * factor; window_(middle - half, middle + half); }
  function move(share) { const by = (to - from) * share; window_(from + by, to + by); }
  function window_(start, stop) {
    const span = Math.min(end, Math.max(end / 1e5, 10, stop - start));
    from = Math.min(Math.max(0, start), Math.max(0, end - span)); to = from + Math.max(span, 1);
    draw();
  }
  const actions = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => move(-0.25), ArrowRight: () => move(0.25), 0: () => window_(0, end) };
  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !actions[event.key]) return;
    event.preventDefault(); actions[event.key]();
  }
  const button = (text, action, title) => h("button", { type: "button", "aria-label": title, click: action }, text);
  draw();
  return h("div", { class: "figure" }, legend(names), h("div", { class: "gantt" }, box), h("p", { class: "controls" },
    button("+", actions["+"], "Zoom in"), button("−", actions["-"], "Zoom out"), button("←", actions.ArrowLeft, "Earlier"), button("→", actions.ArrowRight, "Later"), button("All", actions[0], "The whole run"), said));
}

export const KINDS = { fetch: "a worker reads samples", collate: "a worker collates", wait: "the loop waits: the device is idle", compute: "the step computes" };

// The rows of a simulated epoch (engine.js).
export function rowsOf(epoch, workers, step) {
  const loop = [], rows = [{ name: "training loop", spans: loop }];
  for (const { batch, asked, gave } of epoch.given) {
    if (gave > asked) loop.push({ start: asked, end: gave, kind: "wait", title: `waits ${time(gave - asked)} for batch ${batch}` });
    if (step) loop.push({ start: gave, end: gave + step, kind: "compute", title: `batch ${batch}` });
  }
  for (let worker = workers ? 0 : -1; worker < workers; worker++) {
    const spans = [];
    for (const one of epoch.spans) if (one.worker === worker) {
      const what = `batch ${one.batch}, ${one.samples} samples, ${time(one.end - one.start)}`;
      spans.push({ start: one.start, end: one.collating, kind: "fetch", title: what });
      if (one.end > one.collating) spans.push({ start: one.collating, end: one.end, kind: "collate", title: what });
    }
    rows.push({ name: worker < 0 ? "loading" : "worker " + worker, spans });
  }
  return rows;
}
