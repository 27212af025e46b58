// The data of the page, and what is worked out of it once for each launch.

const state = {
  tab: 'summary',
  launch: 0,
  heat: 'time',
  file: -1,  // which source file the source pane shows
  pane: 'source',
  row: -1,          // the selected line: of which pane, and which row of it
  ptx: -1,          // the instruction that access and block view show
  instruction: -1,  // its place in accesses.instructions, -1: none recorded
  warp: 0,
  execution: 0,
  lane: 0,  // in the access that is shown
  step: -1,
  stepWarp: 0,  // in the block over time
  other: 1,     // the launch to compare with
};

const listeners = new Map();
function on(topic, listener) {
  if (!listeners.has(topic)) listeners.set(topic, []);
  listeners.get(topic).push(listener);
}
function tell(topic) {
  for (const listener of listeners.get(topic) || []) listener();
}

const list = (value) => (Array.isArray(value) ? value : []);
const object = (value) =>
    (value && typeof value === 'object' && !Array.isArray(value) ? value : {});

// What the page is about. Never throws: `trouble` says in a sentence what is wrong with the data.
function readData() {
  let data = null, trouble = '';
  try {
    data = JSON.parse(byId('look-data').textContent);
  } catch (error) {
    trouble = 'The data of this page are damaged: ' + error.message;
  }
  data = object(data);
  if (!trouble && data.version !== undefined && data.version !== 1) {
    trouble = `The data have version ${data.version}, and this page reads version 1.`;
  }
  return {
    trouble,
    program: data.program || 'a program',
    arguments: list(data.arguments),
    toolkit: data.toolkit || null,
    device: object(data.device),
    sources: list(data.sources),
    launches: trouble ? [] : list(data.launches).map(object),
    findings: list(data.findings),
    detail: isNumber(data.detail) ? data.detail : 1,
    leftOut: data.launches_left_out || 0,
    timeline: data.timeline && Array.isArray(data.timeline.traceEvents) ? data.timeline : null,
  };
}
const LOOK = readData();
// Why a view has nothing to show.
const noLaunch = (so) => LOOK.trouble || `The program launched no kernel, so ${so}.`;

// ---- a launch ---------------------------------------------------------------------------------

const COST_FIELDS =
    ['executed', 'threads', 'requests', 'sectors', 'ideal', 'wavefronts', 'conflicts', 'time'];
function addCosts(sum, costs) {
  for (const field of COST_FIELDS) {
    if (isNumber(costs[field])) sum[field] = (sum[field] || 0) + costs[field];
  }
  for (const [reason, clocks] of Object.entries(object(costs.stalls))) {
    if (!sum.stalls) sum.stalls = {};
    sum.stalls[reason] = (sum.stalls[reason] || 0) + (clocks || 0);
  }
  return sum;
}
const lineKey = (file, line) => file + ':' + line;
function push(map, key, value) {
  if (!map.has(key)) map.set(key, []);
  map.get(key).push(value);
}

const models = new Map();
function model(index = state.launch) {
  if (!models.has(index)) models.set(index, makeModel(object(LOOK.launches[index])));
  return models.get(index);
}
function makeModel(launch) {
  const ptx = list(launch.ptx), sass = Array.isArray(launch.sass) ? launch.sass : null;
  const m = {
    launch,
    ptx,
    sass,
    report: object(launch.report),
    predicted: object(object(launch.report).predicted),
    ptxOfLine: new Map(),
    sassOfPtx: new Map(),
    costsOfLine: new Map(),
    total: {},
    files: [],
    instructions: list(object(launch.accesses).instructions),
    instructionsOfPtx: new Map(),
    recorded: new Map(),
  };
  const hits = new Map();
  ptx.forEach((instruction, i) => {
    if (instruction.l > 0 && instruction.f >= 0 && LOOK.sources[instruction.f]) {
      const key = lineKey(instruction.f, instruction.l);
      push(m.ptxOfLine, key, i);
      if (Array.isArray(LOOK.sources[instruction.f].lines))
        hits.set(instruction.f, (hits.get(instruction.f) || 0) + 1);
      if (instruction.c) {
        if (!m.costsOfLine.has(key)) m.costsOfLine.set(key, {});
        addCosts(m.costsOfLine.get(key), instruction.c);
      }
    }
    if (instruction.c) addCosts(m.total, instruction.c);
  });
  // The file where the kernel begins comes first, then those with most of its instructions.
  const [own] = hits.keys();
  m.files = [...hits.keys()].sort((a, b) => (b === own) - (a === own) || hits.get(b) - hits.get(a));
  list(sass).forEach((instruction, j) => push(m.sassOfPtx, instruction.p, j));
  m.instructions.forEach((instruction, i) => push(m.instructionsOfPtx, instruction.p, i));
  for (const access of list(object(launch.accesses).list)) {
    if (!m.recorded.has(access.i)) m.recorded.set(access.i, new Map());
    push(m.recorded.get(access.i), access.w, access);
  }
  for (const warps of m.recorded.values()) {
    for (const accesses of warps.values()) accesses.sort((a, b) => a.k - b.k);
  }
  return m;
}

const launchName = (index) =>
    `${index + 1}  ${object(LOOK.launches[index]).kernel || 'a kernel without a name'}`;
