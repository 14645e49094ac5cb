// Numbers as people read them; every function takes the unit that its name says.
const digits = (value, count = 3) => {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 10 ** count) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(count)));
};
const dash = "\u2013";
const fmt = {
  times: (ratio) => (ratio === null || ratio === undefined ? dash : `${ratio >= 100 ? digits(ratio) : ratio.toFixed(2)}\u00d7`),
  interval: (ends) => (ends ? `[${ends.map((one) => (one >= 100 ? digits(one) : one.toFixed(2))).join(", ")}]` : ""),
  us: (us) => {
    if (us === null || us === undefined) return dash;
    return us >= 1e6 ? `${digits(us / 1e6)} s` : us >= 1e3 ? `${digits(us / 1e3)} ms` : `${digits(us)} \u00b5s`;
  },
  s: (seconds) => {
    if (seconds === null || seconds === undefined) return dash;
    if (seconds < 60) return `${digits(seconds, 2)} s`;
    const all = Math.round(seconds), hours = Math.floor(all / 3600), minutes = Math.floor(all / 60) % 60;
    return hours ? `${hours} h ${String(minutes).padStart(2, "0")} min` : `${minutes} min ${String(all % 60).padStart(2, "0")} s`;
  },
  about: (seconds) => (seconds < 600 ? fmt.s(seconds) : seconds < 3600 ? `${Math.round(seconds / 60)} min` : fmt.s(seconds)),
  percent: (share) => (share === null || share === undefined ? dash : `${share >= 0.995 ? Math.round(share * 100) : digits(share * 100, 2)} %`),
  usd: (usd) => (usd === null || usd === undefined ? dash : usd === 0 ? "$0" : usd < 0.01 ? `$${digits(usd, 2)}` : `$${usd.toFixed(2)}`),
  count: (number) => (number ?? 0).toLocaleString("en-US"),
  bytes: (bytes) => (bytes >= 1e9 ? `${digits(bytes / 1e9)} GB` : bytes >= 1e6 ? `${digits(bytes / 1e6)} MB` : bytes >= 1e3 ? `${digits(bytes / 1e3)} kB` : `${digits(bytes)} B`),
  work: (flops) => (flops >= 1e12 ? `${digits(flops / 1e12)} TFLOP` : flops >= 1e9 ? `${digits(flops / 1e9)} GFLOP` : flops >= 1e6 ? `${digits(flops / 1e6)} MFLOP` : `${digits(flops)} FLOP`),
  date: (unix) => (unix ? new Date(unix * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }) : ""),
  many: (number, one, more) => `${fmt.count(number)} ${number === 1 ? one : more || `${one}s`}`,
};
const STATUS = {
  faster: "faster", level: "not told apart", slower: "slower", wrong: "wrong", build_error: "build error", poor_build: "poor build", run_error: "run error",
  timeout: "timeout", suspect: "suspect", rejected: "rejected", waiting: "waiting for a verdict", original: "the original", unwritten: "no code came",
};
const PASSED = new Set(["faster", "level", "slower", "original"]);
// What a trial came to: of one that passed, how it stands to eager PyTorch.
function outcome(trial) {
  if (trial.kind === "original") return "original";
  if (trial.status !== "passed") return trial.status in STATUS ? trial.status : "run_error";
  if (trial.comparison) return trial.comparison === "inconclusive" ? "level" : trial.comparison;
  const ends = trial.speedup_interval || [trial.speedup, trial.speedup];
  return ends[0] > 1 ? "faster" : ends[1] < 1 ? "slower" : "level";
}
function badge(kind) { return el("span", { class: "badge" }, el("span", { class: `dot f-${kind}` }), STATUS[kind]); }
// A long mode of torch.compile in few words; its whole name stands where there is room.
const brief = (title) => title.replace("torch.compile max-autotune-no-cudagraphs", "torch.compile max-autotune");
const short = (id) => id.slice(0, 4);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
