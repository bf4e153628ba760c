// The page's script: head cards, arrow keys in the grid, sorting, CSV and JSON. It reads the rows
// of the table and the numbers of the data element, writes text only as text, and asks nothing of
// the network. Without it the page has everything but these conveniences. In: nothing. Out: its
// source, constant, so that the policy can name its hash (page_hashes.h).
#include "report/html_parts.h"

namespace poise::report {

std::string page_script() {
  return R"js(
'use strict';
(() => {
const all = (query, from = document) => [...from.querySelectorAll(query)];
const one = (query, from = document) => from.querySelector(query);
const source = one('#data'), table = one('table.heads'), card = one('#card');
if (!source || !table || !card) return;
const data = JSON.parse(source.textContent), columns = data.columns;
const value = (head, key) => { const v = data.heads[head][columns.indexOf(key)]; return v ?? NaN; };
const histogram = head => data.heads[head][columns.length];
const bought = head => data.heads[head][columns.length + 1];
const body = table.tBodies[0], rows = [...body.rows];
const row_of = head => document.getElementById('h' + head);
const number_of = row => +row.id.slice(1);
const name_of = row => row.cells[0].textContent;
const flags_of = row => [...row.cells[1].childNodes].filter(n => n.nodeName !== 'P')
  .map(n => n.textContent).join('').trim();
table.classList.remove('nojs');

/* ---- numbers in words, as the page writes them ---- */
const minus = text => text.replace('-', '\u2212');
const round = v => {
  if (!Number.isFinite(v)) return '\u2013';
  const size = Math.abs(v);
  if (size && size < 5e-4) return minus(v.toExponential(0));
  return minus(size >= 99.95 ? v.toFixed(0) : String(+v.toPrecision(3)));
};
const share = v => Number.isFinite(v) ? (v > 0 && v < .01 ? '<1' : v < 1 && v > .99 ? '>99' :
  (100 * v).toFixed(0)) + '\u00a0%' : '\u2013';

/* ---- the card of one head ---- */
const left = 32, right = 334, top = 40, bottom = 196;
const step_of = code => code - (code > 92) - (code > 60) - (code > 38) - 35;
const tick_step = (range, parts) => {
  const power = 10 ** Math.floor(Math.log10(range / parts));
  return [1, 2, 5, 10].find(s => s * power >= range / parts * .999999) * power;
};
function write(parent, list) {
  const pattern = one('.d-top', parent);
  all('.d-label', parent).forEach(e => e.remove());
  for (const [x, y, anchor, text] of list) {
    const label = pattern.cloneNode();
    label.setAttribute('class', 's d-label');
    label.setAttribute('x', x);
    label.setAttribute('y', y);
    label.setAttribute('text-anchor', anchor);
    label.textContent = text;
    pattern.after(label);
  }
}
function draw_histogram(head, bad) {
  const figure = one('.d-hist', card), found = histogram(head);
  if (!figure) return;
  figure.hidden = !found;
  if (!found) return;
  const [low, width, peak, bins] = found, normal = s => 39.894 * Math.exp(-s * s / 2);
  let from = Math.min(-4, low), to = Math.max(4, low + width * bins.length);
  const step = tick_step(to - from, 5);
  from = Math.floor(from / step) * step; to = Math.ceil(to / step) * step;
  const high = 1.5 * Math.max(peak, 39.9), floor = Math.min(peak, 39.9) / 10 ** data.decades * 1.2;
  const x = s => left + (s - from) / (to - from) * (right - left);
  const y = v =>
    bottom - Math.max(0, Math.log(v / floor) / Math.log(high / floor)) * (bottom - top);
  let d = `M${x(low).toFixed(1)} ${bottom}`;
  [...bins].forEach((c, i) => {
    const level = step_of(c.charCodeAt(0)) / data.steps;
    const v = c === ' ' ? 0 : peak * 10 ** ((level - 1) * data.decades);
    d += `V${(v ? y(v) : bottom).toFixed(1)}H${x(low + (i + 1) * width).toFixed(1)}`;
  });
  const area = one('.d-area', card);
  area.setAttribute('d', d + `V${bottom}Z`);
  area.setAttribute('class', `area ${bad ? 'alarm' : 'accent'} d-area`);
  const reach = Math.sqrt(2 * Math.log(39.894 / floor));
  one('.d-normal', card).setAttribute('d', Array.from({length: 49}, (_, i) => {
    const s = reach * (i / 24 - 1);
    return `${i ? 'L' : 'M'}${x(s).toFixed(1)} ${y(normal(s)).toFixed(1)}`;
  }).join(''));
  const labels = [], scale = value(head, 'scale');
  let ticks = '';
  for (let t = from; t <= to + step / 1e6; t += step) {
    const s = Math.round(t / step) * step;
    ticks += `M${x(s).toFixed(1)} ${bottom}v4`;
    labels.push([x(s), bottom + 16, s === to ? 'end' : 'middle', round(s)]);
  }
  if (scale > 0) {
    const raw = tick_step((to - from) / scale, 4);
    for (let t = Math.ceil(from / scale / raw) * raw; t <= to / scale; t += raw) {
      ticks += `M${x(t * scale).toFixed(1)} ${top - 4}v4`;
      labels.push([x(t * scale), top - 8, t * scale > to * .95 ? 'end' : 'middle', round(t)]);
    }
    ticks += `M${left} ${top}H${right}`;
  }
  for (let p = -6; p < 3; ++p) {
    const v = 10 ** p;
    if (v > floor * 1.5 && v < high) labels.push([left - 4, y(v) + 4, 'end', round(v)]);
  }
  one('.d-ticks', card).setAttribute('d', ticks);
  write(one('.d-hist svg', card), labels);
}
function draw_why(head, bad) {
  const figure = one('.d-why', card);
  if (!figure) return;
  const norms = value(head, 'norm_factor'), align = value(head, 'alignment_factor');
  const measured = value(head, 'variance'), textbook = measured / norms / align;
  figure.hidden = !(norms > 0 && align > 0 && measured > 0);
  if (figure.hidden) return;
  const stops = [1, norms, norms * align].map(v => Math.log10(v));
  const low = Math.min(...stops), high = Math.max(...stops, low + 1);
  const [a, b, c] = stops.map(v => 6 + (v - low) / (high - low) * 328);
  const bar = (from, to) => `M${from.toFixed(1)} 28H${to.toFixed(1)}V40H${from.toFixed(1)}Z`;
  one('.d-norms', card).setAttribute('d', bar(a, b));
  one('.d-align', card).setAttribute('d', bar(b, c));
  one('.d-align', card).setAttribute('class', `bar ${bad ? 'alarm' : 'accent'} d-align`);
  one('.d-norms-text', card).textContent = `norms \u00d7\u00a0${round(norms)}`;
  one('.d-align-text', card).textContent = `alignment \u00d7\u00a0${round(align)}`;
  one('.d-from', card).textContent = `${round(textbook)} expected`;
  one('.d-to', card).textContent = `${round(measured)} measured`;
}
const cells = all('.grid a');
let origin = null;
one('.d-back', card).addEventListener('click', event => {
  if (!origin) return;
  event.preventDefault();
  origin.focus();
});
function show(head, focus) {
  const row = row_of(head);
  if (!row) return;
  const mark = row.cells[1].className, bad = mark === 'b' || mark === 'w';
  card.hidden = false;
  one('h2', card).textContent = 'Head card: ' + name_of(row);
  const flags = one('.d-flags', card);
  flags.className = 'd-flags ' + mark;
  flags.textContent = flags_of(row);
  one('.d-words', card).replaceChildren(...all('p', row.cells[1]).map(p => p.cloneNode(true)));
  const then = bought(head), line = one('.d-bought', card);
  line.hidden = !then;
  if (then) {
    line.textContent = `Recomputed with \u00d7\u00a0${round(then[0])} on the scale: H/ln n ` +
      `${round(value(head, 'entropy_ratio'))} \u2192 ${round(then[1])}, rows above .99 ` +
      `${share(value(head, 'above_99'))} \u2192 ${share(then[2])}, tr J ` +
      `${round(value(head, 'trace'))} \u2192 ${round(then[3])}, gain ` +
      `${round(value(head, 'gain'))} \u2192 ${round(then[4])}.`;
  }
  const facts = [];
  [...row.cells].slice(2).forEach((cell, i) => {
    const term = document.createElement('dt'), text = document.createElement('dd');
    term.textContent = headings[i + 2];
    text.append(...[...cell.childNodes].map(n => n.cloneNode(true)));
    facts.push(term, text);
  });
  one('.d-facts', card).replaceChildren(...facts);
  draw_histogram(head, bad);
  draw_why(head, bad);
  cells.forEach(a => a.removeAttribute('aria-current'));
  const cell = cells[head];
  if (cell) { cell.setAttribute('aria-current', 'true'); rove(cell); }
  origin = cell;
  if (focus) {
    card.scrollIntoView();
    one('h2', card).focus({preventScroll: true});
  }
}
function follow() {
  const head = /^#h(\d+)$/.exec(location.hash);
  if (head) show(+head[1], true);
}
)js"
         R"js(
/* ---- arrow keys in the grid: one stop of the Tab key, Enter follows the link ---- */
const lines = all('.grid tbody tr').map(line => all('a', line));
function rove(cell) {
  cells.forEach(other => { other.tabIndex = other === cell ? 0 : -1; });
}
lines.forEach((line, down) => line.forEach((cell, across) => {
  const go = (d, a) => {
    const to = lines[d] && lines[d][Math.min(a, lines[d].length - 1)];
    if (to) { rove(to); to.focus(); }
  };
  cell.addEventListener('keydown', event => {
    const move = {ArrowLeft: () => across > 0 && go(down, across - 1),
      ArrowRight: () => across + 1 < line.length && go(down, across + 1),
      ArrowUp: () => go(down - 1, across), ArrowDown: () => go(down + 1, across),
      Home: () => go(down, 0), End: () => go(down, line.length - 1)}[event.key];
    if (!move || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    move();
  });
  cell.addEventListener('click', event => {
    /* The same cell again changes no hash, so nobody would be told. */
    if (location.hash !== cell.hash) return;
    event.preventDefault();
    follow();
  });
  cell.addEventListener('focus', () => rove(cell));
}));
if (cells.length) rove(cells[0]);

/* ---- the table: sorting ---- */
const header = [...table.tHead.rows[0].cells];
const headings = header.map(cell => cell.textContent.trim());
const parse = text => {
  const digits = text.replace(/[\u2009\u00a0 %]/g, '').replace('\u2212', '-');
  const v = parseFloat(digits.replace(/^[<>]/, ''));
  return Number.isNaN(v) ? -Infinity : v + (digits[0] === '>' ? .5 : digits[0] === '<' ? -.5 : 0);
};
const original = new Map(rows.map((row, i) => [row, i]));
const keys = header.map((_, k) => row => k === 0 ? number_of(row) : k === 1 ? -original.get(row)
  : parse(row.cells[k].textContent));
header.forEach((cell, k) => {
  const button = document.createElement('button');
  button.type = 'button';
  button.append(...cell.childNodes);
  cell.append(button);
  button.addEventListener('click', () => {
    const up = k === 0 ? cell.ariaSort !== 'ascending' : cell.ariaSort === 'descending';
    header.forEach(other => other.removeAttribute('aria-sort'));
    cell.setAttribute('aria-sort', up ? 'ascending' : 'descending');
    const by = new Map(rows.map(row => [row, keys[k](row)]));
    const sign = up ? 1 : -1, difference = (a, b) => a === b ? 0 : a < b ? -1 : 1;
    body.append(...[...rows].sort((a, b) => sign * difference(by.get(a), by.get(b)) ||
      original.get(a) - original.get(b)));
  });
});

/* ---- the table: files ---- */
function save(name, type, text) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], {type}));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
const by_number = [...rows].sort((a, b) => number_of(a) - number_of(b));
/* A spreadsheet must not take a name for a formula. */
const guarded = text => (/^[=+\-@\t\r]/.test(text) ? "'" : '') + text;
const quoted = text => '"' + guarded(text).replaceAll('"', '""') + '"';
one('#csv').addEventListener('click', () => save('poise-heads.csv', 'text/csv',
  ['head', 'flags', ...columns].join(',') + '\n' + by_number.map(row =>
    [quoted(name_of(row)), quoted(flags_of(row)),
      ...data.heads[number_of(row)].slice(0, columns.length).map(v => v ?? '')].join(',')
  ).join('\n') + '\n'));
one('#json').addEventListener('click', () => save('poise-heads.json', 'application/json',
  JSON.stringify({schema: 'poise.heads', version: 1, measured: data.measured,
    heads: by_number.map(row => ({name: name_of(row), flags: flags_of(row),
      ...Object.fromEntries(columns.map((key, i) => [key, data.heads[number_of(row)][i]]))}))},
    null, 1) + '\n'));
one('.tools').hidden = false;

addEventListener('hashchange', follow);
follow();
})();
)js";
}

}  // namespace poise::report
