// The side panel: what is known about the chosen box; without one, about the step as a whole.
function panel() {
  const place = $("panel"), top = place.scrollTop, before = place.dataset.shows;
  const chosen = look.selected;
  place.innerHTML = chosen === null ? overview() : chosen >= N ? groupPanel(chosen - N) : vertexPanel(V[chosen]);
  place.dataset.shows = String(chosen);
  place.scrollTop = before === String(chosen) ? top : 0;
}
const row = (name, value) => `<div><span>${name}</span>${value}</div>`;
const section = (name, body) => body ? `<h3>${name}</h3>${body}` : "";

function vertexPanel(v) {
  const kind = { op: "operation", leaf: "leaf · gradient wanted", data: "tensor without gradient", output: "where the backward pass starts" }[v.kind];
  const state = stateOf(v, look.step);
  const said = { later: "not computed yet", made: v.kind === "data" ? "" : "no gradient yet", waiting: `${arrived(v, look.step)} of ${v.coming.length} gradients are here`,
    ready: "its gradient is complete", now: v.ran === look.step ? "runs now" : "computed now", done: v.kind === "leaf" ? "accumulated" : "has run" }[state];
  return `<h2>${escapeText(v.title)}</h2><p class="soft">${escapeText(v.name)}</p><span class="tag">${kind}</span>` +
    (said ? `<span class="tag${state === "now" ? " now" : ""}">${said}</span>` : "") + (v.module ? `<span class="tag">${escapeText(v.module)}</span>` : "") +
    section("Source", whereText(v)) + section("Formula", formulaText(v)) +
    section(v.kind === "leaf" || v.kind === "data" ? "Tensor" : "Output", v.shapes.map((s, i) => `<p><b>${shapeText(s)}</b> <span class="soft">${v.dtypes[i]}</span></p>`).join("")) +
    section("Gradient", gradientText(v)) + section("Gradients that come together", sumText(v)) + section("Saved for the backward pass", savedText(v)) +
    section("Settings", v.attributes ? `<table>${v.attributes.map(([k, t]) => `<tr><th>${escapeText(k)}</th><td>${escapeText(t)}</td></tr>`).join("")}</table>` : "") +
    section("Inputs", linkList(v.inputs, 0)) + section("Goes to", linkList(v.readers, 1)) +
    (v.ran < Infinity ? `<p style="margin-top:14px"><button data-step="${v.ran}">Play to where it runs backward (step ${v.ran})</button></p>` : "");
}
function whereText(v) {
  if (v.where) {
    const [file, line, name, text] = v.where;
    return `<p class="where">${escapeText(data.files[file])}:${line} in ${escapeText(name)}</p>${text ? `<pre>${escapeText(text)}</pre>` : ""}`;
  }
  return v.kind === "op" ? '<p class="soft">Unknown: the forward pass was not recorded.</p>' : "";
}
function formulaText(v) {
  const f = data.formulas[v.formula];
  if (!f) return "";
  if (v.kind === "leaf") return "<pre><b>leaf.grad</b> += gradient</pre>";
  const names = new Set(v.inputs.map(i => L[i][2].replace(/\[\d+\]$/, "")));
  return `<pre>${escapeText(f.forward)}${f.c ? `   = ${escapeText(f.c)}` : ""}</pre>` + f.backward.filter(([name]) => !name.startsWith("grad of ") ||
    names.has(name.slice(8)) || f.backward.length === 1).map(([name, text]) => `<p class="soft">${escapeText(name)}</p><pre>${escapeText(text).replace(/\bgrads?\b/g, "<b>$&</b>")}</pre>`).join("");
}
function gradientText(v) {
  if (v.kind === "output" || v.kind === "data") return "";
  if (!v.gradients) return '<p class="soft">None: the backward pass does not come here.</p>';
  return v.gradients.map((s, i) => {
    const head = v.gradients.length > 1 ? `<p class="soft">output ${i}</p>` : "";
    if (!s) return `${head}<p class="soft">no gradient</p>`;
    const bad = s.bad ? `<p><b>${s.bad} of ${s.count} are not finite</b></p>` : "";
    if (s.min === undefined) return head + bad;
    return `${head}${bad}<div class="two">${row("norm", numberText(s.norm))}${row("mean", numberText(s.mean))}${row("min", numberText(s.min))}` +
      `${row("std", numberText(s.std))}${row("max", numberText(s.max))}${row("zeros", s.count ? `${(100 * s.zeros / s.count).toFixed(s.zeros && s.zeros < s.count ? 1 : 0)} %` : "0")}</div>${histogram(s)}`;
  }).join("");
}
function histogram(s) {
  if (!s.bins.length) return "";
  const top = Math.max(...s.bins), n = s.bins.length, w = 340 / n;
  const bars = s.bins.map((b, i) => b ? `<rect x="${(i * w + 0.7).toFixed(1)}" width="${(w - 1.4).toFixed(1)}" y="${(66 - 62 * b / top).toFixed(1)}" height="${Math.max(1, 62 * b / top).toFixed(1)}"><title>${b} values from ${numberText(s.min + (s.max - s.min) * i / n)}</title></rect>` : "").join("");
  const zero = s.min < 0 && s.max > 0 ? 340 * -s.min / (s.max - s.min) : -9;
  return `<svg class="hist" viewBox="0 0 340 82" role="img" aria-label="Histogram">${bars}<line x1="0" x2="340" y1="66.5" y2="66.5"/>` +
    `${zero >= 0 ? `<line class="zero" x1="${zero}" x2="${zero}" y1="2" y2="66"/>` : ""}<text x="0" y="79">${numberText(s.min)}</text>` +
    `<text x="340" y="79" text-anchor="end">${numberText(s.max)}</text>${zero > 70 && zero < 270 ? `<text x="${zero}" y="79" text-anchor="middle">0</text>` : ""}</svg>`;
}
function sumText(v) {
  if (v.coming.length < 2 || v.kind === "output") return "";
  return `<table><tr><th>from</th><th>at step</th><th class="n">norm</th></tr>${v.coming.map(i => {
    const from = V[L[i][1]], here = from.ran <= look.step;
    return `<tr><td>${here ? "✓" : "·"} ${escapeText(from.title)}${from.module ? ` <span class="soft">${escapeText(from.module)}</span>` : ""}</td><td>${from.ran}</td><td class="n">${L[i][4] === null ? "" : numberText(L[i][4])}</td></tr>`;
  }).join("")}</table>`;
}
function savedText(v) {
  if (!v.saved) return "";
  return `<table><tr><th>name</th><th>shape</th><th class="n">bytes</th></tr>${v.saved.map(([slot, shape, dtype, bytes, storage, note]) => {
    const [, leaf, , , from, until] = data.storages[storage], gone = !leaf && look.step >= until;
    const word = leaf ? note : gone ? `freed at step ${until}` : look.step < from ? note : until > LAST ? "held to the end" : `held until step ${until}`;
    return `<tr><td>${escapeText(slot)}<br><span class="soft">${dtype}</span></td><td>${shapeText(shape)}<br><span class="soft">${escapeText(word)}</span></td>` +
      `<td class="n"><span class="${gone ? "freed" : ""}">${bytesText(bytes)}</span></td></tr>`;
  }).join("")}</table>`;
}
function linkList(links, side) {
  if (!links.length) return "";
  const shown = links.slice(0, 12).map(i => {
    const v = V[L[i][side]];
    return `<button data-go="${v.id}"><span>${escapeText(v.title)} <span class="arg">${v.shapes.length ? shapeText(v.shapes[Math.min(side ? 0 : L[i][3], v.shapes.length - 1)]) : ""}</span></span><span class="arg">${escapeText(L[i][2])}</span></button>`;
  });
  return `<div class="list">${shown.join("")}${links.length > 12 ? `<p class="soft">and ${links.length - 12} more</p>` : ""}</div>`;
}

