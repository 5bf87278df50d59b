// The canvas: boxes differ by shape, states by badge and line, so that nothing depends on colour alone.
const canvas = $("graph"), ink = canvas.getContext("2d");
const view = { x: 0, y: 0, zoom: 1 };            // screen = (world - view) * zoom
const look = { step: 0, selected: null, hover: null, matches: null, dash: 0 };
const TINY = 0.15;  // of the zoom: below, boxes are dots
let color = {};

function readColors() {
  const style = getComputedStyle(document.documentElement);
  color = {};
  for (const name of ["back", "dots", "surface", "raised", "ink", "soft", "faint", "line", "edge", "fire", "fire-soft", "leaf", "leaf-soft",
    "good", "good-soft", "data", "data-soft", "group", "group-fill", "match", "shadow"]) color[name] = style.getPropertyValue("--" + name).trim();
}

let pending = false;
function redraw() {
  if (!pending) {
    pending = true;
    requestAnimationFrame(() => { pending = false; draw(); });
  }
}
function resize() {
  const ratio = window.devicePixelRatio || 1, box = canvas.getBoundingClientRect();
  canvas.width = Math.round(box.width * ratio);
  canvas.height = Math.round(box.height * ratio);
  redraw();
}
const screenSize = () => { const b = canvas.getBoundingClientRect(); return [b.width, b.height]; };

function draw() {
  const ratio = window.devicePixelRatio || 1, [w, h] = screenSize(), z = view.zoom;
  ink.setTransform(ratio, 0, 0, ratio, 0, 0);
  ink.fillStyle = color.back;
  ink.fillRect(0, 0, w, h);
  drawDots(w, h, z);
  ink.setTransform(ratio * z, 0, 0, ratio * z, -view.x * z * ratio, -view.y * z * ratio);
  const seen = { left: view.x, top: view.y, right: view.x + w / z, bottom: view.y + h / z };
  const inside = b => b.x < seen.right && b.x + b.w > seen.left && b.y < seen.bottom && b.y + b.h > seen.top;
  for (const b of scene.order) if (b.item >= N && G[b.item - N].open && inside(b)) drawFrame(b, z);
  const running = drawWays(seen, z);
  look.drawn = 0;
  for (const b of scene.order) if ((b.item < N || !G[b.item - N].open) && inside(b)) { drawBox(b, z); look.drawn++; }
  if (z > 0.45) for (const way of running) norms(way);
}
function drawDots(w, h, z) {
  if (z < 0.35) return;
  const gap = 24 * z;
  ink.fillStyle = color.dots;
  for (let x = (-view.x * z) % gap; x < w; x += gap) for (let y = (-view.y * z) % gap; y < h; y += gap) ink.fillRect(x, y, 1.2, 1.2);
}

function shape(kind, x, y, w, h) {
  ink.beginPath();
  if (kind === "leaf") ink.roundRect(x, y, w, h, h / 2);
  else if (kind === "data") {
    ink.moveTo(x + 9, y); ink.lineTo(x + w, y); ink.lineTo(x + w - 9, y + h); ink.lineTo(x, y + h); ink.closePath();
  } else if (kind === "output") {
    const c = 11;
    ink.moveTo(x + c, y); ink.lineTo(x + w - c, y); ink.lineTo(x + w, y + c); ink.lineTo(x + w, y + h - c);
    ink.lineTo(x + w - c, y + h); ink.lineTo(x + c, y + h); ink.lineTo(x, y + h - c); ink.lineTo(x, y + c); ink.closePath();
  } else ink.roundRect(x, y, w, h, 6);
}
const FILL = { op: "surface", leaf: "leaf-soft", data: "data-soft", output: "good-soft" };
const RIM = { op: "edge", leaf: "leaf", data: "data", output: "good" };

