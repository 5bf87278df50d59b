// Mouse, keys, search, the slider and its strip of memory.
const total = i => data.memory[0][i] + data.memory[1][i] + data.memory[2][i];

// ------------------------------------------------------------------------------------------------------------ steps
let playing = 0;
function goTo(step) {
  look.step = Math.max(0, Math.min(LAST, step));
  $("slider").value = look.step;
  $("say").innerHTML = `<span class="count">step ${look.step} / ${LAST}</span>${sentence(look.step)}`;
  drawStrip();
  panel();
  redraw();
}
function play(on) {
  if (on && look.step >= LAST) goTo(0);
  playing = on ? performance.now() : 0;
  $("play").textContent = on ? "❚❚ Pause" : "▶ Play";
  $("play").setAttribute("aria-label", on ? "Pause" : "Play");
  if (on) requestAnimationFrame(tick);
}
function tick(time) {
  if (!playing) return;
  look.dash = time / 30 % 16;
  const each = 1000 / (2 * Number($("speed").value)), n = Math.floor((time - playing) / each);
  if (n > 0) {
    playing += n * each;
    goTo(look.step + n);
    follow();
  } else redraw();
  if (look.step >= LAST) play(false);
  else requestAnimationFrame(tick);
}
// While playing, what runs stays in sight.
function follow() {
  if (!look.step) return;
  const b = scene.boxes.get(shownFor(data.steps[look.step - 1][1])), [w, h] = screenSize(), z = view.zoom;
  const x = (b.x + b.w / 2 - view.x) * z, y = (b.y + b.h / 2 - view.y) * z;
  if (x < w * 0.12 || x > w * 0.88) view.x += (x - w / 2) / z;
  if (y < h * 0.15 || y > h * 0.85) view.y += (y - h / 2) / z;
}

// ------------------------------------------------------------------------------------------------- the strip of memory
const PATTERNS = [["fire", (c, n) => { c.fillRect(0, 0, n, n); }],
  ["leaf", (c, n) => { c.lineWidth = 2; for (const d of [-n, 0, n]) { c.beginPath(); c.moveTo(d, n); c.lineTo(d + n, 0); c.stroke(); } }],
  ["good", (c, n) => { c.beginPath(); c.arc(n / 2, n / 2, n / 4, 0, 7); c.fill(); }]];
const BANDS = ["saved for backward", "gradients under way", "leaves' gradients"];
function tile(k) {
  const t = document.createElement("canvas"), n = 8;
  t.width = t.height = n;
  const c = t.getContext("2d");
  c.fillStyle = c.strokeStyle = color[PATTERNS[k][0]];
  if (k) { c.globalAlpha = 0.22; c.fillRect(0, 0, n, n); c.globalAlpha = 1; } else c.globalAlpha = 0.8;
  PATTERNS[k][1](c, n);
  return t;
}
let tiles = [];
function drawStrip() {
  const place = $("memory"), box = place.getBoundingClientRect(), ratio = window.devicePixelRatio || 1, c = place.getContext("2d");
  if (place.width !== Math.round(box.width * ratio)) { place.width = Math.round(box.width * ratio); place.height = Math.round(box.height * ratio); }
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, box.width, box.height);
  const w = box.width, h = box.height - 14, x = i => i / (LAST + 1) * w;  // each step has a cell of its own
  let peak = 1;
  for (let i = 0; i <= LAST; i++) peak = Math.max(peak, total(i));
  const y = bytes => h - bytes / peak * (h - 6);
  c.fillStyle = color.raised;
  c.fillRect(0, 0, w, h);
  const low = new Float64Array(LAST + 1);
  for (let k = 0; k < 3; k++) {
    const line = data.memory[k];
    c.beginPath();
    c.moveTo(0, y(low[0]));
    for (let i = 0; i <= LAST; i++) { c.lineTo(x(i), y(low[i] + line[i])); c.lineTo(x(i + 1), y(low[i] + line[i])); }
    for (let i = LAST; i >= 0; i--) { c.lineTo(x(i + 1), y(low[i])); c.lineTo(x(i), y(low[i])); }
    c.closePath();
    c.fillStyle = c.createPattern(tiles[k], "repeat");
    c.fill();
    for (let i = 0; i <= LAST; i++) low[i] += line[i];
  }
  const turn = x(FIRST_BACK);
  c.strokeStyle = color.soft;
  c.setLineDash([3, 3]);
  c.beginPath(); c.moveTo(turn, 0); c.lineTo(turn, h); c.stroke();
  c.setLineDash([]);
  c.font = `11px ${FONT}`;
  c.fillStyle = color.soft;
  c.textBaseline = "alphabetic";
  c.textAlign = "right"; c.fillText("forward", turn - 6, h + 12);
  c.textAlign = "left"; c.fillText("backward", turn + 6, h + 12);
  c.fillText(`peak ${bytesText(peak)}`, 2, h + 12);
  const at = x(look.step + 0.5);
  c.strokeStyle = color.ink;
  c.lineWidth = 2;
  c.beginPath(); c.moveTo(at, 0); c.lineTo(at, h); c.stroke();
  c.fillStyle = color.ink;
  c.beginPath(); c.moveTo(at - 6, h + 9); c.lineTo(at + 6, h + 9); c.lineTo(at, h); c.closePath(); c.fill();
  $("held").querySelectorAll("b").forEach((b, k) => { b.textContent = bytesText(k < 3 ? data.memory[k][look.step] : total(look.step)); });
}
function heldLegend() {
  const place = $("held");
  place.innerHTML = BANDS.map(name => `<span><i></i>${name} <b></b></span>`).join("") + "<span>together <b></b></span>";
  place.querySelectorAll("i").forEach((i, k) => {
    const c = document.createElement("canvas");
    c.width = 16; c.height = 12;
    const p = c.getContext("2d");
    p.fillStyle = p.createPattern(tiles[k], "repeat");
    p.fillRect(0, 0, 16, 12);
    i.replaceWith(c);
  });
}
function legend() {
  const boxes = [["op", "operation", '<rect x="1" y="1" width="22" height="12" rx="3"/>'], ["leaf", "leaf", '<rect x="1" y="1" width="22" height="12" rx="6"/>'],
    ["data", "no gradient", '<path d="M5 1H23L19 13H1z" stroke-dasharray="3 2"/>'], ["output", "output", '<path d="M5 1H19L23 5V9L19 13H5L1 9V5z"/>']];
  $("legend").innerHTML = boxes.map(([kind, name, path]) => `<span><svg width="24" height="14" fill="var(--${FILL[kind]})" stroke="var(--${RIM[kind]})">${path}</svg>${name}</span>`).join("") +
    "<span><b>Σ 1/2</b> gradients so far</span><span><b>▶</b> runs</span><span><b>✓</b> has run</span>";
}

