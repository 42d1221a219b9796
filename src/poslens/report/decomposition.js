const { runs, colours, scale } = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const chosen = { run: 0, layer: 0, head: 0, sequence: 0, values: "centred" };
let images = []; // what is drawn: { name, values, canvas, output, mark }

const text = (value, digits = 3) => value === null || !Number.isFinite(value) ? "–"
  : (+value.toPrecision(digits)).toString().replace("-", "\u2212");
const fixed = (share) => share === null ? "–" : share > 0 && share < 0.0005 ? "< 0.001" : share.toFixed(3);
const whole = (value) => String(value).replace("-", "\u2212");
const run = () => runs[chosen.run];
const headOf = () => run().heads.find((it) => it.layer === chosen.layer && it.head === chosen.head);

function make(tag, parent, settings = {}) {
  const node = Object.assign(document.createElement(tag), settings);
  parent.append(node);
  return node;
}

function colour(term) {
  const [name, channel] = term.split(" (");
  const mixed = `color-mix(in srgb, ${colours[name]} 55%, white)`;
  return channel === "unrotated)" ? mixed : colours[name];
}

// A run's bytes, unpacked once, when it is first shown.
async function bytesOf(it) {
  it.unpacked ??= (async () => {
    const packed = Uint8Array.from(atob(it.bytes), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Int8Array(await new Response(stream).arrayBuffer());
  })();
  return it.unpacked;
}

const seen = (i, j) => !run().causal || j <= i;

async function read() {
  const it = run(), size = it.shown, bytes = await bytesOf(it);
  return it.places
    .filter(([layer, head]) => layer === chosen.layer && head === chosen.head)
    .map(([, , name, count, step, start]) => {
      const first = start + (count > 1 ? chosen.sequence : 0) * size * size;
      const values = Float64Array.from(bytes.subarray(first, first + size * size), (n) => n * step);
      if (chosen.values !== "whole") centre(values, size, chosen.values === "rows");
      return { name, values };
    })
    .sort((a, b) => order(a.name) - order(b.name));
}

// Terms as the tables have them, then the logits, then the effect of position.
function order(name) {
  const all = [...run().terms, "logits"];
  return all.includes(name) ? all.indexOf(name) : all.length;
}

// Takes away the mean of all that is seen, or of each row.
function centre(values, size, rows) {
  const span = rows ? 1 : size;
  for (let start = 0; start < size; start += span) {
    const places = [];
    for (let i = start; i < start + span; i++)
      for (let j = 0; j < size; j++) if (seen(i, j)) places.push(i * size + j);
    const mean = places.reduce((sum, n) => sum + values[n], 0) / places.length;
    for (const n of places) values[n] -= mean;
  }
}

const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
const sides = scale.map((stops) => stops.map(rgb));
function shade(where) { // -1 to 1
  const stops = sides[where < 0 ? 0 : 1];
  const place = Math.min(1, Math.abs(where)) * (stops.length - 1);
  const low = Math.min(Math.floor(place), stops.length - 2), part = place - low;
  return stops[low].map((start, c) => Math.round(start + part * (stops[low + 1][c] - start)));
}

function paint(canvas, values, limit) {
  const size = run().shown;
  canvas.width = canvas.height = size;
  const drawing = canvas.getContext("2d"), picture = drawing.createImageData(size, size);
  for (let i = 0; i < size; i++) for (let j = 0; j < size; j++) {
    const n = i * size + j;
    picture.data.set(seen(i, j) ? [...shade(values[n] / limit), 255] : [255, 255, 255, 255], 4 * n);
  }
  drawing.putImageData(picture, 0, 0);
}

function largest(values) {
  const size = run().shown;
  return values.reduce((most, value, n) =>
    seen(Math.floor(n / size), n % size) ? Math.max(most, Math.abs(value)) : most, 0);
}

let latest = 0;
async function drawTerms() {
  const mine = ++latest, found = await read();
  if (mine !== latest) return; // another choice was made meanwhile
  const limit = Math.max(...found.map((it) => largest(it.values))) || 1;
  const last = run().shown - 1;
  at("terms").replaceChildren();
  images = found.map((it) => {
    const box = make("figure", at("terms"), { className: "term" });
    make("h4", box, { textContent: it.name === "logits" ? "Logits (sum of the terms)" : it.name[0].toUpperCase() + it.name.slice(1) });
    const output = make("output", box);
    const y = make("span", box, { className: "y" });
    for (const word of ["0", "Query position (words)", last]) make("span", y, { textContent: word });
    const plane = make("div", box, { className: "plane" });
    const canvas = make("canvas", plane, { role: "img" });
    canvas.dataset.term = it.name;
    canvas.ariaLabel = `${it.name}: at most ${text(largest(it.values))} nats in size`;
    const mark = make("div", plane, { className: "mark" });
    const x = make("span", box, { className: "x" });
    for (const word of ["0", "Key position (words)", last]) make("span", x, { textContent: word });
    paint(canvas, it.values, limit);
    canvas.onpointermove = (event) => point(canvas, event);
    canvas.onpointerleave = () => tell(null);
    return { ...it, canvas, output, mark };
  });
  at("low").textContent = "\u2212" + text(limit);
  at("high").textContent = text(limit);
  tell(null);
}

function point(canvas, event) {
  const size = run().shown, box = canvas.getBoundingClientRect();
  const place = (share) => Math.min(size - 1, Math.max(0, Math.floor(share * size)));
  tell(place((event.clientY - box.top) / box.height), place((event.clientX - box.left) / box.width));
}

// The value of every image at a query and key position, or the range of each for `null`.
function tell(i, j) {
  const size = run().shown, shown = i !== null && seen(i, j);
  at("place").textContent = shown
    ? `Query position ${i}, key position ${j}, offset ${whole(i - j)} words:` : "Point at an image to read its values.";
  for (const it of images) {
    const share = `${100 / size}%`;
    Object.assign(it.mark.style, { display: shown ? "block" : "none", width: share, height: share,
      left: `${100 * j / size}%`, top: `${100 * i / size}%` });
    it.output.textContent = shown ? `${text(it.values[i * size + j])} nats`
      : `at most ${text(largest(it.values))} nats in size`;
  }
}

function bar(parent, term, share, longest) {
  const track = make("div", parent, { className: "track", title: `${term}: ${fixed(share)}` });
  const fill = make("i", track);
  fill.style.width = `${100 * Math.min(1, Math.max(0, share ?? 0) / longest)}%`;
  fill.style.background = colour(term);
  make("b", track).style.left = `${100 / longest}%`;
}

const made = (head) => run().terms.map((term, k) => [term, head.within[k]])
  .filter(([term]) => run().made.includes(term));

function drawShares() {
  const terms = made(headOf()), longest = Math.max(1, ...terms.map(([, share]) => share ?? 0));
  at("shares").replaceChildren();
  for (const [term, share] of terms) {
    const row = make("div", at("shares"), { className: "row" });
    make("span", row, { textContent: term });
    bar(row, term, share, longest);
    make("span", row, { className: "value", textContent: fixed(share) });
  }
  make("p", at("shares"), { className: "axis", textContent: "Variance within rows over that of the logits (share; the line marks 1)" });
}

function drawSymbol() {
  const { offsets, symbol } = headOf(), known = symbol.filter((it) => it !== null);
  const [width, height, left, right, top, bottom] = [540, 300, 62, 12, 10, 46];
  let low = Math.min(...known), high = Math.max(...known);
  const margin = 0.06 * (high - low) || Math.abs(high) || 1;
  low -= margin; high += margin;
  const first = offsets[0], last = offsets.at(-1);
  const x = (offset) => left + (width - left - right) * (offset - first) / (last - first || 1);
  const y = (value) => top + (height - top - bottom) * (high - value) / (high - low);
  const parts = [];
  for (const value of ticks(low, high, 7)) {
    parts.push(`<line x1="${left}" x2="${width - right}" y1="${y(value)}" y2="${y(value)}" stroke="#e9ecef"/>`,
      `<text x="${left - 8}" y="${y(value) + 4}" text-anchor="end">${text(value, 6)}</text>`);
  }
  for (const offset of ticks(first, last, 7)) parts.push(
    `<line x1="${x(offset)}" x2="${x(offset)}" y1="${height - bottom}" y2="${height - bottom + 4}" stroke="#c9ced4"/>`,
    `<text x="${x(offset)}" y="${height - bottom + 18}" text-anchor="middle">${whole(offset)}</text>`);
  const line = offsets.map((offset, k) => `${x(offset)},${y(symbol[k])}`).join(" ");
  parts.push(`<line x1="${left}" x2="${width - right}" y1="${height - bottom}" y2="${height - bottom}" stroke="#c9ced4"/>`,
    `<polyline points="${line}" fill="none" stroke="#14149b" stroke-width="1.8"/>`,
    `<text class="title" x="${(left + width - right) / 2}" y="${height - 6}" text-anchor="middle">Offset, query less key position (words)</text>`,
    `<text class="title" transform="translate(14 ${(top + height - bottom) / 2}) rotate(-90)" text-anchor="middle">Mean logit (nats)</text>`,
    `<circle r="4" fill="#14149b" visibility="hidden"/>`);
  at("symbol").innerHTML = `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="Mean logit by offset, ${text(Math.min(...known))} to ${text(Math.max(...known))} nats">${parts.join("")}</svg>`;
  const svg = at("symbol").firstChild, dot = svg.querySelector("circle");
  svg.onpointermove = (event) => {
    const box = svg.getBoundingClientRect();
    const share = ((event.clientX - box.left) / box.width * width - left) / (width - left - right);
    const k = Math.min(offsets.length - 1, Math.max(0, Math.round(share * (offsets.length - 1))));
    dot.setAttribute("cx", x(offsets[k])); dot.setAttribute("cy", y(symbol[k]));
    dot.setAttribute("visibility", "visible");
    at("symbol-told").textContent = `Offset ${whole(offsets[k])} words: ${text(symbol[k])} nats`;
  };
  at("symbol-told").textContent = "";
}

function ticks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((it) => it * power >= rough) * power;
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high; k++) found.push(+(k * step).toPrecision(12));
  return found;
}

