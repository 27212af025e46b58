// Two launches side by side: lines aligned, and the difference of every counter.

const comparison = {
  what: 'source',
  all: false,
  body: null
};

function drawCompare() {
  const view = byId('view-compare');
  if (LOOK.launches.length < 2) {
    view.replaceChildren(sentence(
        LOOK.launches.length ?
            'The program has one launch only: there is nothing to compare it with. A run of several steps has one launch for each.' :
            noLaunch('there is nothing to compare')));
    return;
  }
  const choice = (id, label, at, set) => {
    const select =
        el('select', {id, onchange: () => set(Number(select.value))},
           LOOK.launches.map(
               (_, i) => el('option', {value: i, text: launchName(i), selected: i === at})));
    return el('label', {}, label + ' ', select);
  };
  const what =
      choiceRow('Lines of', [['source', 'Source'], ['ptx', 'PTX']], comparison.what, (value) => {
        comparison.what = value;
        drawComparison();
      });
  what.id = 'compare-what';
  comparison.body = el('div', {});
  view.replaceChildren(
      el('div', {class: 'toolbar compare-choices'},
         choice('compare-a', 'A', state.launch, (i) => selectLaunch(i)),
         choice(
             'compare-b', 'B', state.other,
             (i) => {
               state.other = i;
               drawComparison();
             }),
         el('button', {text: 'Swap', onclick: swapLaunches}), what),
      comparison.body);
  drawComparison();
}
function swapLaunches() {
  const {launch, other} = state;
  state.other = launch;
  selectLaunch(other);
}
function drawComparison() {
  const a = model(state.launch), b = model(state.other);
  comparison.body.replaceChildren(
      compareSentence(a, b),
      el('section', {class: 'panel', id: 'panel-counters'}, el('h2', {text: 'Counters'}),
         countersTable(a, b)),
      el('section', {class: 'panel', id: 'panel-lines'},
         el('h2', {text: comparison.what === 'source' ? 'Source lines' : 'PTX'}),
         alignedLines(a, b)));
}
function compareSentence(a, b) {
  if (state.launch === state.other) return sentence('A and B are the same launch.');
  if (!hasTime(a) || !hasTime(b))
    return el('p', {
      class: 'lead',
      text: 'One of the two has no predicted time, so only counters can be compared.'
    });
  const ratio = a.predicted.us / b.predicted.us;
  const words = Math.abs(ratio - 1) < 0.02 ? 'B takes as long as A' :
      ratio > 1                            ? `B is ${digits(ratio)} times as fast as A` :
                                             `B is ${digits(1 / ratio)} times as slow as A`;
  const error = Math.max(a.predicted.error || 0, b.predicted.error || 0);
  const careful = Math.abs(Math.log(ratio)) < Math.log(1 + error) ?
      ' The difference is within the error of a prediction.' :
      '';
  return el('p', {
    class: 'lead',
    text: `${words}, predicted: ${predictedWords(a)} and ${predictedWords(b)}.${careful}`
  });
}

// ---- counters ---------------------------------------------------------------------------------

const NOT_COUNTERS =
    new Set(['lines', 'host_seconds', 'host_threads', 'kernel', 'mangled', 'device', 'device_key']);
// Every number of a report: Map of "global / load / sectors" -> number.
function numbersOf(value, path = [], into = new Map()) {
  if (isNumber(value))
    into.set(path.join(' / '), value);
  else if (Array.isArray(value))
    value.forEach((one, i) => numbersOf(one, [...path, 'xyz'[i] || String(i)], into));
  else if (value && typeof value === 'object') {
    for (const [name, one] of Object.entries(value))
      if (!NOT_COUNTERS.has(name)) numbersOf(one, [...path, name], into);
  }
  return into;
}
// Rows of the table: {name, a, b, ratio}, the largest change first; a or b undefined where only one has it.
function counterDifferences(a, b) {
  const left = numbersOf(a.report), right = numbersOf(b.report);
  for (const [sum, m] of [[left, a], [right, b]]) {
    if (isNumber(m.launch.flops)) sum.set('operations', m.launch.flops);
  }
  const names = [...new Set([...left.keys(), ...right.keys()])];
  // What only one of the two has comes last.
  const size = ({a: x, b: y}) => x === undefined || y === undefined ? -1 :
      x === y                                                       ? 0 :
      x === 0 || y === 0                                            ? 1e8 :
                                                                      Math.abs(Math.log(y / x));
  return names.map((name) => ({name, a: left.get(name), b: right.get(name)}))
      .map((row) => ({...row, changed: row.a !== row.b, size: size(row)}))
      .sort((x, y) => y.size - x.size || (x.name < y.name ? -1 : 1));
}
function counterWords(name, value) {
  if (value === undefined) return 'not there';
  if (/(^| |_)us$|^limits/.test(name)) return time(value);
  if (/(^| |_)bytes(_|$)|_shared$/.test(name)) return bytes(value);
  if (/(^| |_)(share|fraction|hit_rate|miss_rate|efficiency|agreement|error)$|\/ stalls \//.test(
          name))
    return percent(value);
  return Number.isInteger(value) ? count(value) : digits(value);
}
function ratioWords({a, b}) {
  if (a === undefined || b === undefined) return '';
  if (a === b) return 'same';
  if (a === 0) return 'from 0';
  return b === 0 ? 'to 0' : times(b / a);
}
function countersTable(a, b) {
  const rows = counterDifferences(a, b), changed = rows.filter((row) => row.changed);
  const shown = comparison.all ? rows : changed;
  const toggle =
      el('label', {class: 'switch'}, el('input', {
           type: 'checkbox',
           id: 'compare-all',
           checked: comparison.all,
           onchange: (event) => {
             comparison.all = event.target.checked;
             drawComparison();
             byId('compare-all').focus();
           }
         }),
         ` all ${count(rows.length)} counters`);
  const n = (node) => ({node, class: 'n'});
  const built = table(
      'counters', ['Counter', n('A'), n('B'), n('B / A')],
      shown.map(
          (row) =>
              [{class: 'mono', text: row.name.replaceAll('_', ' ')},
               {class: 'n', text: counterWords(row.name, row.a)},
               {class: 'n', text: counterWords(row.name, row.b)},
               {class: 'n', text: ratioWords(row)}]));
  return el(
      'div', {},
      el('p', {class: 'note'},
         `${
             plural(
                 changed.length, 'counter differs', 'counters differ')}, the largest ratio first. `,
         toggle),
      shown.length ? el('div', {
        class: 'scroll counters-box',
        tabindex: '0',
        role: 'group',
        'aria-label': 'Table of counters'
      },
                        built) :
                     sentence('All counters are the same.'));
}