function drawBox(b, z) {
  if (b.item >= N) return drawClosed(b, z);
  const v = V[b.item], state = stateOf(v, look.step), now = state === "now", chosen = look.selected === b.item;
  const found = look.matches && look.matches.has(b.item);
  if (z < TINY && !now && !chosen && !found) {  // thousands of boxes a few pixels wide: no shape can be made out
    ink.globalAlpha = state === "later" || look.matches ? 0.3 : 1;
    ink.fillStyle = color[state === "done" ? RIM[v.kind] : v.kind === "op" ? "surface" : RIM[v.kind]];
    ink.fillRect(b.x, b.y, b.w, b.h);
    ink.globalAlpha = 1;
    return;
  }
  ink.globalAlpha = state === "later" ? 0.34 : look.matches && look.matches.size && !found ? 0.3 : 1;
  if (z > 0.3 && (now || chosen)) { ink.shadowColor = now ? color.fire : color.shadow; ink.shadowBlur = (now ? 18 : 10) * z; }
  shape(v.kind, b.x, b.y, b.w, b.h);
  ink.fillStyle = now ? color["fire-soft"] : color[FILL[v.kind]];
  ink.fill();
  ink.shadowBlur = 0;
  ink.shadowColor = "transparent";
  ink.strokeStyle = now ? color.fire : color[RIM[v.kind]];
  ink.lineWidth = now ? 3 : state === "done" ? 1.8 : 1.2;
  if (z < 0.3) ink.lineWidth /= Math.max(z, 0.08) * 3;
  ink.setLineDash(v.kind === "data" ? [4, 3] : []);
  ink.stroke();
  ink.setLineDash([]);
  if (v.kind === "output") { ink.lineWidth = 1; shape("output", b.x + 3, b.y + 3, b.w - 6, b.h - 6); ink.stroke(); }
  if (chosen || found) halo(b, v.kind, chosen, z);
  if (z > 0.22) boxText(b, v, state, z);
  ink.globalAlpha = 1;
}
function halo(b, kind, chosen, z) {
  const d = 4 / Math.min(1, z + 0.3);
  shape(kind, b.x - d, b.y - d, b.w + 2 * d, b.h + 2 * d);
  ink.strokeStyle = chosen ? color.ink : color.match;
  ink.lineWidth = (chosen ? 2.2 : 3.5) / Math.min(1, z + 0.3);
  ink.stroke();
}
function boxText(b, v, state, z) {
  const middle = b.x + b.w / 2;
  ink.textAlign = "center";
  ink.textBaseline = "middle";
  ink.fillStyle = color.ink;
  ink.font = `600 13px ${FONT}`;
  ink.fillText(fitted(v.label, b.w - 22), middle, b.y + 15);
  if (z < 0.4) return;
  ink.font = `11px ${FONT}`;
  ink.fillStyle = color.soft;
  if (v.memory) {
    const held = v.saved.some(s => !data.storages[s[4]][1] && savedIsHeld(s[4], look.step)), gone = state === "done";
    ink.textAlign = "left";
    ink.fillText(v.sub, b.x + 11, b.y + 30);
    ink.textAlign = "right";
    ink.fillText(v.memory, b.x + b.w - 11, b.y + 30);
    const size = ink.measureText(v.memory).width, left = b.x + b.w - 11 - size;
    ink.strokeStyle = color.soft;
    ink.lineWidth = 1;
    if (held) ink.fillRect(left - 11, b.y + 26.5, 7, 7);
    else ink.strokeRect(left - 10.5, b.y + 27, 6, 6);
    if (gone && !held) { ink.beginPath(); ink.moveTo(left - 1, b.y + 30); ink.lineTo(left + size + 1, b.y + 30); ink.stroke(); }
  } else ink.fillText(fitted(v.sub, b.w - 16), middle, b.y + 30);
  badge(b, v, state);
}
// In the corner: how many of its gradients have come, that it runs, or that it has run.
function badge(b, v, state) {
  let text = "";
  if (state === "waiting" || state === "ready") text = v.coming.length > 1 ? `Σ ${arrived(v, look.step)}/${v.coming.length}` : "∇";
  else if (state === "now") text = "▶";
  else if (state === "done") text = "✓";
  if (!text) return;
  ink.font = `700 10.5px ${FONT}`;
  const w = ink.measureText(text).width + 11, x = b.x + b.w - w + 7, y = b.y - 8, filled = state !== "waiting";
  ink.beginPath();
  ink.roundRect(x, y, w, 17, 8.5);
  ink.fillStyle = state === "done" ? color.good : filled ? color.fire : color.surface;
  ink.fill();
  ink.strokeStyle = state === "done" ? color.good : color.fire;
  ink.lineWidth = 1.4;
  if (state === "waiting") ink.setLineDash([3, 2]);
  ink.stroke();
  ink.setLineDash([]);
  ink.fillStyle = filled ? color.surface : color.fire;
  ink.textAlign = "center";
  ink.fillText(text, x + w / 2, y + 9);
}
const fits = new Map();
function fitted(text, room) {
  const key = `${room | 0} ${ink.font} ${text}`;
  let out = fits.get(key);
  if (out === undefined) {
    out = text;
    for (let n = text.length - 1; n > 2 && ink.measureText(out).width > room; n--) out = text.slice(0, n) + "…";
    if (fits.size > 20000) fits.clear();
    fits.set(key, out);
  }
  return out;
}

