// What Python wrote into the page, with the indices that everything else asks for.
const data = JSON.parse(document.getElementById("data").textContent);
const V = data.vertices, G = data.groups, L = data.links, N = V.length, LANES = V.length + G.length;
const $ = id => document.getElementById(id);

G.forEach((g, i) => {
  g.children = [];
  g.members = 0;      // vertices inside, at any depth
  g.parameters = 0;   // elements of leaves inside
  g.open = true;
  g.depth = g.parent === null ? 0 : G[g.parent].depth + 1;
  g.around = g.parent === null ? [0] : [...G[g.parent].around, i];  // from the outermost in
  const outer = g.parent === null ? "" : G[g.parent].path;
  const local = outer && g.path.startsWith(outer + ".") ? g.path.slice(outer.length + 1) : g.path;
  g.label = local || g.kind || "step";
  if (g.parent !== null) G[g.parent].children.push(i);
});
V.forEach((v, i) => {
  v.id = i;
  v.inputs = [];      // numbers of links
  v.readers = [];
  v.heldBytes = 0;
  const size = v.shapes.length ? v.shapes[0].reduce((a, b) => a * b, 1) : 0;
  for (const g of G[v.group].around) {
    G[g].members += 1;
    if (v.kind === "leaf") G[g].parameters += size;
  }
  // Inside its module's frame a leaf needs no full name.
  const path = G[v.group].path;
  v.label = v.kind === "leaf" && path && v.title.startsWith(path + ".") ? v.title.slice(path.length + 1) : v.title;
});
L.forEach(([tail, head], i) => { V[tail].readers.push(i); V[head].inputs.push(i); });
const ownStorages = new Set();
for (const v of V) for (const s of v.saved || []) if (!data.storages[s[4]][1]) {
  v.heldBytes += s[3];
  ownStorages.add(s[4]);
}

const shapeText = s => s.length ? s.join("×") : "scalar";
function bytesText(n) {
  if (n < 1000) return `${n} B`;
  for (const unit of ["KB", "MB", "GB"]) {
    n /= 1000;
    if (n < 999.5 || unit === "GB") return `${n < 10 ? n.toFixed(1) : Math.round(n)} ${unit}`;
  }
}
function countText(n) {
  return n < 1e4 ? n.toLocaleString("en") : n < 1e6 ? `${(n / 1e3).toFixed(1)} K` : n < 1e9 ? `${(n / 1e6).toFixed(1)} M` : `${(n / 1e9).toFixed(1)} G`;
}
function numberText(x) {
  if (x === null || x === undefined) return "not finite";
  if (x === 0) return "0";
  const size = Math.abs(x);
  return size >= 1e-3 && size < 1e4 ? String(Number(x.toPrecision(4))) : x.toExponential(2).replace("e+", "e");
}
