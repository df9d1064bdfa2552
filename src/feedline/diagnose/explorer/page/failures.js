// View 5: what torch and feedline do when something fails, in the words that were printed (docs/make_explorer.py).
import { h, number } from "./dom.js";

const ALL = 8;
const FAULTS = {
  kill: ["Kill a worker", "Its process gets SIGKILL while it reads sample 21, as the kernel does when memory runs out."],
  hang: ["Make sample 17 hang", "Reading sample 17 waits for something that never comes."],
  corrupt: ["Make sample 40 corrupt", "Reading sample 40 raises ValueError."],
};

export const failures = {
  name: "failures", title: "Workers and failures",
  intro: "64 samples in batches of 8, 3 workers, and something goes wrong. Every line below was printed in a real run; process ids, paths and tenths of seconds are replaced.",
  controls: [{ key: "fault", label: "what happens", kind: "choice", value: "kill", choices: Object.entries(FAULTS).map(([key, [title]]) => [key, title]) }],
  model, show,
};

export function model(state, data) {
  const runs = data.words[state.fault];
  return Object.fromEntries(["torch", "feedline"].map(side => [side, runs[side].map(one => ({ batches: one.batches, ended: one.ended }))]));
}

const python = value => value === true ? "True" : value === false ? "False" : typeof value === "string" ? `"${value}"` : String(value);
const options = one => Object.entries(one.options).map(([name, value]) => `${name}=${python(value)}`).join(", ");

function said(run) {
  const lines = run.lines.join("\n") || "(nothing is printed)";
  const good = run.ended && run.batches === ALL;
  return [h("p", {}, h("b", {}, options(run) || "as it comes"), `: ${number(run.batches)} of ${ALL} batches` + (run.ended ? "" : "; it did not end, and we ended it")), h("pre", { class: good ? "said good" : "said", tabindex: 0 }, lines)];
}

function show(state, data, again) {
  const runs = data.words[state.fault], [title, words] = FAULTS[state.fault], best = runs.feedline[runs.feedline.length - 1], torchs = runs.torch[0];
  const press = Object.entries(FAULTS).map(([key, [text]]) => h("button", { type: "button", "aria-pressed": String(key === state.fault), click: () => {
    const choice = document.getElementById("c-fault");
    choice.value = key; choice.dispatchEvent(new Event("change"));
  } }, text));
  return {
    numbers: model(state, data),
    drawing: [h("p", { class: "controls" }, press), h("p", {}, words), h("div", { class: "beside" },
      h("div", {}, h("h2", {}, "torch"), runs.torch.map(said)), h("div", {}, h("h2", {}, "feedline"), runs.feedline.map(said)))],
    questions: {
      kill: [
        ["What is lost when a worker is killed?", `In torch the epoch: ${torchs.batches} of ${ALL} batches came, then an error that names a process, and no sample. In feedline nothing: ${runs.feedline[0].batches} of ${ALL} batches came, each once; the batch that was lost with the worker is made again by a new one.`],
        ["Which sample was it?", "A worker writes down the sample that it reads, in memory that outlives it. So the warning names it; a sample that kills two workers is given up, as on_error says (max_deaths)."],
        ["Could it happen silently?", "No: the warning comes at the latest with the batch that was made again."],
      ],
      hang: [
        ["How do you find out where it hangs?", `torch ${torchs.ended ? "ended" : `gave ${torchs.batches} of ${ALL} batches and then no word`}; its timeout raises an error without the sample or the line. feedline prints each worker's sample and stack after stall_warning seconds (30 unless you say otherwise).`],
        ["Can the epoch go on?", `Yes: on_stall="restart" replaces a worker that is stuck, and tries the sample again. Stuck twice (max_deaths), it is given up: with on_error="skip" ${best.batches} of ${ALL} batches came, one without sample 17.`],
        ["Does the loop wait for ever?", "By default, yes, after saying so: only you know how long a sample may take. timeout=… makes an error of it."],
      ],
      corrupt: [
        ["What does one bad sample cost?", `By default both raise its error: torch after ${torchs.batches} of ${ALL} batches, feedline after ${runs.feedline[0].batches}, with the sample's index. In feedline the loop could even go on with the next batch.`],
        ["What do skip and replace do?", `"skip" makes the batch without it (7 samples instead of 8), "replace" puts its nearest good neighbour there: ${best.batches} of ${ALL} batches. Both are logged with index and reason; never are there silent zeros.`],
        ["How many may fail?", "max_errors=… is the limit, as a number or a share of the samples read; beyond it the epoch ends with an error. error_log=… keeps a line for each."],
      ],
    }[state.fault],
    code: "from feedline import DataLoader\n\n" + runs.feedline.map(one => `loader = DataLoader(dataset, batch_size=8, num_workers=3${options(one) ? ", " + options(one) : ""})`).join("\n"),
  };
}
