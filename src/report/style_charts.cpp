// The style sheet of the figures, and of paper. In: nothing. Out: constant text that uses the
// colours of style.cpp. Must not happen here: a colour of its own on screen, where two themes
// exist.
#include "report/html_parts.h"

namespace poise::report {

const char* chart_style() {
  return R"css(.row { display: grid; gap: 28px 36px;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 290px), 1fr)) }
.split { display: grid; gap: 0 36px }
@media (min-width: 1000px) { .split:has(#remedy) { grid-template-columns: 2fr 1fr } }
figure { min-width: 0; max-width: 410px; break-inside: avoid }
figcaption { min-height: 60px; margin-bottom: 6px; color: var(--ink2); font-size: 13px;
  line-height: 1.4 }
svg { display: block; width: 100%; height: auto; overflow: visible }
svg text { fill: var(--ink2); font-size: 12px; paint-order: stroke; stroke: var(--bg);
  stroke-width: 3px; stroke-linejoin: round }
svg .s { fill: var(--ink3); font-size: 11.5px }
svg .strong { fill: var(--ink); font-weight: 650 }
svg .al, svg .strong.al { fill: var(--alarm) }
svg .ac, svg .strong.ac { fill: var(--accent) }
path { fill: none; stroke: var(--axis) }
path.grid { stroke: var(--grid) }
.normal { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 4 2.5 }
.area.accent { fill: color-mix(in srgb, var(--accent) 22%, var(--bg)); stroke: var(--accent) }
.area.alarm { fill: color-mix(in srgb, var(--alarm) 22%, var(--bg)); stroke: var(--alarm) }
.disc { stroke-linecap: round; stroke-width: 5 }
.disc.everyone { stroke-width: 4 }
.disc.accent { stroke: var(--accent) }
.disc.alarm { stroke: var(--alarm); stroke-width: 6 }
.disc.small { stroke-width: 4.6 }
.median { stroke: var(--ink); stroke-width: 2.5 }
.limit { stroke: var(--alarm); stroke-dasharray: 4 3 }
.thin { stroke-width: .7 }
.band { fill: var(--grid); stroke: var(--axis) }
.curve { stroke: var(--ink); stroke-width: 1.8 }
.curve.accent { stroke: var(--accent) }
.curve.alarm { stroke: var(--alarm) }
.tick.accent { stroke: var(--accent) }
.tick.alarm { stroke: var(--alarm) }
.trend { stroke: var(--axis); stroke-width: 1; stroke-linejoin: round }
.trend.first { stroke: var(--accent); stroke-width: 2.2 }
.trend.first.alarm { stroke: var(--alarm) }
.ahead { stroke: var(--alarm); stroke-width: 1.5; stroke-dasharray: 2 3 }
.sick { stroke: var(--alarm); stroke-width: 1 }
.mark-line { stroke: var(--ink2); stroke-width: 1.5 }
.dotted { stroke-dasharray: 1 2 }
.zone { fill: var(--hatch); stroke: var(--alarm) }
.bar { fill: var(--axis); stroke: none }
.bar.accent { fill: var(--accent) }
.bar.alarm { fill: var(--alarm) }
)css";
}

const char* print_style() {
  return R"css(@media print {
  :root { color-scheme: light;
    --bg: #fff; --ink: #000; --ink2: #333; --ink3: #555; --axis: #777; --rule: #bbb; --grid: #ddd;
    --accent: #0b5cad; --alarm: #b3370a; --cell: #f5f6f7; --cell-full: #9cc4ea;
    --hatch: rgb(179 55 10 / .22) }
  body { max-width: none; padding: 0; font-size: 10pt }
  a { color: inherit; text-decoration: none }
  .switch label, .findings a, .skip, .hint, .tools, .all, #card { display: none !important }
  .switch input:checked + label { display: inline-block; background: none; color: #000 }
  .grid td, .grid a { print-color-adjust: exact; -webkit-print-color-adjust: exact }
  .top.two { grid-template-columns: minmax(0, 1fr) 84mm; gap: 8mm }
  .grid { font-size: 8.5pt; border-spacing: 1px }
  .grid th:first-child { width: 9mm }
  .grid a::before { font-size: 7px; line-height: 10px }
  .grid a { padding: 0 2px 0 1px }
  .row { grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 5mm 7mm }
  h2 { font-size: 12pt }
  h3 { font-size: 9pt }
  figcaption, .facts { font-size: 8pt }
  section { margin-top: 20pt }
  #heads { break-before: page }
  .scroll, .scroll.tall { max-height: none; overflow: visible }
  .heads { font-size: 6.4pt }
  .heads th, .heads td, .heads thead th { padding: 0 2pt }
  .heads thead th { white-space: normal }
  .heads th:first-child { position: static }
  .rules { font-size: 8pt }
}
@media (forced-colors: active) { .grid .b a { outline: 3px solid } }
)css";
}

}  // namespace poise::report
