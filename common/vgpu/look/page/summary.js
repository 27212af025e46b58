// The summary: all launches in a table, then the chosen one: limits, stalls, occupancy, findings, hot lines.

function drawSummary() {
  const view = byId('view-summary');
  const m = model();
  if (!LOOK.launches.length) {
    view.replaceChildren(
        sentence(noLaunch('there is nothing to look into')),
        panel('Timeline', 'timeline', drawTimeline()));
    return;
  }
  view.replaceChildren(
      panel('Launches', 'launches', launchTable()),
      el('div', {class: 'columns'},
         el('div', {class: 'column'},
            panel(['Speed of light of ', kernelMark(m)], 'limits', limitBars(m)),
            panel('Why its warps wait', 'stalls', stallBars(m))),
         el('div', {class: 'column'}, panel('Roofline', 'roofline', drawRoofline()),
            panel('Occupancy', 'occupancy', occupancyText(m)),
            panel('Findings', 'findings', findingsText(m)))),
      panel('Hot lines', 'hot', hotLines(m)), panel('Timeline', 'timeline', drawTimeline()));
}
function panel(title, name, ...content) {
  return el(
      'section', {class: 'panel', id: 'panel-' + name},
      el('h2', {}, Array.isArray(title) ? title : [title]), ...content);
}
const kernelMark = (m) => el('span', {class: 'mono', text: m.launch.kernel || 'the kernel'});

// ---- the table --------------------------------------------------------------------------------

function limitWords(m) {
  const limit = object(m.report.limit);
  return limit.name && limit.name !== 'none' ? limit : null;
}
function occupancyWords(m) {
  const occupancy = object(m.report.occupancy);
  if (!isNumber(occupancy.fraction)) return UNKNOWN;
  return percent(occupancy.fraction, 0) + (occupancy.limiter ? `, by ${occupancy.limiter}` : '');
}
function launchRow(index) {
  const m = model(index);
  const limit = limitWords(m);
  const findings = list(m.launch.findings).length;
  return [
    {
      node: el('button', {
        class: 'link',
        text: String(index + 1),
        'aria-label': 'Choose launch ' + launchName(index),
        onclick: () => selectLaunch(index)
      })
    },
    {class: 'mono kernel', text: m.launch.kernel || UNKNOWN},
    {
      class: 'n',
      node: hasTime(m) ? el('span', {text: predictedWords(m)}) : el('span', {
        class: 'term',
        tabindex: '0',
        tip: 'No prediction: ' + whyNoTime(m) + '.',
        text: UNKNOWN
      })
    },
    {class: 'n', text: limit ? time(limit.us) : UNKNOWN},
    {text: limit ? limit.name : UNKNOWN},
    {text: occupancyWords(m)},
    {class: 'n', text: count(m.launch.count === undefined ? 1 : m.launch.count)},
    {class: 'n', text: count(findings)},
    {class: 'mono', text: list(m.report.grid).join(' × ') || UNKNOWN},
    {class: 'mono', text: list(m.report.block).join(' × ') || UNKNOWN},
  ];
}
function launchTable() {
  const n = (node) => ({node, class: 'n'});
  const heads = [
    term('launch', '#'), 'Kernel', n(term('predicted time', 'Predicted time')),
    n(term('limit', 'Limit')), term('binds', 'Binds'), term('occupancy', 'Occupancy'), n('Count'),
    n('Findings'), 'Grid', 'Block'
  ];
  const rows = LOOK.launches.map((_, index) => launchRow(index));
  const built = table(
      'launches', heads.map((head) => (head instanceof Node ? {node: head} : head)), rows,
      (i) => ({
        'data-launch': i,
        'aria-selected': String(i === state.launch),
        class: i === state.launch ? 'chosen' : '',
        onclick: () => {
          if (i !== state.launch) selectLaunch(i);
        },
      }));
  const notes = [
    'Times are predictions, each with its error; limits are lower bounds. Nothing here was measured on a GPU.'
  ];
  if (LOOK.leftOut > 0)
    notes.push(`${plural(LOOK.leftOut, 'further launch is', 'further launches are')} left out.`);
  if (LOOK.detail < 1)
    notes.push(
        `Of accesses and blocks over time, ${percent(LOOK.detail, 0)} fitted into the page.`);
  return el(
      'div', {},
      el('div', {class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'Table of launches'},
         built),
      el('p', {class: 'note', text: notes.join(' ')}));
}

