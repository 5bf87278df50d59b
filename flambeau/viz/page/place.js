// Where everything stands. Which row a box is in, and in which order, Python has decided; here sizes become places. A group that
// opens or closes changes its own size and those of the groups around it, never an order: the eye finds things where they were.
const BOX = 42, ROW = 28, GAP = 18, LANE = 7, PAD = 16, HEAD = 30, SWEEPS = 6;
const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
const pen = document.createElement("canvas").getContext("2d");

function textWidth(text, font) {
  pen.font = font;
  return pen.measureText(text).width;
}
for (const v of V) {
  v.sub = v.kind === "output" ? v.name || shapeText(v.shapes[0]) : shapeText(v.shapes[0] || []) + (v.shapes.length > 1 ? ` +${v.shapes.length - 1}` : "");
  v.memory = v.heldBytes ? bytesText(v.heldBytes) : "";
  const line = textWidth(v.sub, `11px ${FONT}`) + (v.memory ? textWidth(v.memory, `11px ${FONT}`) + 26 : 0);
  v.width = Math.min(230, Math.max(74, Math.ceil(Math.max(textWidth(v.label, `600 13px ${FONT}`) + 22, line) + 24)));
}
G.forEach((g, i) => {
  g.note = `${countText(g.members)} nodes${g.parameters ? ` · ${countText(g.parameters)} params` : ""}`;
  g.closedWidth = Math.max(130, Math.ceil(Math.max(textWidth(g.label, `600 13px ${FONT}`) + 46, textWidth(`${g.kind} · ${g.note}`, `11px ${FONT}`)) + 28));
  g.rowOf = new Map();
  g.lanes = new Map();  // source -> [row, position in it]...
  g.rows.forEach((row, r) => row.forEach((item, at) => {
    if (item >= LANES) {
      const source = item - LANES;
      if (!g.lanes.has(source)) g.lanes.set(source, []);
      g.lanes.get(source).push([r, at]);
    } else g.rowOf.set(item, r);
  }));
  g.near = g.rows.map(row => row.map(() => [[], []]));  // neighbours above, below
  g.links.forEach((level, r) => {
    for (let k = 0; k < level.length; k += 2) {
      g.near[r][level[k]][1].push(level[k + 1]);
      g.near[r + 1][level[k + 1]][0].push(level[k]);
    }
  });
  g.placed = null;
});

function widthOf(item) {
  return item >= LANES ? LANE : item < N ? V[item].width : G[item - N].open ? sized(G[item - N]).w : G[item - N].closedWidth;
}
function heightOf(item) {
  return item >= LANES ? 0 : item < N || !G[item - N].open ? BOX : sized(G[item - N]).h;
}

// The places nearest to the wishes at which neighbours do not overlap (see layout.py: spread).
function spread(wish, widths, row) {
  const pools = [], offsets = [];
  let at = 0;
  for (let i = 0; i < wish.length; i++) {
    if (i) at += (widths[i - 1] + widths[i]) / 2 + GAP;
    offsets.push(at);
    pools.push([row[i] >= LANES ? 4 : 1, wish[i] - at, 1]);
    while (pools.length > 1 && pools[pools.length - 2][1] > pools[pools.length - 1][1]) {
      const [w, mean, n] = pools.pop(), last = pools[pools.length - 1];
      last[1] = (last[0] * last[1] + w * mean) / (last[0] + w);
      last[0] += w;
      last[2] += n;
    }
  }
  let k = 0;
  const x = new Array(wish.length);
  for (const [, mean, n] of pools) for (let j = 0; j < n; j++, k++) x[k] = mean + offsets[k];
  return x;
}

