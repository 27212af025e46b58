// One access of a warp as it happened: its 32 lanes above the sectors or banks that they touch.

const LANES = 32, PICTURE = 992, LANE_WIDTH = PICTURE / LANES;

// Offsets of the 32 lanes, null where a lane is not active.
function laneOffsets(access) {
  const mask = access.m >>> 0;
  const active = (lane) => ((mask >>> lane) & 1) === 1;
  return Array.from({length: LANES}, (_, lane) => {
    if (!active(lane) || access.o === null || access.o === undefined) return null;
    if (Array.isArray(access.o)) return isNumber(access.o[lane]) ? access.o[lane] : null;
    return access.o.first + access.o.step * lane;
  });
}
const allocationOf = (access, lane) => {
  const name = Array.isArray(access.a) ? access.a[lane] : access.a;
  return name === null || name === undefined ? 'memory without a name' : String(name);
};

// The sectors that an access touches, by address: [{allocation, sector, used: [[from, to], ...], lanes}].
function sectorsOf(access, size) {
  const found = new Map();
  laneOffsets(access).forEach((offset, lane) => {
    if (offset === null) return;
    const allocation = allocationOf(access, lane);
    for (let s = Math.floor(offset / 32); s * 32 < offset + size; ++s) {
      const key = allocation + '\0' + s;
      if (!found.has(key)) found.set(key, {allocation, sector: s, used: [], lanes: []});
      const from = Math.max(offset, s * 32) - s * 32,
            to = Math.min(offset + size, s * 32 + 32) - s * 32;
      found.get(key).used.push([from, to]);
      found.get(key).lanes.push(lane);
    }
  });
  return [...found.values()].sort(
      (a, b) =>
          (a.allocation < b.allocation     ? -1 :
               a.allocation > b.allocation ? 1 :
                                             a.sector - b.sector));
}
// Bytes of a sector that some lane asks for.
function usedBytes(sector) {
  const touched = new Uint8Array(32);
  for (const [from, to] of sector.used) touched.fill(1, from, to);
  return touched.reduce((sum, one) => sum + one, 0);
}
// The words of each bank: 32 lists of [{word, lanes}].
function banksOf(access, size) {
  const banks = Array.from({length: 32}, () => []);
  laneOffsets(access).forEach((offset, lane) => {
    if (offset === null) return;
    for (let word = Math.floor(offset / 4); word * 4 < offset + size; ++word) {
      const bank = banks[word % 32];
      let entry = bank.find((one) => one.word === word);
      if (!entry) bank.push((entry = {word, lanes: []}));
      entry.lanes.push(lane);
    }
  });
  return banks;
}