// ---- bars -------------------------------------------------------------------------------------

// One bar: a label, a track with a filled part, numbers. share null: unknown.
function bar(label, share, numbers, kind) {
  const track = el('div', {class: 'track' + (kind ? ' ' + kind : '')}, el('div', {
                     class: 'filled',
                     style: `width:${isNumber(share) ? Math.min(100, share * 100).toFixed(2) : 0}%`
                   }));
  return el(
      'div', {class: 'bar'}, el('div', {class: 'bar-label'}, label), track,
      el('div', {class: 'bar-numbers', text: numbers}));
}
function limitBars(m) {
  const limits = object(m.report.limits);
  const names = Object.keys(limits);
  if (!names.length) return sentence('There are no limits of this launch.');
  const known =
      names.filter((name) => isNumber(limits[name])).sort((a, b) => limits[b] - limits[a]);
  const unknown = names.filter((name) => !isNumber(limits[name]));
  const used = known.filter((name) => limits[name] > 0);
  const whole = hasTime(m) ? m.predicted.us : used.length ? limits[used[0]] : 1;
  const rows = used.map((name) => {
    const share = limits[name] / whole;
    const numbers = hasTime(m) ? `${time(limits[name])}  ${percent(share)}` : time(limits[name]);
    return bar(term(name), share, numbers, share === limits[used[0]] / whole ? 'binding' : '');
  });
  const parts = [];
  if (hasTime(m)) {
    parts.push(bar(term('predicted time', 'predicted'), 1, predictedWords(m), 'predicted'));
    const largest = used.length ?
        ` The largest is ${used[0]}: ${
            percent(
                limits[used[0]] /
                whole)} of the predicted time; the rest is waiting and start-up.` :
        '';
    rows.push(el('p', {
      class: 'note',
      text: `Each bar is the time that this part would need at its peak: a lower bound.${largest}`
    }));
  } else {
    rows.push(el('p', {
      class: 'note',
      text: `There is no predicted time: ${
          whyNoTime(m)}. Bars are drawn against the largest limit; each is a lower bound.`
    }));
  }
  const idle = known.filter((name) => limits[name] === 0);
  if (idle.length) rows.push(el('p', {class: 'note', text: `Not used: ${idle.join(', ')}.`}));
  for (const name of unknown)
    rows.push(el(
        'p', {class: 'note', text: `${name}: ${limits[name] === null ? UNKNOWN : limits[name]}.`}));
  return el('div', {class: 'bars'}, parts, rows);
}
function stallBars(m) {
  const stalls = Object.entries(object(m.predicted.stalls))
                     .filter(([, share]) => share > 0)
                     .sort((a, b) => b[1] - a[1]);
  if (!stalls.length) return sentence(`Reasons are unknown: ${whyNoTime(m)}.`);
  const shown = stalls.filter(([, share]) => share >= 0.005);
  const rest = stalls.slice(shown.length).reduce((sum, [, share]) => sum + share, 0);
  const most = shown.length ? shown[0][1] : 1;
  const rows = shown.map(
      ([reason, share]) =>
          bar([stallTerm(reason), ' ', el('span', {class: 'dim', text: stallWord(reason)})],
              share / most, percent(share), reason === 'selected' ? 'working' : ''));
  if (rest > 0) rows.push(el('p', {class: 'note', text: `Other reasons: ${percent(rest)}.`}));
  return el(
      'div', {class: 'bars'},
      el('p', {class: 'note'}, 'Shares of the clocks of all ', term('warp', 'warps'),
         ', predicted.'),
      rows);
}

