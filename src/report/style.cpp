// The page's style sheet: colours, type, findings, grid, tables, narrow screens. Colours are
// variables: light, dark (by the reader's preference) and print. Text has a contrast of at least
// 5.5 : 1 on its background, marks at least 3.3 : 1 (contrast_test computes them). No url(), no
// @import, no fonts: the page refers to nothing outside itself. The text is constant, so that the
// policy can name its hash. Charts and paper: style_charts.cpp.
#include "report/html_parts.h"

namespace poise::report {

std::string page_style() {
  return base_style() + grid_style() + chart_style() + table_style() + print_style();
}

std::string base_style() {
  return R"css(
:root { color-scheme: light dark;
  --bg: #ffffff; --ink: #16191d; --ink2: #4a5159; --ink3: #626a73; --axis: #7f8791;
  --rule: #d9dde1; --grid: #e8ebee; --accent: #0b5cad; --alarm: #b3370a;
  --cell: #f5f6f7; --cell-full: #9cc4ea; --hatch: rgb(179 55 10 / .22) }
@media (prefers-color-scheme: dark) { :root {
  --bg: #121518; --ink: #e8eaed; --ink2: #b3bac2; --ink3: #98a0a9; --axis: #737c86;
  --rule: #2e343a; --grid: #23282d; --accent: #74b3f2; --alarm: #ff8b5e;
  --cell: #1a1e22; --cell-full: #274f78; --hatch: rgb(255 139 94 / .25) } }

* { box-sizing: border-box }
html { -webkit-text-size-adjust: 100% }
body { max-width: 1240px; margin: 0 auto; padding: 20px clamp(12px, 3vw, 32px) 60px;
  background: var(--bg); color: var(--ink);
  font: 15px/1.45 -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: lining-nums tabular-nums; overflow-wrap: break-word }
h1, h2, h3, p, ol, ul, dl, dd, figure, fieldset { margin: 0; padding: 0 }
h1 { max-width: 26em; margin: 14px 0 10px; font-size: clamp(22px, 3.3vw, 34px); font-weight: 650;
  line-height: 1.16; letter-spacing: -.015em; text-wrap: balance }
h1 em { color: var(--alarm); font-style: normal }
h2 { margin-bottom: 8px; font-size: 18px; font-weight: 650; line-height: 1.25 }
h3 { margin-bottom: 2px; color: var(--ink); font-size: 15px; font-weight: 650; line-height: 1.3 }
h1, h2, h3 { break-after: avoid }
a { color: var(--accent) }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px }
section { margin-top: 44px }
.lead { max-width: 44em; margin-bottom: 14px; color: var(--ink2) }
.meta { color: var(--ink2); font-size: 13px; line-height: 1.5 }
.meta b { color: var(--ink); font-weight: 600 }
[hidden] { display: none !important }
.hidden, .skip:not(:focus), .grid span { position: absolute; width: 1px; height: 1px;
  overflow: hidden; clip-path: inset(50%); white-space: nowrap }
.mark { font-size: .85em; font-style: normal }
.warn { color: var(--alarm) }
.info { color: var(--accent) }

.counts { display: flex; flex-wrap: wrap; gap: 2px 22px; margin-bottom: 22px; list-style: none;
  color: var(--ink2); font-size: 14px }
.counts b { color: var(--ink); font-weight: 600 }
.top { display: grid; gap: 28px 44px }
@media (min-width: 960px) { .top.two { grid-template-columns: minmax(0, 1fr) 500px } }
.top > div { min-width: 0 }
.findings { list-style: none; counter-reset: finding }
.findings li { display: grid; grid-template-columns: 22px minmax(0, 1fr); padding: 9px 0;
  border-top: 1px solid var(--rule); counter-increment: finding; break-inside: avoid }
.findings li::before { content: counter(finding); color: var(--ink3); font-size: 13px;
  line-height: 22px }
.findings b { font-weight: 650 }
.findings a { font-size: 13px }
.remedy { display: block; margin-top: 3px }
.remedy::before { content: "→ "; color: var(--accent); font-weight: 650 }

.switch { min-width: 0; border: 0 }
.switch input { position: absolute; width: 1px; height: 1px; opacity: 0 }
.switch label { display: inline-block; margin: 0 4px 4px 0; padding: 4px 9px 5px;
  border: 1px solid var(--axis); border-radius: 3px; color: var(--ink2); font-size: 13px;
  cursor: pointer }
.switch input:checked + label { border-color: var(--ink); background: var(--ink); color: var(--bg) }
.switch input:focus-visible + label { outline: 2px solid var(--accent); outline-offset: 2px }
.note { display: none; min-height: 37px; margin: 4px 0 8px; color: var(--ink2); font-size: 13px;
  line-height: 1.4 }
.scroll { position: relative; overflow-x: auto }
.scroll.tall { max-height: 85vh; overflow-y: auto }
.tall .grid thead th { position: sticky; top: 0; z-index: 2; background: var(--bg) }
.hint { display: none; margin-bottom: 4px; color: var(--accent); font-size: 13px }
.hint::after { content: " →" }
@media (max-width: 1199px) { .hint { display: block } }
.grid { width: 100%; table-layout: fixed; border-collapse: separate; border-spacing: 2px;
  font-size: 13px }
.grid.wide { width: max-content; min-width: 100%; table-layout: auto }
.wide th + th, .wide td { min-width: 46px }
.grid th { padding: 0 2px; color: var(--ink3); font-size: 12px; font-weight: 400; overflow: hidden;
  text-overflow: ellipsis; white-space: nowrap }
.grid th:first-child { position: sticky; left: 0; z-index: 1; width: 42px; background: var(--bg);
  text-align: left }
.grid.named th:first-child { width: 132px; white-space: normal; overflow-wrap: anywhere;
  line-height: 1.2 }
.named td, .named a { height: 100% }
@media (max-width: 599px) { .grid.named th:first-child { width: 84px } }
.grid td { height: 27px; padding: 0; background: var(--cell);
  background: color-mix(in srgb, var(--cell-full) var(--tint, 0%), var(--cell)) }
.grid a { position: relative; display: flex; flex-wrap: wrap; min-height: 27px;
  align-items: center; padding: 0 5px 0 2px; color: var(--ink); text-decoration: none }
.grid a:hover { outline: 1px solid var(--axis) }
.grid a[aria-current] { outline: 2px solid var(--ink); outline-offset: 1px; z-index: 1 }
.grid b { display: none; margin-left: auto; font-weight: 400 }
.grid a::before { order: -1; font-size: 10px; line-height: 12px }
.b > a::before, .heads .b::before, .d-flags.b::before { content: "■"; content: "■" / "" }
.w > a::before, .heads .w::before, .d-flags.w::before { content: "▲"; content: "▲" / "" }
.n > a::before, .heads .n::before, .d-flags.n::before { content: "○"; content: "○" / "" }
.heads .b::before, .heads .w::before, .heads .n::before, .d-flags::before {
  margin-right: .35em; font-size: .85em; color: var(--alarm) }
.w > a::before { color: var(--alarm) }
.n > a::before, .heads .n::before, .d-flags.n::before { color: var(--accent) }
.grid .b a { box-shadow: inset 0 0 0 2px var(--alarm);
  background: repeating-linear-gradient(135deg, var(--hatch) 0 3px, transparent 3px 7px) }
.grid .b b { font-weight: 700 }
.key { display: flex; flex-wrap: wrap; gap: 2px 16px; margin-top: 8px; color: var(--ink2);
  font-size: 13px }

.facts { display: grid; grid-template-columns: 1fr auto; max-width: 410px; font-size: 14px }
.facts dt, .facts dd { padding: 2px 0; border-bottom: 1px solid var(--grid) }
.facts dt { color: var(--ink2) }
.facts dd { text-align: right }
.heads, .rules { width: 100%; border-collapse: collapse; font-size: 13px }
.heads { white-space: nowrap }
.heads td:nth-child(2) { min-width: 8em; white-space: normal }
.heads th, .heads td { padding: 2px 4px; font-weight: 400; text-align: right; vertical-align: top }
.heads thead th { padding: 4px; border-bottom: 1px solid var(--ink); font-weight: 600;
  vertical-align: bottom }
.heads small { color: var(--ink3); font-weight: 400 }
.heads tbody tr:nth-child(5n) > * { border-bottom: 1px solid var(--rule) }
.heads th:first-child, .heads td:nth-child(2), .heads th:nth-child(2) { text-align: left }
.heads th:first-child { position: sticky; left: 0; max-width: 11em; overflow: hidden;
  background: var(--bg); text-overflow: ellipsis }
.heads.named tbody th { min-width: 9em; white-space: normal; overflow-wrap: anywhere }
.heads tr:target > * { background: var(--cell) }
.heads tr:target > th { box-shadow: inset 3px 0 var(--accent) }
.heads p, .all { display: none }
.heads button, .tools button { padding: 0; border: 0; background: none; color: inherit;
  font: inherit; text-align: inherit; cursor: pointer }
.tools { margin-bottom: 6px; font-size: 13px }
.tools button { color: var(--accent); text-decoration: underline }
.heads [aria-sort] button::after { content: " ↓" }
.heads [aria-sort=ascending] button::after { content: " ↑" }
.heads em { color: var(--alarm); font-style: normal; font-weight: 650 }
.rules th, .rules td { padding: 3px 14px 3px 0; border-bottom: 1px solid var(--grid);
  font-weight: 400; text-align: left; vertical-align: top }
.rules thead th { border-color: var(--ink); font-weight: 600 }
.rules td:nth-child(2) { text-align: right; white-space: nowrap }
@media (min-width: 700px) { .rules th { white-space: nowrap } }
.glossary { columns: 290px 3; column-gap: 40px; font-size: 14px }
.glossary div { padding: 3px 0; break-inside: avoid }
.glossary dt, .glossary dd { display: inline }
.glossary dt { font-weight: 600 }
.glossary dd { color: var(--ink2) }
footer { margin-top: 40px; padding-top: 10px; border-top: 1px solid var(--rule);
  color: var(--ink2); font-size: 13px }
footer p + p { margin-top: 4px }
code { font: .93em/1.4 ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere }


#card h2:focus { outline: none }
#card > h2 { padding-bottom: 8px; border-bottom: 2px solid var(--ink) }
.card { padding-top: 12px; font-size: 14px }
.card p { margin-bottom: 8px }
.card .facts { align-content: start }
.card figure + figure { margin-top: 20px }
.card figcaption { min-height: 0 }
.card em { color: var(--alarm); font-style: normal; font-weight: 650 }
.d-flags { font-weight: 650 }

/* Without the script a targeted row stands as the card of its head, in place of the table. */
@supports selector(:has(a)) {
  .scroll:has(.nojs tr:target) .all { display: block }
  .nojs:has(tr:target), .nojs:has(tr:target) tbody { display: block }
  .nojs:has(tr:target) thead, .nojs:has(tr:target) tr:not(:target) { display: none }
  .nojs tr:target { display: grid; padding: 8px 0; border-top: 2px solid var(--ink);
    grid-template-columns: repeat(auto-fill, minmax(min(100%, 190px), 1fr)); gap: 0 28px }
  .nojs tr:target > * { border-bottom: 1px solid var(--grid); background: none }
  .nojs tr:target > th, .nojs tr:target > td:nth-child(2) { position: static; max-width: 56em;
    grid-column: 1 / -1; border: 0; white-space: normal }
  .nojs tr:target > th { font-size: 18px; font-weight: 650 }
  .nojs tr:target > td:nth-child(2) { padding-bottom: 10px }
  .nojs tr:target p { display: block; margin-top: 8px; font-size: 14px }
  .nojs tr:target > td:nth-child(n+3) { display: flex; justify-content: space-between; gap: 12px }
  .nojs tr:target td:nth-child(n+3)::before { color: var(--ink2) }
}
@media (max-width: 480px) {
  .grid { border-spacing: 1px; font-size: 12px }
  .grid th:first-child { width: 38px; padding: 0 }
  .grid a { min-height: 34px; align-content: flex-end; padding: 2px 3px 2px 2px }
  .grid a::before { flex-basis: 100%; font-size: 9px; line-height: 11px }
  .note { min-height: 55px }
  figcaption { min-height: 0 }
}
)css";
}

}  // namespace poise::report