function drawEvery() {
  at("legend").replaceChildren();
  for (const term of run().made) {
    const item = make("span", at("legend"));
    make("span", item, { className: "dot" }).style.background = colour(term);
    item.append(term);
  }
  const shares = run().heads.flatMap((head) => made(head).map(([, share]) => share ?? 0));
  const longest = Math.max(1, ...shares);
  at("heads").replaceChildren();
  for (const layer of new Set(run().heads.map((it) => it.layer))) {
    make("h4", at("heads"), { textContent: `Layer ${layer}` });
    const row = make("div", at("heads"), { className: "every" });
    for (const head of run().heads.filter((it) => it.layer === layer)) {
      const button = make("button", row, { type: "button" });
      button.dataset.place = `${head.layer}/${head.head}`;
      make("span", button, { textContent: `Head ${head.head}` });
      button.ariaLabel = `Layer ${layer}, head ${head.head}: ` + made(head).map(([term, share]) => `${term} ${fixed(share)}`).join(", ");
      for (const [term, share] of made(head)) bar(button, term, share, longest);
      button.onclick = () => choose({ layer: head.layer, head: head.head });
    }
  }
}

function fill(select, options, value) {
  select.replaceChildren();
  for (const [key, name] of options) make("option", select, { value: key, textContent: name });
  select.value = value;
}

