// Where everything stands. Which row a box is in, and in which order, Python has decided; here sizes become places. A group that
// opens or closes changes its own size and those of the groups around it, never an order: the eye finds things where they were.
const BOX = 42, ROW = 28, GAP = 18, LANE = 7, PAD = 16, HEAD = 30, SWEEPS = 6, GUTTER = 56;
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
  const tall = g.rows.map(row => Math.max(10, ...row.map(heightOf)));
  const left = g.rows.map((_, r) => Math.min(...x[r].map((m, i) => m - widths[r][i] / 2)));
  const right = g.rows.map((_, r) => Math.max(...x[r].map((m, i) => m + widths[r][i] / 2)));
  const frame = g.parent === null ? 0 : PAD, top = g.parent === null ? 0 : HEAD + 8;
  const title = g.parent === null ? 0 : textWidth(g.label, `600 13px ${FONT}`) + textWidth(g.kind, `11px ${FONT}`) + 64;
  const columns = folded(tall, left, right);
  let at = frame, bottom = top;
  const rows = [];
  columns.forEach((column, c) => {
    column.left = Math.min(...left.slice(column.from, column.to));
    column.width = Math.max(...right.slice(column.from, column.to)) - column.left;
    if (columns.length === 1) at = Math.max(frame, (title - column.width) / 2);
    let y = top;
    for (let r = column.from; r < column.to; r++) {
      rows.push({ y, h: tall[r], x: x[r].map(m => m + at - column.left), column: c });
      y += tall[r] + ROW;
    }
    at += column.width;
    column.bottom = y - ROW;
    column.gutter = at + GUTTER / 2;
    bottom = Math.max(bottom, column.bottom);
    if (c + 1 < columns.length) at += GUTTER;
  });
  const fold = columns.length > 1 ? 18 : 0;  // room for the ways from one column to the next
  g.placed = { w: Math.max(at + frame, title), h: bottom + frame + fold, rows, columns, top };
  return g.placed;
}
// A long chain goes on in a new column, as text does, where that makes it fit a screen better.
function folded(tall, left, right) {
  const height = tall.reduce((a, b) => a + b + ROW, 0), width = Math.max(...right) - Math.min(...left);
  let count = height < 1000 || height < 2.5 * width ? 1 : Math.round(Math.sqrt(height * 1.4 / (width + GUTTER)));
  count = Math.max(1, Math.min(count, Math.floor(1.1 * height / Math.max(...tall))));  // no row is longer than a column
  const columns = [{ from: 0, to: tall.length }];
  let y = 0;
  for (let r = 0; r < tall.length; r++) {
    const next = tall[r] + ROW;
    if (y && columns.length < count && y + next / 2 > height / count) {  // nearer to an even share without this row
      columns[columns.length - 1].to = r;
      columns.push({ from: r, to: tall.length });
      y = 0;
    }
    y += next;
  }
  return columns;
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
  const from = new Map();
  for (const way of scene.ways) from.set(way.a, (from.get(way.a) || 0) + 1);
  // What is read everywhere would cover everything: its ways are drawn whole only when they matter.
  for (const way of scene.ways) way.stub = from.get(way.a) > 24 && way.bottom - way.top > 300;
}
function route(tail, head, from, to) {
  const out = G[V[tail].group].around, into = G[V[head].group].around;
  let common = 0;
  while (common + 1 < out.length && common + 1 < into.length && out[common + 1] === into[common + 1]) common++;
  const points = [from.x + from.w / 2, from.y + from.h];
  const rowAt = (chain, level, vertex) => G[chain[level]].rowOf.get(level + 1 === chain.length ? vertex : N + chain[level + 1]);
  let turn = null;  // from one column to the next: down, across, up the gutter, across
  const add = (x, y) => {
    if (turn) {
      const x0 = points[points.length - 2];
      points.push(x0, turn.bottom, turn.x, turn.bottom, turn.x, turn.top, x, turn.top);
      turn = null;
    }
    points.push(x, y);
  };
  const pass = (number, above, below) => {
    const g = G[number];
    if (!g.around.every(i => G[i].open)) return;
    const { rows, columns, top } = g.placed, shift = (tail * 7 % 9 - 4) * 3;
    let column = above < 0 ? 0 : rows[above].column;
    const enter = r => {
      if (rows[r].column > column) turn = { x: g.x + columns[column].gutter + shift, bottom: g.y + columns[column].bottom + 12, top: g.y + top - 12 };
      column = rows[r].column;
    };
    for (const [r, at] of g.lanes.get(tail) || []) if (r > above && r < below) {
      enter(r);
      const x = g.x + rows[r].x[at], y = g.y + rows[r].y;
      add(x, y);
      points.push(x, y + rows[r].h);
    }
    if (below < Infinity) enter(below);
    else points.push(points[points.length - 2], g.y + g.placed.h);  // straight down to the border
  };
  for (let i = out.length - 1; i > common; i--) pass(out[i], rowAt(out, i, tail), Infinity);
  pass(out[common], rowAt(out, common, tail), rowAt(into, common, head));
  for (let i = common + 1; i < into.length; i++) pass(into[i], -1, rowAt(into, i, head));
  const pile = to.item >= N ? 6 : 0;  // a closed group is drawn as a pile of cards
  add(to.x + to.w / 2 + pile / 2, to.y - pile);
  return points;
}
