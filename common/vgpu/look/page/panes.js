// Source, PTX and machine code side by side. A selected line shows what belongs to it in the other two.

const PANES = ['source', 'ptx', 'sass'];
const PANE_NAMES = {
  source: 'Source',
  ptx: 'PTX',
  sass: 'Machine code'
};
const panes = {
  built: -1,
  file: -2,
  rows: {},
  lists: {},
  lit: [],
  near: [],
  narrow: 'source',
  access: null,
  choice: null,
  status: null
};

function buildSourceView() {
  const view = byId('view-source');
  if (!LOOK.launches.length) {
    view.replaceChildren(sentence(noLaunch('there is no code to show')));
    return;
  }
  panes.choice = choiceRow('Heat column', HEATS, state.heat, setHeat);
  panes.choice.id = 'heat-choice';
  const files = el('select', {
    id: 'file',
    'aria-label': 'Source file',
    onchange: () => {
      state.file = Number(files.value);
      drawPanes();
    }
  });
  panes.status = el('p', {class: 'status line-status', id: 'line-status', 'aria-live': 'polite'});
  const titles = {
    source: [term('source', 'Source'), files],
    ptx: [term('ptx', 'PTX')],
    sass: [term('sass', 'Machine code')]
  };
  const boxes = PANES.map((pane) => {
    panes.lists[pane] = el('div', {
      class: 'code-list',
      id: 'pane-' + pane,
      role: 'listbox',
      tabindex: '0',
      'aria-label': PANE_NAMES[pane],
      onkeydown: (event) => paneKey(event, pane),
      onclick: (event) => paneClick(event, pane),
      onmouseover: (event) => hoverRow(pane, event.target.closest('.row')),
      onmouseleave: () => hoverRow(pane, null)
    });
    return el(
        'div', {class: 'pane', 'data-pane': pane}, el('h2', {}, titles[pane]), panes.lists[pane]);
  });
  const tabs =
      choiceRow('Pane', PANES.map((pane) => [pane, PANE_NAMES[pane]]), panes.narrow, showPane);
  tabs.id = 'pane-choice';
  panes.access = new AccessView('source');
  view.replaceChildren(
      el('div', {class: 'toolbar'}, el('span', {class: 'toolbar-label', text: 'Heat'}),
         panes.choice, panes.status),
      tabs, el('div', {class: 'panes', id: 'panes', 'data-narrow': panes.narrow}, boxes),
      panes.access.element);
}
function showPane(pane) {
  panes.narrow = pane;
  byId('panes').dataset.narrow = pane;
  setChoice(byId('pane-choice'), pane);
  scrollToLit(pane);
}
function setHeat(mode) {
  state.heat = mode;
  tell('heat');
}
function nextHeat() {
  const at = HEATS.findIndex(([mode]) => mode === state.heat);
  setHeat(HEATS[(at + 1) % HEATS.length][0]);
}

// ---- rows -------------------------------------------------------------------------------------