// Size of an open group, and the places of what is in it, relative to its corner.
function sized(g) {
  if (g.placed) return g.placed;
  const widths = g.rows.map(row => row.map(widthOf));
  let x = widths.map(row => {
    let at = -row.reduce((a, b) => a + b + GAP, 0) / 2;
    return row.map(w => { const middle = at + w / 2; at += w + GAP; return middle; });
  });
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    for (let k = 0; k < x.length; k++) {
      const r = down ? k : x.length - 1 - k;
      const wish = x[r].map((old, i) => {
        const side = g.near[r][i][down ? 0 : 1], other = g.near[r][i][down ? 1 : 0];
        const from = side.length ? side : other, line = x[r + ((side.length > 0) === down ? -1 : 1)];
        if (!from.length) return old;
        let sum = 0;
        for (const n of from) sum += line[n];
        return sum / from.length;
      });
      x[r] = spread(wish, widths[r], g.rows[r]);
    }
  }
  let left = Infinity, right = -Infinity;
  x.forEach((row, r) => row.forEach((m, i) => {
    left = Math.min(left, m - widths[r][i] / 2);
    right = Math.max(right, m + widths[r][i] / 2);
  }));
  const frame = g.parent === null ? 0 : PAD, top = g.parent === null ? 0 : HEAD + 8;
  const title = g.parent === null ? 0 : textWidth(g.label, `600 13px ${FONT}`) + textWidth(g.kind, `11px ${FONT}`) + 64;
  const wide = Math.max(right - left + 2 * frame, title);
  const shift = (wide - (right - left)) / 2 - left;
  let y = top;
  const rows = g.rows.map((row, r) => {
    const tall = Math.max(10, ...row.map(heightOf));
    const made = { y, h: tall, x: x[r].map(m => m + shift) };
    y += tall + ROW;
    return made;
  });
  g.placed = { w: wide, h: Math.max(top, y - ROW) + frame, rows };
  return g.placed;
}

// Absolute places of all that can be seen: boxes by item, and the ways between them.
const scene = { boxes: new Map(), order: [], ways: [], w: 0, h: 0 };
function forget(g) {
  for (const i of g.around) G[i].placed = null;
}
function placeAll() {
  scene.boxes.clear();
  scene.order.length = 0;
  const whole = sized(G[0]);
  scene.w = whole.w;
  scene.h = whole.h;
  const visit = (g, left, top) => {
    g.x = left;
    g.y = top;
    g.placed.rows.forEach((row, r) => g.rows[r].forEach((item, i) => {
      if (item >= LANES) return;
      const w = widthOf(item), h = heightOf(item);
      const box = { item, x: left + row.x[i] - w / 2, y: top + row.y + (row.h - h) / 2, w, h };
      scene.boxes.set(item, box);
      scene.order.push(box);
      if (item >= N && G[item - N].open) visit(G[item - N], box.x, box.y);
    }));
  };
  visit(G[0], 0, 0);
  waysOf();
}

// The box that stands for a vertex: its own, or the outermost closed group around it.
function shownFor(v) {
  for (const g of G[V[v].group].around) if (!G[g].open) return N + g;
  return v;
}
function waysOf() {
  const known = new Map();
  scene.ways.length = 0;
  L.forEach(([tail, head], number) => {
    const a = shownFor(tail), b = shownFor(head);
    if (a === b) return;
    const key = a * (LANES + 1) + b;
    let way = known.get(key);
    if (!way) {
      way = { a, b, links: [], points: route(tail, head, scene.boxes.get(a), scene.boxes.get(b)) };
      const xs = way.points.filter((_, i) => i % 2 === 0), ys = way.points.filter((_, i) => i % 2);
      way.left = Math.min(...xs); way.right = Math.max(...xs); way.top = Math.min(...ys); way.bottom = Math.max(...ys);
      known.set(key, way);
      scene.ways.push(way);
    }
    way.links.push(number);
  });
}
function route(tail, head, from, to) {
  const out = G[V[tail].group].around, into = G[V[head].group].around;
  let common = 0;
  while (common + 1 < out.length && common + 1 < into.length && out[common + 1] === into[common + 1]) common++;
  const points = [from.x + from.w / 2, from.y + from.h];
  const rowAt = (chain, level, vertex) => G[chain[level]].rowOf.get(level + 1 === chain.length ? vertex : N + chain[level + 1]);
  const pass = (g, above, below) => {
    if (!G[g].around.every(i => G[i].open)) return;
    for (const [r, at] of G[g].lanes.get(tail) || []) if (r > above && r < below) {
      const row = G[g].placed.rows[r], x = G[g].x + row.x[at], y = G[g].y + row.y;
      points.push(x, y, x, y + row.h);
    }
  };
  for (let i = out.length - 1; i > common; i--) pass(out[i], rowAt(out, i, tail), Infinity);
  pass(out[common], rowAt(out, common, tail), rowAt(into, common, head));
  for (let i = common + 1; i < into.length; i++) pass(into[i], -1, rowAt(into, i, head));
  const pile = to.item >= N ? 6 : 0;  // a closed group is drawn as a pile of cards
  points.push(to.x + to.w / 2 + pile / 2, to.y - pile);
  return points;
}