class AccessView {
  constructor(name) {
    this.hatch = 'unused-' + name;
    const slider = (name, label, set) => {
      const input = el('input', {
        type: 'range',
        min: 0,
        max: 0,
        value: 0,
        class: name,
        oninput: () => set(Number(input.value))
      });
      const output = el('output');
      this[name] = {
        input,
        output,
        box: el('label', {class: 'slider'}, el('span', {text: label}), input, output)
      };
      return this[name].box;
    };
    this.title = el('h2', {}, 'Access');
    this.choice = el('select', {
      class: 'access-choice',
      'aria-label': 'Instruction',
      onchange: () => {
        const m = model();
        state.instruction = Number(this.choice.value);
        state.ptx = m.instructions[state.instruction].p;
        nearestAccess(m);
        tell('line');
      }
    });
    const sliders =
        el('div', {class: 'sliders'},
           slider('executionSlider', 'Execution', (at) => this.setExecution(at)),
           slider('warpSlider', 'Warp', (at) => this.setWarp(at)));
    this.words = el('p', {class: 'access-words'});
    this.note = el('p', {class: 'note access-note'});
    this.picture = el('div', {class: 'access-picture scroll'});
    this.lane = el('p', {class: 'status access-lane', 'aria-live': 'polite'});
    this.controls = el('div', {class: 'access-head'}, this.title, this.choice, sliders);
    this.element =
        el('section', {class: 'access', 'aria-label': 'Access of the chosen line'}, this.controls,
           this.words, this.note, this.picture, this.lane);
  }
  focus() {
    const lanes = this.picture.querySelector('[tabindex]');
    if (lanes) lanes.focus();
  }
  warps(m) {
    const warps = m.recorded.get(state.instruction);
    return warps ? [...warps.keys()].sort((a, b) => a - b) : [];
  }
  setWarp(at) {
    const m = model();
    state.wanted = null;
    state.warp = this.warps(m)[at];
    nearestAccess(m);
    tell('access');
  }
  setExecution(at) {
    state.wanted = null;
    state.execution = model().recorded.get(state.instruction).get(state.warp)[at].k;
    tell('access');
  }
  draw() {
    const m = model(), candidates = accessesOfSelection(m);
    const access = shownAccess(m);
    this.choice.hidden = candidates.length < 2;
    this.choice.replaceChildren(...candidates.map(
        (i) => el('option', {
          value: i,
          text: `${m.ptx[m.instructions[i].p] ? m.ptx[m.instructions[i].p].t : 'an instruction'}`,
          selected: i === state.instruction
        })));
    for (const part of [this.executionSlider.box, this.warpSlider.box, this.lane, this.note])
      part.hidden = !access;
    if (!access) {
      this.words.replaceChildren(this.why(m));
      this.picture.replaceChildren();
      return;
    }
    this.drawSliders(m);
    const {wanted} = state;
    const other = wanted && (wanted.warp !== state.warp || wanted.execution !== state.execution);
    this.note.textContent = other ?
        `The step's own access, execution ${wanted.execution + 1} of warp ${
            wanted.warp}, was not recorded. The nearest is shown.` :
        '';
    const instruction = m.instructions[state.instruction];
    this.lane.hidden = Array.isArray(access.rows);
    if (Array.isArray(access.rows))
      this.drawBulk(access);
    else if (instruction.space === 'shared')
      this.drawShared(access, instruction);
    else
      this.drawGlobal(access, instruction);
    this.drawLane();
  }
  why(m) {
    const accesses = object(m.launch.accesses);
    if (!m.recorded.size)
      return accesses.why || 'No access of memory was recorded for this launch.';
    if (state.row < 0)
      return 'Choose a line with ◆ to see its 32 lanes against sectors of global memory or banks of shared memory.';
    if (!accessesOfSelection(m).length) return 'No access of memory was recorded for this line.';
    return `This access was executed, and not recorded: ${
        plural(
            accesses.left_out || 0, 'access was',
            'accesses were')} left out to keep the page small.`;
  }
  drawSliders(m) {
    const warps = this.warps(m), executions = m.recorded.get(state.instruction).get(state.warp);
    const set = ({input, output}, length, at, words) => {
      input.max = length - 1;
      input.value = at;
      input.disabled = length < 2;
      output.textContent = words;
      input.setAttribute('aria-valuetext', words);
    };
    set(this.warpSlider, warps.length, warps.indexOf(state.warp),
        `${state.warp}` +
            (warps.length > 1 ? ` of ${warps[0]} to ${warps[warps.length - 1]}` : ''));
    const at = executions.findIndex((access) => access.k === state.execution);
    set(this.executionSlider, executions.length, at,
        `${state.execution + 1}` +
            (executions.length > 1 ? ` of ${executions[executions.length - 1].k + 1}` : ''));
  }
  // What happened, in a sentence with the numbers.
  sayGlobal(access, instruction, sectors) {
    const used = sectors.reduce((sum, sector) => sum + usedBytes(sector), 0);
    const moved = isNumber(access.s) ? access.s : sectors.length, needed = Math.ceil(used / 32);
    const active = laneOffsets(access).filter((offset) => offset !== null).length;
    const names = [...new Set(sectors.map((sector) => sector.allocation))].join(', ');
    this.words.replaceChildren(
        `${active} of 32 lanes ${verbOf(instruction)} ${bytes(instruction.bytes)} each of `,
        el('b', {text: names}), ': ',
        el('strong', {class: 'sectors-moved', text: plural(moved, 'sector')}), ' moved, ',
        el('strong', {text: `${needed}`}), ' needed',
        needed > 0 ? ` (${times(moved / needed)}); ${
                         percent(used / (32 * moved), 0)} of the bytes moved are used.` :
                     '.',
        isNumber(access.v) ?
            ` Into shared memory: ${plural(access.v, 'wavefront')}, ${count(access.d)} needed.` :
            '');
  }
  sayShared(access, instruction, banks) {
    const where = isNumber(access.of) ? `the shared memory of block ${access.of}` : 'shared memory';
    const most = Math.max(...banks.map((bank) => bank.length));
    const active = laneOffsets(access).filter((offset) => offset !== null).length;
    const extra = isNumber(access.v) && isNumber(access.d) ? access.v - access.d : null;
    this.words.replaceChildren(
        instruction.kind === 'operand' ?
            `The matrix unit reads ${active} pieces of ${bytes(instruction.bytes)} of ${where}: ` :
            `${active} of 32 lanes ${verbOf(instruction)} ${bytes(instruction.bytes)} each of ${
                where}: `,
        el('strong', {
          class: 'wavefronts',
          text: isNumber(access.v) ? plural(access.v, 'wavefront') : 'wavefronts ' + UNKNOWN
        }),
        `, ${isNumber(access.d) ? count(access.d) : UNKNOWN} needed`,
        extra === null ? '' :
            extra > 0  ? `, so ${plural(extra, 'is a bank conflict', 'are bank conflicts')}` :
                         ', no bank conflict',
        `. The fullest bank serves ${plural(most, 'word')}.`);
  }
  // The row of lanes on top.
  lanesRow(offsets, parts) {
    offsets.forEach((offset, lane) => {
      parts.push(svg(
          'g', {
            class: 'lane' + (offset === null ? ' off' : ''),
            'data-lane': lane,
            onmouseenter: () => this.setLane(lane),
            onclick: () => this.setLane(lane)
          },
          svg('rect',
              {x: lane * LANE_WIDTH + 1.5, y: 16, width: LANE_WIDTH - 3, height: 24, rx: 3}),
          svg('text',
              {x: (lane + 0.5) * LANE_WIDTH, y: 33, 'text-anchor': 'middle', text: String(lane)})));
    });
  }
  figure(height, label, parts, heads) {
    const words = heads.map(([y, text]) => svg('text', {class: 'tick', x: 1, y, text}));
    const picture =
        svg('svg', {
          class: 'lanes-picture',
          style: `--hatch: url(#${this.hatch})`,
          viewBox: `0 0 ${PICTURE} ${height}`,
          tabindex: '0',
          role: 'application',
          'aria-label': label,
          onkeydown: (event) => {
            const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
            const to = step          ? state.lane + step :
                event.key === 'Home' ? 0 :
                event.key === 'End'  ? 31 :
                                       null;
            if (to === null || event.ctrlKey || event.metaKey || event.altKey) return;
            event.preventDefault();
            event.stopPropagation();
            this.setLane(Math.max(0, Math.min(31, to)));
          }
        },
            svg('defs', {},
                svg('pattern', {
                  id: this.hatch,
                  width: 5,
                  height: 5,
                  patternUnits: 'userSpaceOnUse',
                  patternTransform: 'rotate(45)'
                },
                    svg('line', {x1: 0, y1: 0, x2: 0, y2: 5, class: 'hatch'}))),
            words, parts);
    this.picture.replaceChildren(picture);
  }
  drawGlobal(access, instruction) {
    const offsets = laneOffsets(access), sectors = sectorsOf(access, instruction.bytes), parts = [];
    this.sayGlobal(access, instruction, sectors);
    const isNext = (i) => i > 0 && sectors[i].allocation === sectors[i - 1].allocation &&
        sectors[i].sector === sectors[i - 1].sector + 1;
    const gaps = sectors.filter((_, i) => i > 0 && !isNext(i)).length;
    const gap = Math.min(10, 200 / Math.max(1, gaps));
    const width = Math.min(4 * LANE_WIDTH, (PICTURE - gaps * gap) / Math.max(1, sectors.length));
    let x = (PICTURE - gaps * gap - width * sectors.length) / 2;
    const top = 112, height = 34, lines = [], boxes = [];
    let group = null;
    const groups = [];
    sectors.forEach((sector, i) => {
      if (i > 0 && !isNext(i)) x += gap;
      if (!group || !isNext(i) || sector.sector % 4 === 0)
        groups.push((group = {x, width: 0, sector}));
      group.width += width;
      boxes.push(svg('rect', {
        class: 'sector',
        'data-lanes': sector.lanes.join(' '),
        x: x + 0.5,
        y: top,
        width: Math.max(1, width - 1),
        height,
        tip:
            `${sector.allocation}, sector ${sector.sector} (bytes ${count(sector.sector * 32)} to ${
                count(sector.sector * 32 + 31)}): ${usedBytes(sector)} of 32 bytes used`
      }));
      sector.used.forEach(([from, to], k) => {
        const u0 = x + 0.5 + from / 32 * (width - 1), u1 = x + 0.5 + to / 32 * (width - 1),
              lane = sector.lanes[k];
        boxes.push(svg('rect', {
          class: 'used',
          'data-lane': lane,
          x: u0,
          y: top,
          width: Math.max(0.8, u1 - u0),
          height
        }));
        lines.push(svg('path', {
          class: 'thread',
          'data-lane': lane,
          d: curve((lane + 0.5) * LANE_WIDTH, 40, (u0 + u1) / 2, top)
        }));
      });
      x += width;
    });
    this.lanesRow(offsets, parts);
    parts.unshift(...lines);
    parts.push(...boxes, ...this.sectorLabels(groups, sectors, top + height));
    this.figure(
        top + height + 30, 'Lanes and sectors. Arrow keys go from lane to lane.', parts,
        [[11, 'lanes of the warp'], [top - 6, '']]);
  }
  // Where the sectors lie: a bracket for each 128-byte line, a label where there is room.
  sectorLabels(groups, sectors, y) {
    const parts = [], several = new Set(sectors.map((sector) => sector.allocation)).size > 1;
    const text = ({sector}) =>
        (several ? sector.allocation + ' ' : '') + '+' + count(sector.sector * 32);
    const longest = Math.max(0, ...groups.map((group) => text(group).length)) * 6.6 + 8;
    const every = Math.ceil(longest * groups.length / PICTURE);
    groups.forEach((group, i) => {
      const wide = Math.max(1, group.width - 2);
      parts.push(svg('path', {class: 'bracket', d: `M${group.x + 1} ${y + 3}v4h${wide}v-4`}));
      if (i % every) return;
      const half = text(group).length * 3.3;
      const x = Math.min(Math.max(group.x + group.width / 2, half), PICTURE - half);
      parts.push(
          svg('text', {class: 'tick', x, y: y + 21, 'text-anchor': 'middle', text: text(group)}));
    });
    return parts;
  }
  // A copy of the copy engine: one thread asks for it, rows of bytes move.
  drawBulk(access) {
    const rows = access.rows, most = Math.max(1, ...rows.map(([, size]) => size)), parts = [];
    const all = isNumber(access.row_count) ? access.row_count : rows.length;
    this.words.replaceChildren(
        'One thread asks the copy engine for ', el('b', {text: bytes(access.bytes)}), ' of ',
        el('b', {text: allocationOf(access, 0)}), ` in ${plural(all, 'row')}: `,
        el('strong', {class: 'sectors-moved', text: plural(access.s, 'sector')}),
        ' moved. No other lane takes part.');
    rows.forEach(([offset, size], i) => {
      const y = 8 + i * 26, width = Math.max(2, size / most * (PICTURE - 300));
      parts.push(
          svg('text', {class: 'lane-word', x: 0, y: y + 14, text: `+${count(offset)}`}),
          svg('rect', {class: 'used', x: 120, y, width, height: 18}),
          svg('text', {class: 'tick', x: 128 + width, y: y + 14, text: bytes(size)}));
    });
    if (all > rows.length) {
      const text = `and ${plural(all - rows.length, 'more row')}`;
      parts.push(svg('text', {class: 'tick', x: 120, y: 22 + rows.length * 26, text}));
    }
    const height = 16 + (rows.length + (all > rows.length ? 1 : 0)) * 26;
    this.picture.replaceChildren(
        svg('svg', {
          class: 'lanes-picture',
          viewBox: `0 0 ${PICTURE} ${height}`,
          role: 'img',
          'aria-label': 'Rows of the copy'
        },
            parts));
  }
  drawShared(access, instruction) {
    const offsets = laneOffsets(access), banks = banksOf(access, instruction.bytes), parts = [],
          lines = [];
    this.sayShared(access, instruction, banks);
    const most = Math.max(1, ...banks.map((bank) => bank.length));
    const cell = most > 16 ? 9 : most > 8 ? 12 : 18, top = 112, bottom = top + most * cell;
    banks.forEach((words, bank) => {
      const x = bank * LANE_WIDTH;
      parts.push(svg('rect', {
        class: 'bank',
        x: x + 1.5,
        y: top,
        width: LANE_WIDTH - 3,
        height: bottom - top,
        tip: `bank ${bank}: ${plural(words.length, 'word')}`
      }));
      words.forEach(({word, lanes}, level) => {
        const y = top + level * cell;
        parts.push(svg('rect', {
          class: 'used word' + (level >= (access.d || 1) ? ' more' : ''),
          'data-lanes': lanes.join(' '),
          x: x + 2.5,
          y: y + 1,
          width: LANE_WIDTH - 5,
          height: cell - 2,
          tip: `bank ${bank}, word at byte ${count(word * 4)}: ${
              lanes.length > 1 ? 'lanes' : 'lane'} ${ranges(lanes)}`
        }));
        if (cell >= 12)
          parts.push(svg('text', {
            class: 'in-word' + (ranges(lanes).length > 3 && lanes.length < 3 ? ' long' : ''),
            'data-lanes': lanes.join(' '),
            x: x + LANE_WIDTH / 2,
            y: y + cell / 2 + 4,
            'text-anchor': 'middle',
            text: lanes.length > 2 ? `${lanes.length}×` : ranges(lanes)
          }));
        for (const lane of lanes) {
          if (word === Math.floor(offsets[lane] / 4))
            lines.push(svg('path', {
              class: 'thread',
              'data-lane': lane,
              d: curve((lane + 0.5) * LANE_WIDTH, 40, x + LANE_WIDTH / 2, top)
            }));
        }
      });
      parts.push(svg('text', {
        class: 'tick',
        x: x + LANE_WIDTH / 2,
        y: bottom + 14,
        'text-anchor': 'middle',
        text: String(bank)
      }));
    });
    this.lanesRow(offsets, parts);
    this.figure(
        bottom + 34, 'Lanes and banks. Arrow keys go from lane to lane.', [...lines, ...parts], [
          [11, 'lanes of the warp'],
          [bottom + 30, 'banks of shared memory; a cell is a word, with the lanes that want it']
        ]);
  }
  setLane(lane) {
    state.lane = lane;
    this.drawLane();
  }
  drawLane() {
    const m = model(), access = shownAccess(m), {lane} = state;
    if (!access) return;
    for (const mark of this.picture.querySelectorAll('.here')) mark.classList.remove('here');
    for (const mark of this.picture.querySelectorAll('[data-lane], [data-lanes]')) {
      const lanes = mark.dataset.lanes ? mark.dataset.lanes.split(' ') : [mark.dataset.lane];
      if (lanes.includes(String(lane))) mark.classList.add('here');
    }
    this.lane.textContent = laneWords(m, access, lane);
  }
}
const verbOf = ({kind}) =>
    ({load: 'load', store: 'store', atomic: 'change', async: 'copy', operand: 'read'}[kind] ||
     'touch');