function choose(change) {
  const before = chosen.run;
  Object.assign(chosen, change);
  if (!headOf()) Object.assign(chosen, { layer: run().heads[0].layer, head: run().heads[0].head });
  chosen.sequence = Math.min(chosen.sequence, run().sequences - 1);
  const numbers = (values) => [...new Set(values)].map((it) => [it, it]);
  fill(at("layer"), numbers(run().heads.map((it) => it.layer)), chosen.layer);
  fill(at("number"), numbers(run().heads.filter((it) => it.layer === chosen.layer).map((it) => it.head)), chosen.head);
  fill(at("sequence"), numbers([...Array(run().sequences).keys()]), chosen.sequence);
  if (before !== chosen.run || !at("heads").children.length) drawEvery();
  for (const button of at("heads").querySelectorAll("button")) {
    button.ariaPressed = String(button.dataset.place === `${chosen.layer}/${chosen.head}`);
  }
  const head = headOf();
  at("summary").textContent = `Layer ${head.layer}, head ${head.head}: `
    + (head.reason ? `algebra undefined (${head.reason})` : `${head.algebra}, ${text(head.explained, 2)} of position's effect is the same for all sequences`)
    + `; Toeplitz share ${text(head.tau, 2)}, row-aware ${text(head.tau_row, 2)}; the terms miss the logits by ${text(head.error, 2)} of their size.`;
  at("cut").textContent = run().shown < run().length ? `first ${run().shown} of ${run().length} positions` : "";
  drawShares();
  drawSymbol();
  drawTerms();
}

const stops = [...scale[0]].reverse().concat(scale[1].slice(1));
at("bar").style.background = `linear-gradient(to right, ${stops.join(", ")})`;
make("span", at("bar"), { className: "zero" }).style.left = "50%";
fill(at("scheme"), runs.map((it, k) => [k, it.title]), 0);
at("scheme").onchange = () => choose({ run: +at("scheme").value });
at("layer").onchange = () => choose({ layer: +at("layer").value });
at("number").onchange = () => choose({ head: +at("number").value });
at("sequence").onchange = () => choose({ sequence: +at("sequence").value });
at("values").onchange = () => choose({ values: at("values").value });
choose({});