// ---------------------------------------------------------------------------------------------------------- groups
function drawFrame(b, z) {
  const g = G[b.item - N], chosen = look.selected === b.item;
  ink.fillStyle = color["group-fill"];
  if (z < TINY && !chosen) return ink.fillRect(b.x, b.y, b.w, b.h);
  ink.beginPath();
  ink.roundRect(b.x, b.y, b.w, b.h, 11);
  ink.fill();
  ink.strokeStyle = chosen ? color.ink : color.line;
  ink.lineWidth = chosen ? 2 : 1.2;
  ink.stroke();
  if (z < 0.22) return;
  toggle(b.x + 19, b.y + HEAD / 2 + 1, "−");
  ink.textAlign = "left";
  ink.textBaseline = "middle";
  ink.font = `600 13px ${FONT}`;
  ink.fillStyle = color.ink;
  const name = g.call > 1 ? `${g.label} (call ${g.call})` : g.label;
  ink.fillText(name, b.x + 33, b.y + HEAD / 2 + 2);
  const at = b.x + 41 + ink.measureText(name).width;
  ink.font = `11px ${FONT}`;
  ink.fillStyle = color.soft;
  if (g.kind !== g.label) ink.fillText(g.kind, at, b.y + HEAD / 2 + 2);
}
function toggle(x, y, sign) {
  ink.beginPath();
  ink.roundRect(x - 8, y - 8, 16, 16, 4);
  ink.fillStyle = color.surface;
  ink.fill();
  ink.strokeStyle = color.group;
  ink.lineWidth = 1.2;
  ink.stroke();
  ink.beginPath();
  ink.moveTo(x - 4, y); ink.lineTo(x + 4, y);
  if (sign === "+") { ink.moveTo(x, y - 4); ink.lineTo(x, y + 4); }
  ink.stroke();
}
function drawClosed(b, z) {
  const g = G[b.item - N], chosen = look.selected === b.item, p = progress(b.item - N, look.step);
  const found = look.matches && look.matches.has(b.item);
  ink.globalAlpha = p.made === 0 && p.of > 0 ? 0.4 : look.matches && look.matches.size && !found ? 0.3 : 1;
  ink.strokeStyle = p.now ? color.fire : color.group;
  ink.lineWidth = p.now ? 3 : 1.3;
  for (const d of z > 0.3 ? [6, 3, 0] : [0]) {  // a pile of cards: there is more inside
    ink.beginPath();
    ink.roundRect(b.x + d, b.y - d, b.w, b.h, 8);
    ink.fillStyle = p.now && d === 0 ? color["fire-soft"] : color.raised;
    ink.fill();
    ink.stroke();
  }
  if (p.back > 0) {  // how far the backward pass is in here
    ink.fillStyle = color.good;
    ink.fillRect(b.x + 6, b.y + b.h - 5, (b.w - 12) * p.back / p.of, 3);
  }
  if (chosen || found) halo(b, "group", chosen, z);
  if (z > 0.22) {
    toggle(b.x + 19, b.y + 15, "+");
    ink.textAlign = "left";
    ink.textBaseline = "middle";
    ink.fillStyle = color.ink;
    ink.font = `600 13px ${FONT}`;
    ink.fillText(fitted(g.call > 1 ? `${g.label} (call ${g.call})` : g.label, b.w - 44), b.x + 34, b.y + 15);
    ink.font = `11px ${FONT}`;
    ink.fillStyle = color.soft;
    ink.fillText(fitted(g.kind === g.label ? g.note : `${g.kind} · ${g.note}`, b.w - 20), b.x + 11, b.y + 30);
    if (p.back === p.of && p.of) badge(b, null, "done");
    else if (p.now) badge(b, null, "now");
  }
  ink.globalAlpha = 1;
}
const insideOf = G.map(() => []);
for (const v of V) if (v.kind === "op") for (const g of G[v.group].around) insideOf[g].push(v);
function progress(number, step) {
  let made = 0, back = 0, now = false, of = 0;
  for (const v of insideOf[number]) {
    of++;
    if (v.made <= step) made++;
    if (v.ran <= step) back++;
    if (v.ran === step || v.made === step) now = step > 0;
  }
  return { made, back, now, of };
}

