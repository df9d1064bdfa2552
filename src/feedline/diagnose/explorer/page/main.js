// The page: which view is shown, its controls, and the address that reproduces them.
import { h } from "./dom.js";
import { allowed, fragmentOf, stateFrom, viewIn } from "./state.js";
import { batching } from "./batching.js";
import { samplers } from "./samplers.js";
import { collation } from "./collation.js";
import { timeline } from "./timeline.js";
import { failures } from "./failures.js";
import { memory } from "./memory.js";
import { run } from "./run.js";

export const VIEWS = [batching, samplers, collation, timeline, failures, memory, run];
export const current = { view: null, state: null, result: null };

const data = JSON.parse(document.getElementById("data").textContent);
const nav = document.getElementById("views"), section = document.getElementById("view");
const places = {};

export function open(hash) {
  const { name, query } = viewIn(hash), view = VIEWS.find(each => each.name === name) || (data.run && VIEWS.find(each => each.name === "run")) || VIEWS[0];
  current.view = view;
  current.state = stateFrom(view, query);
  nav.replaceChildren(...VIEWS.map(each => h("a", { href: "#" + each.name, "aria-current": each === view ? "page" : null }, each.title)));
  places.result = h("div", {});
  section.replaceChildren(h("h2", { id: "title" }, view.title), h("p", {}, view.intro), form(view), places.result);
  show();
}

export function show() {
  const { view, state } = current;
  current.result = view.show(state, data, show);
  const { drawing, questions, code } = current.result;
  const address = fragmentOf(view, state);
  places.result.replaceChildren(h("div", {}, drawing),
    h("h2", {}, "Three questions"), ...questions.map(([question, answer]) => h("details", { open: true }, h("summary", {}, question), h("p", {}, answer))),
    h("h2", {}, "The same in Python"), h("pre", { class: "code", tabindex: 0 }, code),
    h("p", { class: "small" }, h("a", { id: "link", href: address }, "A link to exactly this")));
}

export function set(key, text) {
  const control = current.view.controls.find(each => each.key === key);
  current.state[key] = allowed(control, text);
  history.replaceState(null, "", fragmentOf(current.view, current.state));
  show();
  return current.state[key];
}

function form(view) {
  const given = h("form", { submit: event => event.preventDefault() });
  for (const control of view.controls) given.append(field(control, current.state[control.key]));
  return given;
}

function field(control, value) {
  const id = "c-" + control.key, name = h("label", { for: id }, control.label);
  if (control.kind === "check") {
    const box = h("input", { type: "checkbox", id, change: () => set(control.key, box.checked) });
    box.checked = value;
    return h("div", { class: "check" }, box, name);
  }
  if (control.kind === "choice") {
    const choice = h("select", { id, change: () => set(control.key, choice.value) }, control.choices.map(([each, text]) => h("option", { value: each, selected: each === value }, text)));
    return h("div", {}, name, choice);
  }
  if (control.kind === "numbers") {
    const text = h("input", { id, value, inputmode: "numeric", change: () => { text.value = set(control.key, text.value); } });
    return h("div", {}, name, text);
  }
  const box = h("input", { type: "number", id, min: control.min, max: control.max, step: control.step || 1, value });
  const most = control.slide || (control.max <= 1e4 ? control.max : null);
  const slide = most === null ? null : h("input", { type: "range", "aria-label": control.label, min: control.min, max: most, step: control.step || 1, value });
  box.addEventListener("change", () => { const now = set(control.key, box.value); box.value = now; if (slide) slide.value = now; });
  if (slide) slide.addEventListener("input", () => { box.value = set(control.key, slide.value); });
  return h("div", {}, name, box, slide);
}

window.addEventListener("hashchange", () => open(location.hash));
open(location.hash);