// ---- occupancy, findings ----------------------------------------------------------------------

function facts(pairs) {
  return el(
      'dl', {class: 'facts'},
      pairs.flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]));
}
function occupancyText(m) {
  const occupancy = object(m.report.occupancy), report = m.report;
  const known = (value, text) => (isNumber(value) ? text(value) : UNKNOWN);
  const shared =
      isNumber(report.static_shared) ? report.static_shared + (report.dynamic_shared || 0) : null;
  return facts([
    [term('occupancy', 'Occupancy'), known(occupancy.fraction, (v) => percent(v, 0))],
    ['Limited by', occupancy.limiter || UNKNOWN],
    ['Blocks on an SM', known(occupancy.blocks_per_sm, count)],
    ['Warps on an SM', known(occupancy.warps_per_sm, count)],
    [term('waves', 'Waves'), known(occupancy.waves, digits)],
    ['Blocks of the grid', known(report.blocks, count)],
    ['Registers of a thread', report.registers ? count(report.registers) : UNKNOWN],
    ['Shared memory of a block', shared === null ? UNKNOWN : bytes(shared)],
  ]);
}
function findingsText(m) {
  const findings = list(m.launch.findings);
  const others = LOOK.findings.filter((text) => !findings.includes(text));
  const items = (texts) =>
      el('ol', {class: 'findings mono'}, texts.map((text) => el('li', {text: String(text)})));
  const parts = [
    findings.length ?
        items(findings) :
        sentence(
            'No finding in this launch. Races and unwritten memory are only looked for with the checks switched on (VGPU_CHECK=all).')
  ];
  if (others.length) parts.push(el('h3', {text: 'Of other launches, and of none'}), items(others));
  return el('div', {}, parts);
}

// ---- the costliest lines ----------------------------------------------------------------------

function hotLines(m) {
  const byTime = isNumber(m.total.time) && m.total.time > 0;
  const field = byTime ? 'time' : 'executed';
  const rows = [...m.costsOfLine.entries()]
                   .filter(([, costs]) => costs[field] > 0)
                   .sort((a, b) => b[1][field] - a[1][field])
                   .slice(0, 10);
  if (!rows.length)
    return sentence(
        'No source line is known for this launch: its code has no line numbers, or its files were not found.');
  const cells = (costs, mode) => {
    const heat = heatOf(costs, mode, m.total);
    return heat ? heat.text : '';
  };
  const built = table(
      'hot',
      [
        'Line', 'Source', {node: 'Time', class: 'n'}, {node: 'Instructions', class: 'n'},
        {node: 'Sectors / needed', class: 'n'}, {node: 'Conflicts', class: 'n'}, 'Waits most for'
      ],
      rows.map(([key, costs]) => {
        const [file, line] = key.split(':').map(Number);
        return [
          {
            node: el('button', {
              class: 'link mono',
              text: `${fileName(LOOK.sources[file].path)}:${line}`,
              onclick: () => openLine(file, line)
            })
          },
          {class: 'mono code', text: sourceText(file, line).trim()},
          {class: 'n', text: byTime ? cells(costs, 'time') : UNKNOWN},
          {class: 'n', text: cells(costs, 'instructions')},
          {class: 'n', text: cells(costs, 'sectors')},
          {class: 'n', text: cells(costs, 'conflicts')},
          {text: mainStall(costs.stalls) || ''},
        ];
      }));
  return el(
      'div', {},
      el('div', {class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'Table of hot lines'},
         built),
      el('p', {
        class: 'note',
        text: byTime ?
            'Time is the predicted share of the kernel\'s clocks of warps, issuing and waiting.' :
            `Sorted by instructions: ${whyNoTime(m)}.`
      }));
}
function openLine(file, line) {
  state.file = file;
  showTab('source');
  selectRow('source', line - 1);
  byId('pane-source').focus();
}
