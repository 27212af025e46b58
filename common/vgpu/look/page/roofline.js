// The roofline: each launch a numbered point under the roofs of the device.

const ROOF = {
  width: 560,
  height: 320,
  left: 72,
  right: 24,
  top: 14,
  bottom: 44
};

// Where a launch stands: {x: operations a byte, y: operations a second}, or {why}.
function roofPoint(m) {
  const {flops, dram_bytes: moved} = m.launch;
  if (!hasTime(m)) return {why: 'no predicted time'};
  if (!isNumber(flops) || flops <= 0) return {why: 'no arithmetic counted'};
  if (!isNumber(moved) || moved <= 0) return {why: 'no bytes of DRAM counted'};
  return {x: flops / moved, y: flops / (m.predicted.us * 1e-6)};
}
const decades = (from, to) => {
  const all = [];
  for (let e = Math.floor(Math.log10(from)); e <= Math.ceil(Math.log10(to)); ++e) all.push(10 ** e);
  return all;
};
function drawRoofline() {
  const peaks = object(LOOK.device.peaks);
  const points = LOOK.launches.map((_, i) => ({i, ...roofPoint(model(i))}));
  const drawn = points.filter((p) => !p.why);
  const left = points.filter((p) => p.why);
  if (!isNumber(peaks.DRAM))
    return sentence('The peaks of this device are unknown, so there is no roofline.');
  const parts = [];
  if (drawn.length)
    parts.push(roofChart(peaks, drawn));
  else
    parts.push(sentence('No launch can be drawn.'));
  const notes = left.map((p) => `${p.i + 1} (${p.why})`);
  if (drawn.length)
    parts.push(el('p', {
      class: 'note',
      text:
          'Numbers are those of the table; the chosen launch is filled. Times are predicted, so heights have the same error.'
    }));
  if (notes.length) parts.push(el('p', {class: 'note', text: `Not drawn: ${notes.join(', ')}.`}));
  return el('div', {}, parts);
}
function roofScales(peaks, points) {
  const tops = [peaks.fp32, peaks.tensor, peaks.wgmma].filter(isNumber);
  const ridge = Math.max(...tops, ...points.map((p) => p.y)) / peaks.DRAM;
  const x0 = 10 ** Math.floor(Math.log10(Math.min(0.5, ...points.map((p) => p.x))));
  const x1 = 10 ** Math.ceil(Math.log10(Math.max(ridge * 2, ...points.map((p) => p.x * 1.5))));
  const y0 = 10 ** Math.floor(Math.log10(Math.min(...points.map((p) => p.y)) / 1.5));
  const y1 = 10 ** Math.ceil(Math.log10(Math.max(...tops, ...points.map((p) => p.y)) * 1.3));
  const {width, height, left, right, top, bottom} = ROOF;
  const x = (v) => left + (Math.log(v / x0) / Math.log(x1 / x0)) * (width - left - right);
  const y = (v) =>
      height - bottom - (Math.log(v / y0) / Math.log(y1 / y0)) * (height - top - bottom);
  return {x, y, x0, x1, y0, y1};
}
function roofChart(peaks, points) {
  const {width, height, left, right, top, bottom} = ROOF;
  const s = roofScales(peaks, points);
  const parts = [];
  for (const v of decades(s.x0, s.x1)) {
    parts.push(svg('line', {class: 'grid', x1: s.x(v), x2: s.x(v), y1: top, y2: height - bottom}));
    parts.push(svg('text', {
      class: 'tick',
      x: s.x(v),
      y: height - bottom + 19,
      'text-anchor': 'middle',
      text: digits(v)
    }));
  }
  for (const v of decades(s.y0, s.y1)) {
    parts.push(svg('line', {class: 'grid', x1: left, x2: width - right, y1: s.y(v), y2: s.y(v)}));
    parts.push(svg('text', {
      class: 'tick',
      x: left - 6,
      y: s.y(v) + 4,
      'text-anchor': 'end',
      text: v >= 1e15 ? `${digits(v / 1e15)} P` : rate(v, '').trim()
    }));
  }
  parts.push(svg('text', {
    class: 'axis',
    x: (left + width - right) / 2,
    y: height - 8,
    'text-anchor': 'middle',
    text: 'operations a byte of DRAM'
  }));
  parts.push(svg('text', {
    class: 'axis',
    x: 12,
    y: (top + height - bottom) / 2,
    'text-anchor': 'middle',
    transform: `rotate(-90 12 ${(top + height - bottom) / 2})`,
    text: 'operations a second'
  }));
  parts.push(...roofs(peaks, s));
  parts.push(...roofMarks(points, s));
  const words =
      points
          .map((p) => `launch ${p.i + 1}: ${digits(p.x)} operations a byte, ${rate(p.y, 'FLOP/s')}`)
          .join('; ');
  return svg(
      'svg', {
        class: 'chart',
        viewBox: `0 0 ${width} ${height}`,
        role: 'img',
        'aria-label': 'Roofline. ' + words
      },
      parts);
}
function roofs(peaks, s) {
  const parts = [];
  const tops = [['fp32', peaks.fp32], ['tensor', peaks.tensor], ['wgmma', peaks.wgmma]].filter(
      ([, v]) => isNumber(v));
  const highest = tops.length ? Math.max(...tops.map(([, v]) => v)) : s.y1;
  const from = Math.max(s.x0, s.y0 / peaks.DRAM), to = Math.min(s.x1, highest / peaks.DRAM);
  parts.push(svg('line', {
    class: 'roof',
    x1: s.x(from),
    y1: s.y(from * peaks.DRAM),
    x2: s.x(to),
    y2: s.y(to * peaks.DRAM)
  }));
  const middle = Math.sqrt(from * to);
  const slope = Math.atan2(s.y(to * peaks.DRAM) - s.y(from * peaks.DRAM), s.x(to) - s.x(from)) *
      180 / Math.PI;
  const at = [s.x(middle), s.y(middle * peaks.DRAM) - 7];
  parts.push(svg('text', {
    class: 'roof-name',
    x: at[0],
    y: at[1],
    'text-anchor': 'middle',
    transform: `rotate(${slope} ${at[0]} ${at[1]})`,
    text: `DRAM ${rate(peaks.DRAM, 'B/s')}`
  }));
  for (const [name, v] of tops) {
    const begin = Math.max(s.x0, v / peaks.DRAM);
    parts.push(svg('line', {
      class: 'roof' + (name === 'fp32' ? '' : ' dashed'),
      x1: s.x(begin),
      x2: s.x(s.x1),
      y1: s.y(v),
      y2: s.y(v)
    }));
    parts.push(svg('text', {
      class: 'roof-name',
      x: s.x(s.x1) - 4,
      y: s.y(v) + (name === 'tensor' && isNumber(peaks.wgmma) ? 14 : -6),
      'text-anchor': 'end',
      text: `${name} ${rate(v, 'FLOP/s')}`
    }));
  }
  return parts;
}
// Points whose marks would overlap step aside and keep a line to their place.
function roofMarks(points, s) {
  const placed = [], spots = [], parts = [];
  const order = [...points].sort((a, b) => (a.i === state.launch) - (b.i === state.launch));
  for (const p of order) {
    const place = {x: s.x(p.x), y: s.y(p.y)};
    let at = {...place};
    const others = points.filter((q) => q !== p).map((q) => ({x: s.x(q.x), y: s.y(q.y)}));
    const full = (at) => placed.some((q) => Math.hypot(q.x - at.x, q.y - at.y) < 20) ||
        others.some((q) => Math.hypot(q.x - at.x, q.y - at.y) < 13);
    for (let turn = 0; turn < 24 && full(at); ++turn) {
      const radius = 20 + 10 * Math.floor(turn / 8), angle = (turn % 8) * Math.PI / 4 + Math.PI / 2;
      at = {x: place.x + radius * Math.cos(angle), y: place.y + radius * Math.sin(angle)};
      at.x = Math.min(Math.max(at.x, ROOF.left + 10), ROOF.width - ROOF.right - 10);
      at.y = Math.min(Math.max(at.y, ROOF.top + 10), ROOF.height - ROOF.bottom - 10);
    }
    placed.push(at);
    const words = `${launchName(p.i)}: ${digits(p.x)} operations a byte of DRAM, ${
        rate(p.y, 'FLOP/s')} predicted`;
    if (at.x !== place.x || at.y !== place.y) {
      spots.push(
          svg('line', {class: 'leader', x1: place.x, y1: place.y, x2: at.x, y2: at.y}),
          svg('circle', {class: 'spot', cx: place.x, cy: place.y, r: 2.5}));
    }
    parts.push(
        svg('g', {
          class: 'point' + (p.i === state.launch ? ' chosen' : ''),
          'data-launch': p.i,
          tip: words,
          onclick: () => selectLaunch(p.i)
        },
            svg('circle', {cx: at.x, cy: at.y, r: 9}),
            svg('text', {x: at.x, y: at.y + 4, 'text-anchor': 'middle', text: String(p.i + 1)})));
  }
  return [...spots, ...parts];
}
