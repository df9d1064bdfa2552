// What the reader has chosen: controls of a view, and the URL's fragment that reproduces them.

// A value as a control allows it; what is not allowed becomes the nearest that is, or the default.
export function allowed(control, text) {
  if (control.kind === "check") return text === true || text === "1" || text === "true";
  if (control.kind === "choice") return control.choices.some(([value]) => value === text) ? text : control.value;
  if (control.kind === "numbers") {
    const found = String(text).split(/[\s,;]+/).filter(Boolean).map(Number);
    const fine = found.length >= 1 && found.length <= control.most && found.every(one => Number.isInteger(one) && one >= control.min && one <= control.max);
    return fine ? found.join(",") : control.value;
  }
  const value = Number(text), whole = control.step === undefined || Number.isInteger(control.step);
  if (text === "" || !Number.isFinite(value)) return control.value;
  return Math.min(control.max, Math.max(control.min, whole ? Math.round(value) : value));
}

export function stateFrom(view, fragment) {
  const given = new URLSearchParams(fragment);
  return Object.fromEntries(view.controls.map(control =>
    [control.key, given.has(control.key) ? allowed(control, given.get(control.key)) : control.value]));
}

export function fragmentOf(view, state) {
  const given = new URLSearchParams();
  for (const control of view.controls) given.set(control.key, control.kind === "check" ? (state[control.key] ? "1" : "0") : String(state[control.key]));
  return "#" + view.name + "?" + given;
}

export function viewIn(hash) {
  const [name, query = ""] = hash.replace(/^#/, "").split("?", 2);
  return { name, query };
}