function laneWords(m, access, lane) {
  const instruction = m.instructions[state.instruction], offset = laneOffsets(access)[lane];
  const parts = [`Lane ${lane}`];
  const block = list(m.report.block), thread = state.warp * 32 + lane;
  if (block.length === 3) {
    const [x, y] = block;
    parts.push(
        `thread (${thread % x}, ${Math.floor(thread / x) % y}, ${Math.floor(thread / (x * y))})`);
  }
  if (offset === null) return parts.concat('not active in this access').join(' · ');
  if (instruction.space === 'shared') {
    parts.push(
        `byte ${count(offset)} of shared memory (0x${offset.toString(16)})`,
        `bank ${Math.floor(offset / 4) % 32}` +
            (instruction.bytes > 4 ?
                 ` to ${Math.floor((offset + instruction.bytes - 1) / 4) % 32}` :
                 ''));
  } else {
    parts.push(
        `${allocationOf(access, lane)} + ${count(offset)} bytes (0x${offset.toString(16)})`,
        `sector ${count(Math.floor(offset / 32))}`);
    if (Array.isArray(access.to) && isNumber(access.to[lane]))
      parts.push(`to byte ${count(access.to[lane])} of shared memory`);
  }
  return parts.concat(bytes(instruction.bytes)).join(' · ');
}
const curve = (x0, y0, x1, y1) =>
    `M${x0} ${y0}C${x0} ${(y0 + y1) / 2 + 8} ${x1} ${(y0 + y1) / 2 - 8} ${x1.toFixed(2)} ${y1}`;
// [0, 1, 2, 5] as "0-2 5".
function ranges(lanes) {
  const parts = [];
  for (const lane of lanes) {
    const last = parts[parts.length - 1];
    if (last && lane === last[1] + 1)
      last[1] = lane;
    else
      parts.push([lane, lane]);
  }
  return parts
      .map(
          ([from, to]) =>
              (from === to ? `${from}` :
                   to === from + 1 ? `${from} ${to}` :
                                     `${from}–${to}`))
      .join(' ');
}
