// Puts the views together: tabs, the launch, the keys, the address of what is shown.

const TABS = ['summary', 'source', 'block', 'compare'];

function showTab(tab) {
  if (!TABS.includes(tab)) return;
  state.tab = tab;
  hideTip();
  for (const name of TABS) {
    const button = byId('tab-' + name), on = name === tab;
    button.setAttribute('aria-selected', String(on));
    button.tabIndex = on ? 0 : -1;
    byId('view-' + name).hidden = !on;
  }
  document.body.dataset.tab = tab;
  freshen();
  writeAddress();
}
// A view is drawn when it is first seen, and again when what it shows has changed.
const stale = new Set(TABS);
function freshen() {
  const {tab} = state;
  if (stale.delete(tab)) {
    if (tab === 'summary')
      drawSummary();
    else if (tab === 'compare')
      drawCompare();
    else if (tab === 'block')
      drawBlock();
    else
      drawPanes();
  }
  if (!LOOK.launches.length) return;
  if (tab === 'source') {
    if (panes.file !== state.file) drawPanes();
    lightRows();
    panes.access.draw();
  }
  if (tab === 'block' && blockView.chart) {
    drawDetail();
    blockView.access.draw();
  }
}
function fillHead() {
  // Where the page was written says nothing about the run.
  const own = LOOK.arguments.filter(
      (word, i, all) => !/^--look(=|$)/.test(word) && all[i - 1] !== '--look');
  byId('program').textContent = [LOOK.program, ...own].join(' ');
  document.title = `${LOOK.program}: a look inside`;
  const d = LOOK.device;
  const parts = [d.name || 'device unknown'];
  if (d.compute_capability) parts.push('compute capability ' + d.compute_capability);
  if (isNumber(d.sms)) parts.push(plural(d.sms, 'SM'));
  if (isNumber(d.clock_mhz)) parts.push(`${count(d.clock_mhz)} MHz`);
  parts.push(LOOK.toolkit || 'ptxas unknown');
  byId('device').textContent = parts.join(' · ');
  byId('launch').replaceChildren(
      ...LOOK.launches.map((_, i) => el('option', {value: i, text: launchName(i)})));
  byId('launch-label').hidden = LOOK.launches.length < 1;
}

// ---- the address: what is shown, so that a link or a reload comes back to it -------------------

let settled = false;
function writeAddress() {
  if (!settled) return;
  const parts = {tab: state.tab, launch: state.launch + 1, heat: state.heat};
  if (state.row >= 0) Object.assign(parts, {pane: state.pane, row: state.row + 1});
  if (state.step >= 0) Object.assign(parts, {warp: state.stepWarp, step: state.step});
  if (state.tab === 'compare') parts.other = state.other + 1;
  const text = '#' + Object.entries(parts).map(([name, value]) => `${name}=${value}`).join('&');
  if (location.hash !== text) {
    try {
      history.replaceState(null, '', text);
    } catch (error) {
      settled = false;  // a page inside another may not change its address
    }
  }
}
function readAddress() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const number = (name) => (/^\d+$/.test(parts.get(name) || '') ? Number(parts.get(name)) : -1);
  if (HEATS.some(([mode]) => mode === parts.get('heat'))) state.heat = parts.get('heat');
  if (number('launch') > 0) selectLaunch(number('launch') - 1);
  if (LOOK.launches[number('other') - 1]) state.other = number('other') - 1;
  showTab(TABS.includes(parts.get('tab')) ? parts.get('tab') : 'summary');
  if (!LOOK.launches.length) return;
  const pane = PANES.includes(parts.get('pane')) ? parts.get('pane') : 'source',
        row = number('row') - 1;
  if (row >= 0 && row < paneTexts(model(), pane).length) selectRow(pane, row);
  if (number('step') >= 0 && blockView.chart && state.tab === 'block')
    blockView.chart.choose(Math.max(0, number('warp')), number('step'));
}

// ---- keys -------------------------------------------------------------------------------------

function tabKey(event) {
  const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
  const to = step          ? (TABS.indexOf(state.tab) + step + TABS.length) % TABS.length :
      event.key === 'Home' ? 0 :
      event.key === 'End'  ? TABS.length - 1 :
                             -1;
  if (to < 0) return;
  event.preventDefault();
  showTab(TABS[to]);
  byId('tab-' + TABS[to]).focus();
}
function pageKey(event) {
  if (event.key === 'Escape') hideTip();
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || byId('help').open)
    return;
  if (/^(SELECT|TEXTAREA)$/.test(event.target.tagName) ||
      (event.target.tagName === 'INPUT' && event.target.type === 'text'))
    return;
  const acts = {
    1: () => showTab('summary'),
    2: () => showTab('source'),
    3: () => showTab('block'),
    4: () => showTab('compare'),
    '[': () => selectLaunch(state.launch - 1),
    ']': () => selectLaunch(state.launch + 1),
    h: nextHeat,
    a: () => {
      if (state.tab === 'block') nextAccess();
    },
    '?': openHelp,
  };
  if (!Object.hasOwn(acts, event.key)) return;
  event.preventDefault();
  acts[event.key]();
}
function openHelp() {
  const help = byId('help');
  hideTip();
  help.replaceChildren(
      el('form', {method: 'dialog'}, el('h2', {id: 'help-title', text: 'Keys and words'}),
         el('button', {text: 'Close'})),
      el('table', {class: 'keys'},
         el('tbody', {},
            KEYS.map(
                ([keys, effect]) => el(
                    'tr', {},
                    el('th', {scope: 'row'}, keys.split(' ').map((key) => el('kbd', {text: key}))),
                    el('td', {text: effect}))))),
      el('h3', {text: 'Words'}), facts(Object.entries(TERMS)), el('h3', {text: 'Why a warp waits'}),
      facts(Object.entries(STALLS).map(([name, [, text]]) => [name, text])));
  help.showModal();
}

// ---- start ------------------------------------------------------------------------------------

on('launch', () => {
  byId('launch').value = String(state.launch);
  TABS.forEach((tab) => stale.add(tab));
  freshen();
});
on('heat', () => {
  stale.add('compare');
  if (LOOK.launches.length) drawHeat();
  if (state.tab === 'compare') freshen();
  writeAddress();
});
on('line', () => {
  if (!stale.has(state.tab)) freshen();
  writeAddress();
});
on('access', () => {
  if (state.tab === 'source') panes.access.draw();
  if (state.tab === 'block' && blockView.chart) {
    drawDetail();
    blockView.access.draw();
  }
});

function start() {
  fillHead();
  buildSourceView();
  buildBlockView();
  for (const tab of TABS) byId('tab-' + tab).addEventListener('click', () => showTab(tab));
  byId('tabs').addEventListener('keydown', tabKey);
  byId('launch').addEventListener('change', () => selectLaunch(Number(byId('launch').value)));
  byId('help-button').addEventListener('click', openHelp);
  document.addEventListener('keydown', pageKey);
  window.addEventListener('scroll', hideTip, {passive: true});
  window.addEventListener('hashchange', readAddress);
  window.addEventListener('beforeprint', () => {
    if (stale.delete('summary')) drawSummary();
  });
  if (LOOK.launches.length) selectLaunch(0);
  readAddress();
  settled = true;
}
start();