// ------------------------------------------------------------------------------------------------------ view and mouse
function fit() {
  const [w, h] = screenSize();
  view.zoom = Math.min(1.4, (w - 70) / scene.w, (h - 90) / scene.h);
  view.zoom = Math.max(view.zoom, 0.004);
  view.x = scene.w / 2 - w / 2 / view.zoom;
  view.y = scene.h / 2 - (h - 34) / 2 / view.zoom;
  redraw();
}
function zoomAt(x, y, factor) {
  const z = Math.max(0.004, Math.min(4, view.zoom * factor));
  view.x += x / view.zoom - x / z;
  view.y += y / view.zoom - y / z;
  view.zoom = z;
  redraw();
}
function show(item) {
  const b = scene.boxes.get(item), [w, h] = screenSize();
  if (!b) return;
  if (view.zoom < 0.5) view.zoom = 0.8;
  view.x = b.x + b.w / 2 - w / 2 / view.zoom;
  view.y = b.y + b.h / 2 - h / 2 / view.zoom;
  redraw();
}
function boxAt(x, y) {
  const wx = x / view.zoom + view.x, wy = y / view.zoom + view.y;
  for (let i = scene.order.length - 1; i >= 0; i--) {
    const b = scene.order[i];
    if (wx < b.x || wx > b.x + b.w || wy < b.y || wy > b.y + b.h) continue;
    const open = b.item >= N && G[b.item - N].open;
    if (open && wy > b.y + HEAD) continue;  // the ground of an open group is for dragging
    const sign = b.item >= N && wx < b.x + 31 && wy < b.y + HEAD;
    return { item: b.item, sign };
  }
  return null;
}
function select(item) {
  look.selected = item;
  panel();
  redraw();
}
// Opens or closes a group; what was under the pointer stays there.
function toggleGroup(number, open = !G[number].open) {
  const before = scene.boxes.get(N + number);
  G[number].open = open;
  forget(G[number]);
  placeAll();
  const after = scene.boxes.get(N + number);
  if (before && after) { view.x += after.x - before.x; view.y += after.y - before.y; }
  findMatches();
  panel();
  redraw();
}
function setAll(open) {
  G.forEach((g, i) => { if (i) g.open = open; g.placed = null; });
  placeAll();
  findMatches();
  panel();
  fit();
}
// Opens whatever hides a box.
function reveal(item) {
  const group = item >= N ? G[item - N].parent : V[item].group;
  for (const g of G[group].around) if (!G[g].open) toggleGroup(g, true);
}
function goToItem(item) {
  reveal(item);
  select(item);
  show(item);
}