// The parts of a line of code that look different: comments, the opcode.
function codeParts(pane, text) {
  if (pane === 'source') {
    const at = text.indexOf('//');
    return at < 0 ? [text] :
                    [text.slice(0, at), el('span', {class: 'comment', text: text.slice(at)})];
  }
  const note = pane === 'sass' ? text.match(/\s{2,}(stall|wait|sets|yield|reuse).*$/) : null;
  const code = note ? text.slice(0, note.index) : text;
  const found = code.match(/^(\s*@!?\S+\s+)?([A-Za-z][\w.:]*)(?=[\s;]|$)/);
  const parts = found && !code.trimEnd().endsWith(':') ?
      [found[1] || '', el('b', {text: found[2]}), code.slice(found[0].length)] :
      [code];
  if (note) parts.push(el('span', {class: 'comment', text: note[0]}));
  return parts;
}
function paneTexts(m, pane) {
  if (pane === 'source')
    return list(object(LOOK.sources[state.file]).lines).map((text, i) => [String(i + 1), text]);
  if (pane === 'ptx')
    return m.ptx.map((instruction) => [instruction.n ? String(instruction.n) : '', instruction.t]);
  return list(m.sass).map(
      (instruction) =>
          [isNumber(instruction.pc) ? instruction.pc.toString(16).padStart(4, '0') : '',
           instruction.t]);
}
function hasAccess(m, pane, row) {
  if (pane === 'ptx') return m.instructionsOfPtx.has(row);
  if (pane === 'sass')
    return m.instructionsOfPtx.has(m.sass[row].p) &&
        /^(@\S+\s+)?(LD|ST|ATOM|RED|CP)/.test(String(m.sass[row].t));
  return (m.ptxOfLine.get(lineKey(state.file, row + 1)) || [])
      .some((i) => m.instructionsOfPtx.has(i));
}
function missingPane(m, pane) {
  const file = LOOK.sources[state.file];
  if (pane === 'source' && file)
    return `${file.path} is not shown: ${file.why || 'its text is not known'}.`;
  if (pane === 'source')
    return 'The source is not known: the kernel was compiled without -lineinfo, or its files are not on this machine.';
  if (pane === 'ptx') return m.launch.ptx_why || 'There is no PTX of this launch.';
  return m.launch.sass_why ? `No machine code: ${m.launch.sass_why}.`.replace('..', '.') :
                             'No machine code: there is no ptxas on this machine.';
}
function drawPane(m, pane) {
  const texts = paneTexts(m, pane), into = panes.lists[pane];
  panes.rows[pane] = [];
  if (!texts.length) {
    into.replaceChildren(sentence(missingPane(m, pane)));
    return;
  }
  const longest = texts.reduce((most, [, text]) => Math.max(most, String(text).length), 0);
  into.style.setProperty('--longest', String(longest));
  const all = document.createDocumentFragment();
  texts.forEach(([number, text], i) => {
    const heat = el('span', {class: 'heat'});
    const row =
        el('div', {class: 'row', role: 'option', id: `${pane}-${i}`, 'aria-selected': 'false'},
           el('span', {class: 'number', text: number}), heat,
           el('span', {class: 'mark', text: hasAccess(m, pane, i) ? '◆' : ''}),
           el('code', {}, codeParts(pane, String(text === undefined ? '' : text))));
    row.index = i;
    row.heat = heat;
    panes.rows[pane].push(row);
    all.append(row);
  });
  into.replaceChildren(all);
}
function drawPanes() {
  if (!LOOK.launches.length) return;
  const m = model();
  panes.lit = [];
  panes.near = [];
  const files = byId('file');
  files.replaceChildren(...m.files.map(
      (f) => el(
          'option', {value: f, text: fileName(LOOK.sources[f].path), selected: f === state.file})));
  files.hidden = !m.files.length;
  files.title = LOOK.sources[state.file] ? LOOK.sources[state.file].path : '';
  for (const pane of PANES) drawPane(m, pane);
  panes.built = state.launch;
  panes.file = state.file;
  drawHeat();
  if (state.file >= 0 && state.row < 0) scrollToFirst(m);
}
// An unselected source begins where the kernel's lines do.
function scrollToFirst(m) {
  const lines = [...m.ptxOfLine.keys()]
                    .map((key) => key.split(':').map(Number))
                    .filter(([file]) => file === state.file)
                    .map(([, line]) => line);
  const row = lines.length ? panes.rows.source[Math.min(...lines) - 1] : null;
  if (row) panes.lists.source.scrollTop = Math.max(0, topOf(row) - 40);
}
function drawHeat() {
  if (panes.built !== state.launch) return;
  const m = model();
  for (const pane of PANES) {
    const all = heats(m, pane, state.file, state.heat);
    panes.rows[pane].forEach((row, i) => setHeatCell(row.heat, all[i]));
  }
  byId('panes').dataset.heat = state.heat;
  setChoice(panes.choice, state.heat);
  drawLineStatus();
}

// ---- the selection ----------------------------------------------------------------------------

function lightRows() {
  if (panes.built !== state.launch) return;
  const m = model(), links = linked(m, state.pane, state.row);
  for (const row of panes.lit) {
    row.classList.remove('lit', 'chosen', 'current');
    row.setAttribute('aria-selected', 'false');
  }
  panes.lit = [];
  const light = (pane, i, chosen) => {
    const row = panes.rows[pane][i];
    if (!row) return;
    row.classList.add('lit');
    if (chosen) {
      row.classList.add('chosen');
      panes.lists[pane].setAttribute('aria-activedescendant', row.id);
    }
    row.setAttribute('aria-selected', 'true');
    panes.lit.push(row);
  };
  if (links.line) {
    const [file, line] = links.line.split(':').map(Number);
    if (file === state.file) light('source', line - 1, state.pane === 'source');
  }
  for (const i of links.ptx) light('ptx', i, state.pane === 'ptx');
  for (const j of links.sass) light('sass', j, state.pane === 'sass' && j === state.row);
  // Among several instructions, the one whose access is shown.
  const code = (m.sassOfPtx.get(state.ptx) || []).filter((j) => hasAccess(m, 'sass', j));
  for (const row of [panes.rows.ptx[state.ptx], ...code.map((j) => panes.rows.sass[j])])
    if (row && row.classList.contains('lit')) row.classList.add('current');
  for (const pane of PANES) scrollToLit(pane);
  drawLineStatus();
}
// Rows have one height, so that nobody has to measure thousands of them.
const ROW_HEIGHT = 20;
const topOf = (row) => 4 + row.index * ROW_HEIGHT;