function groupPanel(number) {
  const g = G[number], p = progress(number, look.step), kept = new Set();
  for (const v of insideOf[number]) for (const s of v.saved || []) if (!data.storages[s[4]][1]) kept.add(s[4]);
  const held = [...kept].filter(s => savedIsHeld(s, look.step)).reduce((a, s) => a + data.storages[s][0], 0);
  const kids = g.children.map(c => `<button data-go="${N + c}"><span>${escapeText(G[c].label)}</span><span class="arg">${escapeText(G[c].kind)}</span></button>`).join("");
  return `<h2>${escapeText(g.label)}</h2><p class="soft">${escapeText(g.path || "the model")}${g.call > 1 ? `, call ${g.call}` : ""}</p><span class="tag">module</span><span class="tag">${escapeText(g.kind)}</span>` +
    `<h3>Inside</h3><div class="two">${row("nodes", g.members)}${row("parameters", countText(g.parameters))}${row("computed", `${p.made} / ${p.of}`)}${row("run back", `${p.back} / ${p.of}`)}` +
    `${row("held now", bytesText(held))}</div><p style="margin-top:12px"><button data-toggle="${number}">${g.open ? "Close" : "Open"} (Enter)</button></p>` + section("Modules", kids && `<div class="list">${kids}</div>`);
}
function overview() {
  const at = look.step, alive = [...ownStorages].filter(s => savedIsHeld(s, at)).sort((a, b) => data.storages[b][0] - data.storages[a][0]);
  const leaves = V.filter(v => v.kind === "leaf"), size = leaves.reduce((a, v) => a + v.bytes, 0);
  const peak = Math.max(0, ...data.memory[0].map((k, i) => k + data.memory[1][i] + data.memory[2][i]));
  return `<h2>${escapeText(data.title)}</h2><p class="soft">One step: the graph that the forward pass records, and the gradients that the backward pass sends up along it.</p>` +
    `<h3>The step</h3><div class="two">${row("operations", V.filter(v => v.kind === "op").length)}${row("leaves", leaves.length)}${row("modules", Math.max(0, G.length - 1))}${row("leaves' size", bytesText(size))}${row("steps", LAST)}${row("peak held", bytesText(peak))}</div>` +
    `<h3>Held now</h3>${alive.length ? `<table><tr><th>kept by</th><th>freed at</th><th class="n">bytes</th></tr>${alive.slice(0, 12).map(s => {
      const [bytes, , label, shape, , until] = data.storages[s];
      return `<tr><td>${escapeText(label)}<br><span class="soft">${shapeText(shape)}</span></td><td>${until > LAST ? "never" : `step ${until}`}</td><td class="n">${bytesText(bytes)}</td></tr>`;
    }).join("")}</table>${alive.length > 12 ? `<p class="soft">and ${alive.length - 12} more</p>` : ""}` : '<p class="soft">Nothing is kept for the backward pass.</p>'}` +
    '<h3>How to read it</h3><p class="soft">Data flow down, gradients up. Click a box for its formula, shapes, saved tensors, gradient and line; ■ is memory that it keeps for the backward pass, □ memory that is free again. Click − or + to close or open a module. <kbd>?</kbd> shows the keys.</p>';
}