// ---- lines ------------------------------------------------------------------------------------

// What of a launch is compared: {lines: texts, heats, from, name}. Of one file that both share only their kernels' lines.
function sideOf(m, sameFile) {
  if (comparison.what === 'ptx') {
    return {
      lines: m.ptx.map((one) => String(one.t)),
      heats: heats(m, 'ptx', -1, state.heat),
      from: 0,
      name: m.launch.kernel
    };
  }
  const file = m.files.length ? m.files[0] : -1;
  if (file < 0) return null;
  const lines = [...m.ptxOfLine.keys()]
                    .map((key) => key.split(':').map(Number))
                    .filter(([f]) => f === file)
                    .map(([, line]) => line);
  const all = LOOK.sources[file].lines;
  const from = sameFile ? Math.max(0, Math.min(...lines) - 4) : 0,
        to = sameFile ? Math.min(all.length, Math.max(...lines) + 2) : all.length;
  return {
    lines: all.slice(from, to),
    heats: heats(m, 'source', file, state.heat).slice(from, to),
    from,
    name: LOOK.sources[file].path
  };
}
function alignedLines(a, b) {
  const sameFile = a.files.length > 0 && a.files[0] === b.files[0];
  const left = sideOf(a, sameFile), right = sideOf(b, sameFile);
  if (!left || !right || !left.lines.length || !right.lines.length) {
    return sentence(`The ${
        comparison.what === 'source' ?
            'source' :
            'PTX'} of one of the two is not known, so there are no lines to align.`);
  }
  const pairs =
      align(left.lines, right.lines, comparison.what === 'ptx' ? ptxKey : (line) => line.trim());
  if (!pairs) return sentence('The two texts are too long to be aligned line by line.');
  const rows = pairChanges(pairs);
  const key = comparison.what === 'ptx' ? ptxKey : (line) => line.trim();
  const same = ([i, j]) => i >= 0 && j >= 0 && key(left.lines[i]) === key(right.lines[j]);
  const changed = rows.filter((row) => !same(row)).length;
  const body =
      el('div',
         {class: 'diff', id: 'diff', tabindex: '0', role: 'group', 'aria-label': 'Aligned lines'});
  body.append(
      el('div', {class: 'diff-head'}, el('span', {text: `A  ${left.name}`}),
         el('span', {text: `B  ${right.name}`})));
  for (let k = 0; k < rows.length;) {
    let end = k;
    while (end < rows.length && same(rows[end])) ++end;
    const from = k === 0 ? k : k + 3, to = end === rows.length ? end : end - 3;
    if (to - from > 6) {
      rows.slice(k, from).forEach((row) => body.append(diffRow(left, right, row, true)));
      body.append(foldedRows(left, right, rows.slice(from, to)));
      k = to;
    }
    for (; k < end; ++k) body.append(diffRow(left, right, rows[k], true));
    for (; k < rows.length && !same(rows[k]); ++k)
      body.append(diffRow(left, right, rows[k], false));
  }
  const heatName = HEATS.find(([mode]) => mode === state.heat)[1].toLowerCase();
  return el(
      'div', {}, el('p', {
        class: 'note',
        text: `${plural(changed, 'row differs', 'rows differ')} of ${
            count(rows.length)}. The numbers beside the lines are ${heatName} (key h for the next).`
      }),
      body);
}
function foldedRows(left, right, rows) {
  const fold = el('button', {
    class: 'fold',
    text: `${count(rows.length)} equal lines`,
    onclick: () => fold.replaceWith(...rows.map((row) => diffRow(left, right, row, true)))
  });
  return fold;
}
function diffRow(left, right, [i, j], same) {
  const side = (one, at, mark) => {
    const heat = el('span', {class: 'heat'});
    setHeatCell(heat, at >= 0 ? one.heats[at] : null);
    return el(
        'div',
        {class: 'side' +
             (at < 0   ? ' empty' :
                  same ? '' :
                         ' changed')},
        el('span', {class: 'number', text: at >= 0 ? String(one.from + at + 1) : ''}), heat,
        el('span', {class: 'sign', text: at >= 0 && !same ? mark : ''}),
        el('code', {text: at >= 0 ? one.lines[at] : ''}));
  };
  return el(
      'div', {class: 'diff-row' + (same ? '' : ' differs')}, side(left, i, '−'),
      side(right, j, '+'));
}