// Brings what is lit into sight, at the height of the selected row where there is room.
function scrollToLit(pane) {
  const into = panes.lists[pane], rows = panes.lit.filter((row) => row.parentNode === into);
  if (!rows.length || !into.clientHeight) return;
  const own = pane === state.pane,
        row = rows.find((r) => r.classList.contains(own ? 'chosen' : 'current')) || rows[0];
  const top = topOf(row), bottom = top + ROW_HEIGHT;
  if (own) {
    if (top < into.scrollTop + 20)
      into.scrollTop = top - 60;
    else if (bottom > into.scrollTop + into.clientHeight - 20)
      into.scrollTop = bottom - into.clientHeight + 60;
    return;
  }
  const chosen = panes.rows[state.pane] ? panes.rows[state.pane][state.row] : null;
  const height = chosen && panes.lists[state.pane].clientHeight ?
      topOf(chosen) - panes.lists[state.pane].scrollTop :
      into.clientHeight / 3;
  into.scrollTop = Math.max(0, top - Math.max(20, Math.min(height, into.clientHeight - 60)));
}
function drawLineStatus() {
  const m = model(), links = linked(m, state.pane, state.row);
  if (state.row < 0) {
    panes.status.textContent =
        'Choose a line: its PTX and its machine code light up. Lines with ◆ have recorded accesses of memory.';
    return;
  }
  const costs = state.pane === 'source' ? m.costsOfLine.get(links.line) :
      state.pane === 'ptx'              ? m.ptx[state.row].c :
                                          sassCosts(m, m.sass[state.row]);
  const heat = heatOf(costs, state.heat, paneTotal(m, state.pane));
  const place = links.line ?
      (([f, l]) => `${fileName(LOOK.sources[f].path)}:${l}`)(links.line.split(':').map(Number)) :
      'no source line';
  const parts = [
    place, plural(links.ptx.length, 'instruction') + ' of PTX',
    m.sass ? `${count(links.sass.length)} of machine code` : 'machine code unknown'
  ];
  parts.push(
      heat ? heat.tip :
          links.ptx.length || links.sass.length ?
             `nothing of ${HEATS.find(([mode]) => mode === state.heat)[1].toLowerCase()} here` :
             'not executed by this kernel');
  panes.status.textContent = parts.join(' · ');
}

// ---- pointer and keys -------------------------------------------------------------------------

function paneClick(event, pane) {
  const row = event.target.closest('.row');
  if (row) selectRow(pane, row.index);
}
// What belongs to the row under the pointer is marked in the other panes, where it is in sight.
function hoverRow(pane, row) {
  for (const other of panes.near) other.classList.remove('near');
  panes.near = [];
  if (!row) return;
  const links = linked(model(), pane, row.index);
  const [file, line] = links.line ? links.line.split(':').map(Number) : [-1, 0];
  const rows = {source: file === state.file ? [line - 1] : [], ptx: links.ptx, sass: links.sass};
  for (const other of PANES.filter((name) => name !== pane))
    panes.near.push(...rows[other].map((i) => panes.rows[other][i]).filter(Boolean));
  for (const other of panes.near) other.classList.add('near');
}
function paneKey(event, pane) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const rows = panes.rows[pane];
  const at = state.pane === pane ? state.row : litRow(pane);
  const page = Math.max(1, Math.floor(panes.lists[pane].clientHeight / 20) - 1);
  const to = {
    ArrowDown: at + 1,
    ArrowUp: at - 1,
    PageDown: at + page,
    PageUp: at - page,
    Home: 0,
    End: rows.length - 1,
    n: nextHot(pane, at, 1),
    p: nextHot(pane, at, -1)
  }[event.key];
  if (to !== undefined && rows.length) {
    event.preventDefault();
    event.stopPropagation();
    selectRow(pane, Math.max(0, Math.min(rows.length - 1, to)));
  } else if (event.key === 'ArrowRight' || event.key === 'ArrowLeft') {
    const next = PANES[PANES.indexOf(pane) + (event.key === 'ArrowRight' ? 1 : -1)];
    if (!next) return;
    event.preventDefault();
    const row = litRow(next);
    if (getComputedStyle(byId('pane-choice')).display !== 'none') showPane(next);
    panes.lists[next].focus();
    if (row >= 0) selectRow(next, row);
  } else if (event.key === 'Enter') {
    event.preventDefault();
    panes.access.focus();
  }
}
function litRow(pane) {
  const row = panes.lit.find((r) => r.parentNode === panes.lists[pane]);
  return row ? row.index : -1;
}
// The next row whose bar is longer than a tenth of the longest.
function nextHot(pane, at, step) {
  const rows = panes.rows[pane];
  for (let i = at + step; i >= 0 && i < rows.length; i += step) {
    if (Number(rows[i].heat.style.getPropertyValue('--share')) > 0.1) return i;
  }
  return at;
}