let drag = null;
canvas.addEventListener("pointerdown", e => {
  canvas.setPointerCapture(e.pointerId);
  canvas.focus();
  drag = { x: e.offsetX, y: e.offsetY, moved: false };
});
canvas.addEventListener("pointermove", e => {
  if (drag) {
    if (Math.abs(e.offsetX - drag.x) + Math.abs(e.offsetY - drag.y) > 3 || drag.moved) {
      drag.moved = true;
      canvas.classList.add("dragging");
      view.x -= (e.offsetX - drag.x) / view.zoom;
      view.y -= (e.offsetY - drag.y) / view.zoom;
      drag.x = e.offsetX;
      drag.y = e.offsetY;
      redraw();
    }
  } else canvas.classList.toggle("over", boxAt(e.offsetX, e.offsetY) !== null);
});
canvas.addEventListener("pointerup", e => {
  canvas.classList.remove("dragging");
  if (drag && !drag.moved) {
    const hit = boxAt(e.offsetX, e.offsetY);
    if (hit && hit.sign) toggleGroup(hit.item - N);
    else select(hit ? hit.item : null);
  }
  drag = null;
});
canvas.addEventListener("dblclick", e => {
  const hit = boxAt(e.offsetX, e.offsetY);
  if (hit && hit.item >= N && !hit.sign) toggleGroup(hit.item - N);
});
canvas.addEventListener("wheel", e => {
  e.preventDefault();
  if (e.shiftKey) { view.x += (e.deltaX || e.deltaY) / view.zoom; redraw(); }
  else zoomAt(e.offsetX, e.offsetY, Math.exp(-Math.max(-60, Math.min(60, e.deltaY)) * 0.004));
}, { passive: false });
$("panel").addEventListener("click", e => {
  const b = e.target.closest("button");
  if (!b) return;
  if (b.dataset.go) goToItem(Number(b.dataset.go));
  if (b.dataset.step) goTo(Number(b.dataset.step));
  if (b.dataset.toggle) toggleGroup(Number(b.dataset.toggle));
});

// ----------------------------------------------------------------------------------------------------------- search
let results = [], current = -1;
const textOf = V.map(v => [v.title, v.name, v.module, v.kind, G[v.group].kind, ...v.shapes.map(shapeText), ...v.shapes.map(s => s.join(",")),
  v.where ? `${data.files[v.where[0]]}:${v.where[1]} ${v.where[2]} ${v.where[3]}` : ""].join(" ").toLowerCase());
function findMatches() {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  results = words.length ? V.map(v => v.id).filter(i => words.every(w => textOf[i].includes(w))) : [];
  look.matches = words.length ? new Set(results.map(shownFor)) : null;
  $("matches").textContent = words.length ? (current >= 0 && current < results.length ? `${current + 1}/${results.length}` : `${results.length} found`) : "";
  redraw();
}
function nextMatch(by) {
  if (!results.length) return;
  current = (current + by + results.length) % results.length;
  goToItem(results[current]);
  findMatches();
}
$("search").addEventListener("input", () => { current = -1; findMatches(); });
$("search").addEventListener("keydown", e => {
  e.stopPropagation();
  if (e.key === "Enter") nextMatch(e.shiftKey ? -1 : 1);
  if (e.key === "Escape") { $("search").value = ""; current = -1; findMatches(); canvas.focus(); }
});