// ------------------------------------------------------------------------------------------------------------ ways
function trace(way, z, whole) {
  const p = way.points;
  if (way.stub && !whole) {
    const x = p[p.length - 2] - 16, y = p[p.length - 1];
    if (z < TINY) return;
    ink.moveTo(x, y);
    ink.lineTo(x, y - 9);
    ink.moveTo(x + 3, y - 12);
    ink.arc(x, y - 12, 3, 0, 7);
    return;
  }
  ink.moveTo(p[0], p[1]);
  for (let i = 2; i < p.length; i += 2) {
    if (z < TINY || p[i] === p[i - 2] || p[i + 1] === p[i - 1]) ink.lineTo(p[i], p[i + 1]);
    else { const m = (p[i - 1] + p[i + 1]) / 2; ink.bezierCurveTo(p[i - 2], m, p[i], m, p[i], p[i + 1]); }
  }
}
// Data go down before the backward pass; a gradient goes up, and its way stays marked.
function wayState(way, step) {
  let made = false, back = false, now = false;
  for (const i of way.links) {
    const tail = V[L[i][0]], head = V[L[i][1]];
    if (head.made <= step && tail.made <= step) made = true;
    if (tail.kind !== "data" && head.ran <= step) back = true;
    if (head.ran === step && tail.kind !== "data") now = true;
  }
  return now ? "now" : back ? "back" : made ? "made" : "later";
}
function drawWays(seen, z) {
  const lists = { later: [], made: [], back: [], now: [], near: [] };
  for (const way of scene.ways) {
    if (way.left > seen.right || way.right < seen.left || way.top > seen.bottom || way.bottom < seen.top) continue;
    lists[wayState(way, look.step)].push(way);
    if (look.selected === way.a || look.selected === way.b) lists.near.push(way);
  }
  const thin = Math.max(1, 0.45 / Math.max(z, 0.02)), styles = { later: ["line", 1, []], made: ["edge", 1.3, []], near: ["ink", 2, []],
    back: ["fire", 2, []], now: ["fire", 4, [10, 6]] };
  for (const kind of ["later", "made", "near", "back", "now"]) {
    const [name, width, dashes] = styles[kind];
    ink.strokeStyle = color[name];
    ink.fillStyle = color[name];
    ink.lineWidth = Math.max(width, width * thin * 0.6);
    ink.setLineDash(dashes);
    ink.lineDashOffset = look.dash;
    ink.lineJoin = "round";
    ink.globalAlpha = kind === "back" ? 0.75 : 1;
    ink.beginPath();
    for (const way of lists[kind]) trace(way, z, kind === "now" || kind === "near");
    ink.stroke();
    ink.setLineDash([]);
    if (z > 0.25 && kind !== "near") for (const way of lists[kind]) if (!way.stub || kind === "now") arrow(way, kind === "back" || kind === "now", kind === "now" ? 1.5 : 1);
  }
  ink.globalAlpha = 1;
  return lists.now;
}
function arrow(way, up, size) {
  const p = way.points, n = p.length, x = up ? p[0] : p[n - 2], y = up ? p[1] : p[n - 1], d = up ? 1 : -1, s = size;
  ink.beginPath();
  ink.moveTo(x, y + d);
  ink.lineTo(x - 4 * s, y + 8 * d * s);
  ink.lineTo(x + 4 * s, y + 8 * d * s);
  ink.closePath();
  ink.fill();
}
function norms(way) {
  const known = way.links.map(i => L[i][4]).filter(n => n !== null && n !== undefined);
  if (!known.length) return;
  const x = way.points[0], y = way.points[1] + 24;  // below the box that it comes to
  const text = known.length === 1 ? `‖∇‖ ${numberText(known[0])}` : `${known.length} gradients`;
  ink.font = `600 11px ${FONT}`;
  ink.textAlign = "center";
  ink.textBaseline = "middle";
  const w = ink.measureText(text).width + 12;
  ink.beginPath();
  ink.roundRect(x - w / 2, y - 9, w, 18, 5);
  ink.fillStyle = color.surface;
  ink.fill();
  ink.strokeStyle = color.fire;
  ink.lineWidth = 1;
  ink.stroke();
  ink.fillStyle = color.ink;
  ink.fillText(text, x, y + 0.5);
}