const fileName = (path) => String(path).split('/').pop();
// "kernel.cuh:42", "" where the line is not known.
function placeOf(m, i) {
  const instruction = m.ptx[i];
  const source = instruction && instruction.l > 0 ? LOOK.sources[instruction.f] : null;
  return source ? `${fileName(source.path)}:${instruction.l}` : '';
}
function sourceText(file, line) {
  const source = LOOK.sources[file];
  return source ? list(source.lines)[line - 1] || '' : '';
}
// The segments {begin, end, kind, ptx: index, reason, label} of each warp in the block over time.
// In the data they are written out, or packed as numbers: length, kind, PTX, reason, one segment
// after the other from the warp's clock `begin` on.
function warpSegments(m) {
  if (m.segments) return m.segments;
  const warps = object(m.launch.warps), {packed, kinds} = warps, reasons = list(warps.reasons);
  const segment = (begin, end, kind, ptx, reason) => ({
    begin,
    end,
    kind,
    ptx,
    reason,
    label: kind !== 'wait' ? kind :
        reason             ? stallWord(reason) :
                             'waits'
  });
  const unpacked = (numbers, w) => {
    const segments = [];
    let clock = list(warps.begin)[w] || 0;
    for (let at = 0; at + 3 < numbers.length; at += 4) {
      const end = clock + numbers[at], kind = kinds[numbers[at + 1]];
      if (kind)
        segments.push(segment(clock, end, kind, numbers[at + 2], reasons[numbers[at + 3]] || ''));
      clock = end;
    }
    return segments;
  };
  m.segments = Array.isArray(packed) ?
      packed.map(unpacked) :
      list(warps.warps).map((all) => list(all).map(([
                                                     b, e, kind, ptx, reason
                                                   ]) => segment(b, e, kind, ptx, reason || '')));
  return m.segments;
}
const hasTime = (m) => isNumber(m.predicted.us);
// "7.25 µs ±25 %", or "unknown".
function predictedWords(m) {
  if (!hasTime(m)) return UNKNOWN;
  return time(m.predicted.us) +
      (isNumber(m.predicted.error) ? ` ±${percent(m.predicted.error, 0)}` : ', error unknown');
}
const whyNoTime = (m) =>
    m.report.failed ? 'the launch failed' : m.predicted.why || 'nobody asked for a prediction';

// ---- the selected line ------------------------------------------------------------------------

// What belongs to a row of a pane: {line: "file:line" or null, ptx: [...], sass: [...]}.
function linked(m, pane, row) {
  const none = {line: null, ptx: [], sass: []};
  if (row < 0) return none;
  let ptx = [], line = null;
  if (pane === 'source') {
    line = lineKey(state.file, row + 1);
    ptx = m.ptxOfLine.get(line) || [];
  } else {
    const i = pane === 'ptx' ? row : list(m.sass)[row] ? m.sass[row].p : -1;
    const instruction = m.ptx[i];
    if (!instruction) return pane === 'sass' ? {...none, sass: [row]} : none;
    ptx = [i];
    if (instruction.l > 0 && instruction.f >= 0) line = lineKey(instruction.f, instruction.l);
  }
  const sass = pane === 'sass' ? [row] : ptx.flatMap((i) => m.sassOfPtx.get(i) || []);
  return {line, ptx, sass};
}

// The accesses that can be shown for the selected line, those that cost most first.
function accessesOfSelection(m) {
  const instructions =
      linked(m, state.pane, state.row).ptx.flatMap((i) => m.instructionsOfPtx.get(i) || []);
  const excess = (i) => {
    const costs = object(object(m.ptx[m.instructions[i].p]).c);
    return (costs.sectors || 0) - (costs.ideal || 0) + (costs.conflicts || 0);
  };
  return instructions.sort((a, b) => excess(b) - excess(a) || a - b);
}

function selectLaunch(index) {
  if (index < 0 || index >= LOOK.launches.length) return;
  state.launch = index;
  const m = model();
  Object.assign(state, {
    file: m.files.length ? m.files[0] : -1,
    pane: 'source',
    row: -1,
    ptx: -1,
    instruction: -1,
    warp: 0,
    execution: 0,
    lane: 0,
    step: -1,
    stepWarp: 0
  });
  if (state.other === index || !LOOK.launches[state.other]) {
    state.other = index + 1 < LOOK.launches.length ? index + 1 : Math.max(0, index - 1);
  }
  tell('launch');
  tell('line');
}
// Selects a row of a pane. `wanted` is the access that a step of the block over time asks for.
function selectRow(pane, row, wanted = null) {
  const m = model();
  Object.assign(state, {pane, row, wanted});
  const links = linked(m, pane, row);
  const file = links.line ? Number(links.line.split(':')[0]) : -1;
  if (pane !== 'source' && m.files.includes(file)) state.file = file;
  const candidates = accessesOfSelection(m);
  if (!candidates.includes(state.instruction)) {
    state.instruction = candidates.length ? candidates[0] : -1;
    nearestAccess(m);
  }
  state.ptx = state.instruction >= 0 ? m.instructions[state.instruction].p :
      links.ptx.length               ? links.ptx[0] :
                                       -1;
  tell('line');
}
// Where nothing is recorded for the warp or execution that was shown, the nearest is.
function nearestAccess(m) {
  const warps = m.recorded.get(state.instruction);
  if (!warps) return;
  if (!warps.has(state.warp)) state.warp = Math.min(...warps.keys());
  const accesses = warps.get(state.warp);
  if (!accesses.some((access) => access.k === state.execution)) {
    let best = accesses[0];
    for (const access of accesses) {
      if (Math.abs(access.k - state.execution) < Math.abs(best.k - state.execution)) best = access;
    }
    state.execution = best.k;
  }
}
function shownAccess(m) {
  const warps = m.recorded.get(state.instruction);
  const accesses = warps ? warps.get(state.warp) : null;
  return accesses ? accesses.find((access) => access.k === state.execution) || null : null;
}
