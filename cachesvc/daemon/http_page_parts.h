// Fixed parts of the status page: its style and its script.
#pragma once

namespace kv {

inline constexpr const char* kPageStyle = R"css(
:root { color-scheme: light dark; --back: #fbfbfa; --ink: #1c2126; --dim: #626b74;
  --line: #dcdfe2; --card: #ffffff; --ram: #2b6cb0; --ssd: #c2731c; --miss: #c9ced3;
  --bad: #b3261e; --good: #2f7d4f; }
@media (prefers-color-scheme: dark) { :root { --back: #14171a; --ink: #e5e8eb; --dim: #98a2ac;
  --line: #30363c; --card: #1b2024; --ram: #63a4e8; --ssd: #e39b4c; --miss: #434b53;
  --bad: #f2837b; --good: #6cc493; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 72rem; background: var(--back); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif; font-variant-numeric: tabular-nums; }
header { display: flex; flex-wrap: wrap; gap: .2rem 1rem; align-items: baseline; }
h1 { font-size: 1.3rem; margin: 0; } h2 { font-size: 1rem; margin: 0 0 .6rem; }
.dim, th { color: var(--dim); font-weight: normal; } .bad { color: var(--bad); }
.good { color: var(--good); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .9rem 1rem; margin: 1rem 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .8rem; }
.cards b { display: block; font-size: 1.5rem; font-weight: 600; }
.bar { display: flex; height: .8rem; border-radius: 4px; overflow: hidden; background: var(--miss);
  margin: .3rem 0; }
.bar i { display: block; height: 100%; } .ram { background: var(--ram); }
.ssd { background: var(--ssd); } .remote { background: var(--good); }
.key i { display: inline-block; width: .7rem; height: .7rem; border-radius: 2px;
  margin: 0 .3rem 0 0; }
.key span { margin-right: 1rem; display: inline-block; } .key .miss { background: var(--miss); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: right; padding: .25rem .5rem;
  border-top: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child, .left { text-align: left; } thead th { border-top: 0; }
td:first-child, .name { white-space: normal; overflow-wrap: anywhere; min-width: 6rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: 1.2rem; }
.chart { display: flex; align-items: flex-end; height: 4rem; gap: 1px;
  border-bottom: 1px solid var(--line); }
.chart i { flex: 1; background: var(--ram); border-radius: 1px 1px 0 0; }
.ends { display: flex; justify-content: space-between; color: var(--dim); font-size: .8rem; }
input, select, button { font: inherit; color: inherit; background: var(--back);
  border: 1px solid var(--line); border-radius: 5px; padding: .2rem .5rem; max-width: 100%; }
button { cursor: pointer; } form { display: inline; }
details form { display: block; margin: .4rem 0; }
)css";

// Asks for the page anew and takes over what has changed, but for what somebody types in.
inline constexpr const char* kPageScript = R"js(
'use strict';
const values = root => new Map([...root.querySelectorAll('[data-metric]')].map(
    e => [e.dataset.metric, Number(e.dataset.value)]));
let before = values(document), at = performance.now();
const per_second = (name, now, seconds) => {
  const rate = (now.get(name) - before.get(name)) / seconds;
  return Number.isFinite(rate) && rate >= 0
      ? rate.toLocaleString('en', {maximumFractionDigits: rate < 10 ? 1 : 0}) + '/s' : '';
};
const here = new URL(location.href);
here.username = here.password = '';
async function renew() {
  try {
    const answer = await fetch(here, {cache: 'no-store'});
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    const now = values(page), time = performance.now();
    for (const part of document.querySelectorAll('.live')) {
      const busy = part.contains(document.activeElement) && document.activeElement !== document.body
          || part.querySelector('details[open]');
      const fresh = page.getElementById(part.id);
      if (!busy && fresh) part.innerHTML = fresh.innerHTML;
    }
    for (const rate of document.querySelectorAll('[data-rate]')) {
      rate.textContent = per_second(rate.dataset.rate, now, (time - at) / 1000);
    }
    before = now; at = time;
    document.getElementById('lost').hidden = true;
  } catch (e) {
    document.getElementById('lost').hidden = false;
  }
}
for (const s of document.querySelectorAll('select')) {
  s.addEventListener('change', () => s.form.submit());
}
setInterval(() => document.hidden || renew(), 2000);
)js";

}  // namespace kv