// ------------------------------------------------------------------------------------------------------------- keys
function neighbour(side) {
  if (look.selected === null || look.selected >= N) return;
  const v = V[look.selected], links = side ? v.readers : v.inputs;
  if (!links.length) return;
  const ends = links.map(i => L[i][side]);
  goToItem(ends.find(i => V[i].kind === "op") ?? ends[0]);
}
document.addEventListener("keydown", e => {
  if (e.ctrlKey || e.metaKey || e.altKey || $("keys").open) return;
  const inButton = /^(BUTTON|SELECT)$/.test(document.activeElement?.tagName || "");
  if (inButton && (e.key === " " || e.key === "Enter" || document.activeElement.tagName === "SELECT")) return;
  const by = e.shiftKey ? 10 : 1, [w, h] = screenSize();
  const action = { ArrowRight: () => { play(false); goTo(look.step + by); }, ArrowLeft: () => { play(false); goTo(look.step - by); },
    ArrowUp: () => neighbour(0), ArrowDown: () => neighbour(1), " ": () => play(!playing), Home: () => goTo(0), End: () => goTo(LAST),
    "/": () => $("search").focus(), f: fit, "+": () => zoomAt(w / 2, h / 2, 1.25), "=": () => zoomAt(w / 2, h / 2, 1.25),
    "-": () => zoomAt(w / 2, h / 2, 0.8), "?": () => $("keys").showModal(),
    Enter: () => { if (look.selected >= N) toggleGroup(look.selected - N); },
    Escape: () => { play(false); $("search").value = ""; current = -1; findMatches(); select(null); } }[e.key];
  if (action) { e.preventDefault(); action(); }
});
const strip = document.querySelector(".strip");
function scrub(e) {
  const box = strip.getBoundingClientRect();
  play(false);
  goTo(Math.floor((e.clientX - box.left) / box.width * (LAST + 1)));
}
strip.addEventListener("pointerdown", e => { strip.setPointerCapture(e.pointerId); scrub(e); });
strip.addEventListener("pointermove", e => { if (e.buttons & 1) scrub(e); });
$("slider").max = LAST;
$("slider").addEventListener("input", () => { play(false); goTo(Number($("slider").value)); });
const press = { first: () => goTo(0), back: () => { play(false); goTo(look.step - 1); }, play: () => play(!playing), next: () => { play(false); goTo(look.step + 1); },
  last: () => goTo(LAST), collapse: () => setAll(false), expand: () => setAll(true), fit, help: () => $("keys").showModal(), theme: nextTheme };
for (const id in press) $(id).addEventListener("click", press[id]);

// ------------------------------------------------------------------------------------------------------------ start
const system = matchMedia("(prefers-color-scheme: dark)");
let theme = "auto";
function applyTheme() {
  document.documentElement.dataset.theme = theme === "auto" ? (system.matches ? "dark" : "light") : theme;
  $("theme").title = `Theme: ${theme}`;
  readColors();
  tiles = PATTERNS.map((_, k) => tile(k));
  heldLegend();
  drawStrip();
  redraw();
}
function nextTheme() {
  theme = { auto: "dark", dark: "light", light: "auto" }[theme];
  applyTheme();
}
system.addEventListener("change", applyTheme);

// A graph opens with as many modules closed, the innermost first, as it takes to be read at a glance.
function firstSight() {
  const [w, h] = screenSize(), readable = 0.6;
  for (let depth = Math.max(...G.map(g => g.depth)); ; depth--) {
    placeAll();
    if (depth <= 1 || (scene.w * readable < w && scene.h * readable < h)) return;
    G.forEach(g => { if (g.depth === depth) { g.open = false; forget(g); } });
  }
}
function start() {
  const leaves = V.filter(v => v.kind === "leaf"), loss = V.filter(v => v.kind === "output" && v.name);
  $("title").textContent = data.title;
  $("facts").textContent = [`${countText(V.length)} nodes`, `${countText(leaves.reduce((a, v) => a + v.shapes[0].reduce((x, y) => x * y, 1), 0))} parameters`,
    ...(loss.length === 1 ? [`loss ${loss[0].name}`] : [])].join(" · ");
  if (!data.linesKnown) {
    $("notice").hidden = false;
    const guessed = G.length > 1 && !data.modulesRecorded ? ", and modules are guessed from parameters" : "";
    $("notice").innerHTML = `Source lines are unknown${guessed}: the forward pass was not recorded. Use <code>viz.recording(model)</code> around it, or give <code>explore</code> a function. <button>Close</button>`;
    $("notice").querySelector("button").addEventListener("click", () => { $("notice").hidden = true; canvas.focus(); });
  }
  legend();
  firstSight();
  applyTheme();
  resize();
  fit();
  goTo(FIRST_BACK - 1);  // all is computed, and nothing is freed yet
  new ResizeObserver(() => { resize(); drawStrip(); }).observe(canvas);
}
// For tests and for the console: the page's state, and where a box is on the screen.
window.explorer = {
  data, look, view, scene, goTo, select, toggleGroup, setAll, stateOf: i => stateOf(V[i], look.step), isPlaying: () => playing > 0,
  at(item) {
    const b = scene.boxes.get(item), c = canvas.getBoundingClientRect();
    return b && { x: (b.x + b.w / 2 - view.x) * view.zoom + c.left, y: (b.y + Math.min(b.h, BOX) / 2 - view.y) * view.zoom + c.top,
      signX: (b.x + 19 - view.x) * view.zoom + c.left, signY: (b.y + 15 - view.y) * view.zoom + c.top };
  },
  drawTime() { const t = performance.now(); draw(); return performance.now() - t; },
};
start();
