// Elements and drawings. Every text becomes a text node, so nothing that comes from a file can become markup.
const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name === "style") element.style.cssText = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(9)) if (child !== null && child !== undefined && child !== false)
    element.append(child.nodeType ? child : document.createTextNode(String(child)));
  return element;
}
export function h(tag, attributes, ...children) { return fill(document.createElement(tag), attributes, children); }
export function s(tag, attributes, ...children) { return fill(document.createElementNS(SVG, tag), attributes, children); }

export function number(value, digits = 3) {
  if (!Number.isFinite(value)) return "–";
  if (Math.abs(value) >= 10 ** digits || Number.isInteger(value)) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(digits)));
}
export function percent(share) {
  if (share > 0 && share < 0.001) return "under 0.1 %";
  return (share > 0 && share < 0.0995 ? Number((100 * share).toFixed(1)) : Math.round(100 * share)) + " %";
}
export function time(micros) {
  if (Math.abs(micros) >= 1e6) return number(micros / 1e6) + " s";
  if (Math.abs(micros) >= 1e3) return number(micros / 1e3) + " ms";
  return number(micros) + " µs";
}
export function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < 4) { count /= 1000; unit++; }
  return number(count) + " " + units[unit];
}
export function counted(count, word, words = word + "s") { return number(count) + " " + (count === 1 ? word : words); }

export function cards(values) {
  return h("dl", { class: "cards" }, Object.entries(values).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}
export function table(head, rows, numbers = 0) {
  const right = place => place >= head.length - numbers ? "n" : null;
  return h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "table" }, h("table", {},
    h("thead", {}, h("tr", {}, head.map((text, place) => h("th", { scope: "col", class: right(place) }, text)))),
    h("tbody", {}, rows.map(row => h("tr", {}, row.map((cell, place) => h("td", { class: right(place) }, cell)))))));
}
export function legend(names) {
  return h("p", { class: "legend" }, Object.entries(names).map(([kind, text]) => h("span", {}, h("i", { class: kind }), text)));
}
