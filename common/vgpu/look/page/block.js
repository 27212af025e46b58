// A block over time: its warps as rows, what each does clock by clock, and a cursor that steps through it.

const blockView = {
  chart: null,
  access: null,
  detail: null,
  built: -1
};

function buildBlockView() { blockView.access = new AccessView('block'); }
function drawBlock() {
  const view = byId('view-block');
  blockView.chart = null;
  blockView.built = state.launch;
  if (!LOOK.launches.length) {
    view.replaceChildren(sentence(noLaunch('there is no block to follow')));
    return;
  }
  const m = model(), warps = object(m.launch.warps), rows = warpSegments(m);
  if (!rows.some((segments) => list(segments).length)) {
    view.replaceChildren(
        el('h2', {}, kernelMark(m)),
        sentence(
            m.launch.warps_why ?
                `There is no block over time: ${m.launch.warps_why}.` :
                `There is no block over time: ${
                    whyNoTime(m)}. It comes from the simulation that predicts the time.`));
    return;
  }
  const chart = new LaneChart({
    label:
        'Warps of the block over time. Left and right arrows step, up and down arrows change the warp.',
    rows: rows.map((segments, w) => ({label: `warp ${w}`, segments})),
    rowHeight:
        [[2, 54], [4, 40], [8, 32], [16, 26]].find(([most]) => rows.length <= most)?.[1] || 18,
    wideLabels: 70,
    words: (row, i) => blockWords(m, row, i),
    place: (clock) => `${count(clock)}`,
    chosen: (row, i) => stepTo(row, i),
  });
  chart.element.id = 'block-chart';
  blockView.chart = chart;
  blockView.detail = el('div', {class: 'detail'});
  view.replaceChildren(
      el('div', {class: 'block-head'},
         el('h2', {}, `Block ${count(warps.block)} of `, kernelMark(m)), el('p', {
           class: 'note',
           text: `${plural(rows.length, 'warp')}, ${count(warps.clocks)} clocks` +
               (isNumber(warps.clock_mhz) && warps.clock_mhz > 0 ?
                    `, ${time(warps.clocks / warps.clock_mhz)} at ${count(warps.clock_mhz)} MHz` :
                    '') +
               '. Simulated: a prediction, not a measurement.' +
               (warps.resolution > 1 ?
                    ` Each mark stands for ${
                        count(
                            warps
                                .resolution)} clocks and shows what the warp issued there, and why it waited only where it issued nothing.` :
                    '')
         })),
      legend(phaseShares(chart.rows, warps.resolution)), chart.element, el('p', {
        class: 'note',
        text:
            'From afar, a column is as high as the share of the time that its phase takes. Closer (+), each step is a mark of its own.'
      }),
      stepButtons(), blockView.detail, blockView.access.element);
  if (state.step >= 0) chart.choose(state.stepWarp, state.step, true);
  drawDetail();
  blockView.access.draw();
}
// The share of the warps' time of each phase, most first. Marks of several clocks have no such shares.
function phaseShares(rows, resolution) {
  const sums = {};
  let all = 0;
  for (const row of rows) {
    for (const {begin, end, kind} of row.segments) {
      sums[kind] = (sums[kind] || 0) + end - begin;
      all += end - begin;
    }
  }
  return Object.entries(sums)
      .sort((a, b) => b[1] - a[1])
      .map(
          ([kind, clocks]) =>
              [kind, (PHASES[kind] || kind) + (resolution > 1 ? '' : ' ' + percent(clocks / all))]);
}
function blockWords(m, row, i) {
  const {begin, end, kind, ptx, reason} = blockView.chart.rows[row].segments[i];
  const what = reason && kind === 'wait' ? `waits (${reason})` : PHASES[kind] || kind;
  const place = ptx >= 0 ? placeOf(m, ptx) : '';
  const text = m.ptx[ptx] ? m.ptx[ptx].t : 'no instruction of PTX';
  return [
    `Warp ${row}`, what, `clock ${count(begin)} to ${count(end)} (${count(end - begin)})`, place,
    text
  ].filter(Boolean)
      .join(' · ');
}
function stepButtons() {
  const chart = blockView.chart;
  const button = (text, tip, act) => el('button', {text, 'aria-label': tip, tip, onclick: act});
  return el(
      'div', {class: 'steps', id: 'steps'},
      button('First', 'To the first step of this warp (Home)', () => chart.choose(chart.row, 0)),
      button('◀ Back', 'One step back (←)', () => chart.step(-1)),
      button('Step ▶', 'One step on (→)', () => chart.step(1)),
      button('Next access', 'To the next recorded access of memory (a)', nextAccess),
      button('To its lines', 'Show this instruction in the source view', () => {
        showTab('source');
        panes.lists.ptx.focus();
      }));
}
const isIssue = (kind) => kind === 'load' || kind === 'store';
// The next step of this warp whose access is recorded.
function nextAccess() {
  const {chart} = blockView, m = model();
  if (!chart) return;
  const {segments} = chart.rows[chart.row];
  for (let i = chart.at + 1; i < segments.length; ++i) {
    if (isIssue(segments[i].kind) && m.instructionsOfPtx.has(segments[i].ptx)) {
      chart.choose(chart.row, i);
      return;
    }
  }
}
// The cursor stands at a step: panes and access view follow.
function stepTo(row, i) {
  const m = model(), {segments} = blockView.chart.rows[row], {ptx} = segments[i];
  Object.assign(state, {step: i, stepWarp: row});
  if (ptx >= 0 && m.ptx[ptx]) {
    state.warp = row;
    state.execution = executionAt(segments, i);
    const {l: line, f: file} = m.ptx[ptx];
    if (line > 0 && file >= 0 && LOOK.sources[file]) state.file = file;
    state.instruction = -1;
    selectRow('ptx', ptx, {warp: state.warp, execution: state.execution});
  } else {
    drawDetail();
  }
}
// How manieth execution of its instruction a step belongs to: waiting for it and working out its address do
// not count.
function executionAt(segments, i) {
  const {ptx} = segments[i];
  let before = 0;
  for (let k = 0; k <= i; ++k)
    if (segments[k].ptx === ptx && isIssue(segments[k].kind)) ++before;
  return Math.max(0, before - 1);
}
// The instruction at the cursor, with its source line, its neighbours and its machine code.
function drawDetail() {
  if (!blockView.detail) return;
  const m = model();
  const i = state.ptx >= 0 ? state.ptx : -1;
  if (i < 0 || !m.ptx[i]) {
    blockView.detail.replaceChildren(sentence(
        'Click on the chart, or step with the arrow keys: the instruction, its line and its access are shown here.'));
    return;
  }
  const {f: file, l: line} = m.ptx[i];
  const known = line > 0 && LOOK.sources[file];
  const around = (texts, at, n) => texts.slice(Math.max(0, at - n), at + n + 1)
                                       .map((text, k) => [text, Math.max(0, at - n) + k === at]);
  const listing = (title, lines) =>
      el('div', {class: 'listing'}, el('h3', {text: title}),
         lines.length ? el('pre', {}, lines.map(([text, here]) => el('span', {
                                                  class: here ? 'here' : '',
                                                  text: (here ? '▸ ' : '  ') + text + '\n'
                                                }))) :
                        sentence(UNKNOWN));
  const sass = (m.sassOfPtx.get(i) || []).slice(0, 5).map((j) => [m.sass[j].t, true]);
  blockView.detail.replaceChildren(
      listing(
          known ? placeOf(m, i) : 'Source line unknown',
          known ? around(LOOK.sources[file].lines, line - 1, 2) : []),
      listing('PTX', around(m.ptx.map((one) => one.t), i, 2)),
      listing('Machine code', m.sass ? sass : []));
}
