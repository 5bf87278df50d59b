// What has happened by a step. Steps are numbered from 1; at step 0 nothing has.
const FORWARD = 0, SEED = 1, BACKWARD = 2, ACCUMULATE = 3, LAST = data.steps.length;
const KIND = ["forward", "start", "backward", "accumulate"];
for (const v of V) { v.made = 0; v.ran = Infinity; }
data.steps.forEach(([kind, v], i) => {
  if (kind === FORWARD) V[v].made = i + 1;
  else V[v].ran = i + 1;
});
let FIRST_BACK = data.steps.findIndex(([kind]) => kind !== FORWARD) + 1;
if (!FIRST_BACK) FIRST_BACK = LAST + 1;
// A leaf or a constant is there from the start, the output once all is computed.
for (const v of V) {
  if (v.kind === "output") v.made = FIRST_BACK - 1;
  // The gradients that come to it: the links to its readers, as those run.
  v.coming = v.readers.filter(i => V[L[i][1]].ran < Infinity);
}

function arrived(v, step) {
  let n = 0;
  for (const i of v.coming) if (V[L[i][1]].ran <= step) n++;
  return n;
}
// "later": not computed yet; "made": computed; "waiting", "ready": some, all gradients are there; "now": runs; "done": has run.
function stateOf(v, step) {
  if (v.made > step) return "later";
  if (v.ran === step || (v.made === step && v.kind === "op")) return "now";
  if (v.ran < step) return "done";
  const n = arrived(v, step);
  return !n || v.kind === "output" || v.kind === "data" ? "made" : n < v.coming.length ? "waiting" : "ready";
}
function savedIsHeld(storage, step) {
  const [, , , , from, until] = data.storages[storage];
  return from <= step && step < until;
}

function sentence(step) {
  if (step === 0) return "The step has not begun. Play it, or drag along the strip below.";
  if (step === FIRST_BACK - 1) return "The forward pass is done: everything is computed. Play the backward pass.";
  const [kind, n] = data.steps[step - 1], v = V[n];
  const at = v.module ? ` in <b>${escapeText(v.module)}</b>` : "";
  const name = `<b>${escapeText(v.title)}</b>`;
  if (kind === FORWARD) return `forward: ${name}${at} is computed${v.heldBytes ? ` and keeps ${bytesText(v.heldBytes)} for later` : ""}`;
  if (kind === SEED) return data.gradientGiven ? `backward starts with the gradient of ${name} that was given` :
    `backward starts: the gradient of ${name} with respect to itself is 1`;
  if (kind === ACCUMULATE) {
    const from = v.coming.length;
    return `${from > 1 ? `${from} gradients, summed, are` : "the gradient is"} accumulated into <b>${escapeText(v.title)}</b>.grad`;
  }
  const sum = v.coming.length > 1 ? `, the sum of ${v.coming.length},` : "";
  const to = v.inputs.filter(i => V[L[i][0]].kind !== "data").length;
  return `backward: ${name}${at} takes its gradient${sum} and sends ${to === 1 ? "one" : to} on${v.heldBytes ? "; what it kept is freed" : ""}`;
}
const escapeText = s => String(s).replace(/[&<>"]/g, c => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" }[c]));
