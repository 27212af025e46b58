// A chart of rows over time, on a canvas: the timeline and the warps of a block. It knows zoom, a cursor
// and patterns, and says in words what is under the cursor.

const KINDS =
    ['load', 'store', 'tensor', 'compute', 'barrier', 'wait', 'call', 'copy', 'kernel', 'other'];

// options: rows [{label, segments: [{begin, end, kind, label}]}], words(row, i) -> text, place(time) -> text of
// an axis mark, chosen(row, i) called when the cursor moves, height of a row in pixels, label for readers.
class LaneChart {
  constructor(options) {
    Object.assign(this, {rowHeight: 26, labelWidth: 92, axis: 22}, options);
    const ends = this.rows.flatMap(
        (row) => (row.segments.length ? [row.segments[row.segments.length - 1].end] : []));
    const begins = this.rows.flatMap((row) => (row.segments.length ? [row.segments[0].begin] : []));
    this.first = begins.length ? Math.min(...begins) : 0;
    this.last = ends.length ? Math.max(...ends) : 1;
    if (this.last <= this.first) this.last = this.first + 1;
    this.from = this.first;
    this.to = this.last;
    this.row = 0;
    this.at = -1;
    this.build();
  }
  build() {
    this.canvas = el('canvas', {
      class: 'lanes',
      tabindex: '0',
      role: 'application',
      'aria-label': this.label,
      onkeydown: (event) => this.key(event),
      onclick: (event) => this.click(event),
      onmousemove: (event) => this.hover(event),
      onmouseleave: () => {
        hideTip();
      }
    });
    this.pan = el('input', {
      type: 'range',
      min: 0,
      max: 1000,
      value: 0,
      class: 'pan',
      'aria-label': 'Place in time',
      oninput: () => {
        const span = this.to - this.from;
        this.from = this.first + (this.last - this.first - span) * this.pan.value / 1000;
        this.to = this.from + span;
        this.draw();
      }
    });
    this.words_ = el('p', {class: 'status', 'aria-live': 'polite'});
    const zoom = (factor, text, tip) =>
        el('button', {text, tip, 'aria-label': tip, onclick: () => this.zoom(factor)});
    this.element =
        el('div', {class: 'lane-chart'},
           el('div', {class: 'chart-tools'}, zoom(2, '+', 'Closer'), zoom(0.5, '−', 'Farther'),
              zoom(0, 'All', 'Whole time'), this.pan),
           this.canvas, this.words_);
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.draw());
  }
  zoom(factor) {
    const whole = this.last - this.first;
    const span = factor === 0 ?
        whole :
        Math.min(whole, Math.max(whole / 20000, (this.to - this.from) / factor));
    const segment = this.segment();
    const focus = segment && segment.begin < this.to && segment.end > this.from ?
        (Math.max(segment.begin, this.from) + Math.min(segment.end, this.to)) / 2 :
        (this.from + this.to) / 2;
    this.view(focus - span / 2, span);
  }
  view(from, span) {
    this.from = Math.max(this.first, Math.min(from, this.last - span));
    this.to = this.from + span;
    const room = this.last - this.first - span;
    this.pan.value = room > 0 ? Math.round((this.from - this.first) / room * 1000) : 0;
    this.pan.disabled = !(room > 0);
    this.draw();
  }
  segment() { return this.rows[this.row] ? this.rows[this.row].segments[this.at] || null : null; }
  // Moves the cursor; the view follows.
  choose(row, at, quiet) {
    if (!this.rows[row] || !this.rows[row].segments[at]) return;
    this.row = row;
    this.at = at;
    const {begin, end} = this.segment(), span = this.to - this.from;
    if (end > this.to || begin < this.from)
      this.view(begin - span / 3, span);
    else
      this.draw();
    this.words_.textContent = this.words(row, at);
    if (!quiet && this.chosen) this.chosen(row, at);
  }
  step(by) {
    const {segments} = this.rows[this.row] || {segments: []};
    this.choose(this.row, Math.max(0, Math.min(segments.length - 1, this.at + by)));
  }
  // The segment of a row at a time, the last that begins before it.
  find(row, time) {
    const {segments} = this.rows[row];
    let low = 0, high = segments.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (segments[middle].begin <= time)
        low = middle;
      else
        high = middle - 1;
    }
    return segments.length ? low : -1;
  }
  key(event) {
    const moves = {
      ArrowRight: () => this.step(1),
      ArrowLeft: () => this.step(-1),
      PageDown: () => this.step(20),
      PageUp: () => this.step(-20),
      ArrowDown: () => this.change(1),
      ArrowUp: () => this.change(-1),
      Home: () => this.choose(this.row, 0),
      End: () => this.choose(this.row, this.rows[this.row].segments.length - 1),
      '+': () => this.zoom(2),
      '=': () => this.zoom(2),
      '-': () => this.zoom(0.5),
      '0': () => this.zoom(0)
    };
    if (!Object.hasOwn(moves, event.key) || event.ctrlKey || event.metaKey || event.altKey ||
        !this.rows.length)
      return;
    event.preventDefault();
    event.stopPropagation();
    moves[event.key]();
  }
  change(by) {
    const row = this.row + by;
    if (!this.rows[row]) return;
    const segment = this.segment();
    this.choose(
        row, Math.max(0, this.find(row, segment ? (segment.begin + segment.end) / 2 : this.from)));
  }
  // {row, at} under a pointer, null beside everything.
  under(event) {
    const box = this.canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - this.axis) / this.rowHeight);
    const share = (event.clientX - box.left - this.labelWidth) / (box.width - this.labelWidth);
    if (!this.rows[row] || share < 0 || !this.rows[row].segments.length) return null;
    const time = this.from + share * (this.to - this.from),
          slack = 3 * (this.to - this.from) / box.width;
    const at = this.find(row, time);
    for (const near of [at, at + 1, at - 1]) {
      const segment = this.rows[row].segments[near];
      if (segment && time >= segment.begin - (near === at ? 0 : slack) &&
          time <= segment.end + slack)
        return {row, at: near};
    }
    return null;
  }
  click(event) {
    const hit = this.under(event);
    if (hit) this.choose(hit.row, hit.at);
  }
  hover(event) {
    const hit = this.under(event);
    if (!hit) return hideTip();
    const at = {left: event.clientX + 12, top: event.clientY, bottom: event.clientY + 12};
    return showTip({getBoundingClientRect: () => at}, this.words(hit.row, hit.at));
  }
  draw() {
    const width = this.canvas.clientWidth,
          height = this.axis + this.rows.length * this.rowHeight + 1;
    if (!width) return;
    const scale = window.devicePixelRatio || 1;
    this.canvas.style.height = height + 'px';
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    const ink = this.canvas.getContext('2d');
    ink.scale(scale, scale);
    const styles = getComputedStyle(document.documentElement);
    const colors = new Map();
    const color = (name) => {
      if (!colors.has(name)) colors.set(name, styles.getPropertyValue(name).trim());
      return colors.get(name);
    };
    this.labelWidth = Math.min(this.wideLabels || 92, width * 0.28);
    // One row with more segments than there is room for is enough: all rows are drawn alike.
    this.crowded = this.rows.some(
        (_, r) => this.find(r, this.to) - this.find(r, this.from) > (width - this.labelWidth) / 2);
    this.drawAxis(ink, width, height, color);
    this.rows.forEach((row, r) => this.drawRow(ink, r, width, color));
    this.drawCursor(ink, width, color);
  }
  x(time, width) {
    return this.labelWidth + (time - this.from) / (this.to - this.from) * (width - this.labelWidth);
  }
  drawAxis(ink, width, height, color) {
    ink.font = '11px system-ui, sans-serif';
    ink.textBaseline = 'middle';
    const marks = Math.max(2, Math.floor((width - this.labelWidth) / 110));
    const raw = (this.to - this.from) / marks, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= raw) || 10 * power;
    ink.textAlign = 'left';
    for (let t = Math.ceil(this.from / step) * step; t <= this.to; t += step) {
      const x = this.x(t, width);
      ink.strokeStyle = color('--line');
      ink.beginPath();
      ink.moveTo(Math.round(x) + 0.5, 4);
      ink.lineTo(Math.round(x) + 0.5, height);
      ink.stroke();
      ink.fillStyle = color('--dim');
      if (x < width - 50) ink.fillText(this.place(t, step), x + 4, 9);
    }
  }
  drawRow(ink, r, width, color) {
    const {label, segments} = this.rows[r], y = this.axis + r * this.rowHeight,
                  h = this.rowHeight - 5;
    ink.fillStyle = color('--ink');
    ink.textAlign = 'left';
    ink.save();
    ink.beginPath();
    ink.rect(0, y, this.labelWidth - 6, this.rowHeight);
    ink.clip();
    ink.fillText(label, 0, y + h / 2 + 1);
    ink.restore();
    if (this.crowded) return this.drawShares(ink, r, width, color);
    let drawnTo = -1;
    for (let i = Math.max(0, this.find(r, this.from) - 1);
         i < segments.length && segments[i].begin < this.to; ++i) {
      const segment = segments[i];
      const x0 = Math.max(this.labelWidth, this.x(segment.begin, width)),
            x1 = Math.min(width, this.x(segment.end, width));
      if (x1 <= this.labelWidth || x1 < drawnTo + 0.35) continue;
      drawnTo = x1;
      this.drawSegment(ink, segment, x0, y, Math.max(0.75, x1 - x0), h, color);
    }
  }
  // For more segments than there is room for: columns, in which each kind is as high as its share
  // of the time; a rule below stands for waiting.
  drawShares(ink, r, width, color) {
    const {segments} = this.rows[r], y = this.axis + r * this.rowHeight, h = this.rowHeight - 5;
    const columns = Math.floor((width - this.labelWidth) / 3);
    const span = (this.to - this.from) / columns;
    let i = Math.max(0, this.find(r, this.from));
    for (let column = 0; column < columns; ++column) {
      const from = this.from + column * span, to = from + span, sums = {};
      while (i < segments.length && segments[i].end <= from) ++i;
      for (let k = i; k < segments.length && segments[k].begin < to; ++k) {
        const {begin, end, kind} = segments[k];
        sums[kind] = (sums[kind] || 0) + Math.min(end, to) - Math.max(begin, from);
      }
      let top = y + h;
      for (const kind of KINDS) {
        if (!sums[kind]) continue;
        const high = sums[kind] / span * h, wait = kind === 'wait';
        ink.fillStyle = color('--kind-' + kind);
        ink.fillRect(
            this.labelWidth + column * 3, wait ? y + h - 2 : top - high, 2.5, wait ? 2 : high);
        if (!wait) top -= high;
      }
    }
  }
  drawSegment(ink, segment, x, y, w, h, color) {
    const kind = KINDS.includes(segment.kind) ? segment.kind : 'other';
    const low = kind === 'wait' ? {y: y + h * 0.32, h: h * 0.36} : {y, h};
    ink.fillStyle = color('--kind-' + kind);
    ink.fillRect(x, low.y, w, low.h);
    if (w > 5) drawPattern(ink, kind, x, low.y, w, low.h, color('--pattern'));
    if (w > 4) {
      ink.strokeStyle = color('--paper');
      ink.strokeRect(x + 0.5, low.y + 0.5, w - 1, low.h - 1);
    }
    if (kind === 'wait' || w < 34 || !segment.label) return;
    ink.font = '11px system-ui, sans-serif';
    const text = fitText(ink, segment.label, w - 10);
    if (!text) return;
    const size = ink.measureText(text).width;
    ink.fillStyle = color('--kind-' + kind);
    ink.fillRect(x + 3, low.y + 2, size + 6, low.h - 4);
    ink.fillStyle = color('--on-kind');
    ink.textAlign = 'left';
    ink.fillText(text, x + 6, y + h / 2 + 1);
  }
  drawCursor(ink, width, color) {
    const segment = this.segment();
    if (!segment) return;
    const y = this.axis + this.row * this.rowHeight;
    const x0 = this.x(segment.begin, width), x1 = this.x(segment.end, width);
    if (x1 < this.labelWidth || x0 > width) return;
    ink.strokeStyle = color('--ink');
    ink.lineWidth = 2;
    ink.strokeRect(
        Math.max(this.labelWidth, x0) - 1, y - 2, Math.max(4, x1 - x0) + 2, this.rowHeight - 1);
    ink.lineWidth = 1;
    ink.setLineDash([3, 3]);
    ink.beginPath();
    ink.moveTo(Math.round(x0) + 0.5, 0);
    ink.lineTo(Math.round(x0) + 0.5, this.axis + this.rows.length * this.rowHeight);
    ink.stroke();
    ink.setLineDash([]);
  }
}
function fitText(ink, text, room) {
  if (ink.measureText(text).width <= room) return text;
  for (let n = text.length - 1; n >= 3; --n) {
    const cut = text.slice(0, n) + '…';
    if (ink.measureText(cut).width <= room) return cut;
  }
  return '';
}
// Each kind has a pattern too, so that it is told apart without colour.
function drawPattern(ink, kind, x, y, w, h, color) {
  const lines = {
    load: [[1, 6]],
    store: [[-1, 6]],
    tensor: [[1, 7], [-1, 7]],
    barrier: [[0, 4]],
    copy: [[1, 8]]
  }[kind];
  if (!lines) return;
  ink.save();
  ink.beginPath();
  ink.rect(x, y, w, h);
  ink.clip();
  ink.strokeStyle = color;
  ink.lineWidth = 1;
  ink.beginPath();
  for (const [slope, gap] of lines) {
    for (let at = x - (slope ? h : 0) - ((x - (slope ? h : 0)) % gap); at < x + w + h; at += gap) {
      ink.moveTo(slope < 0 ? at + h : at, y + h);
      ink.lineTo(slope > 0 ? at + h : at, y);
    }
  }
  ink.stroke();
  ink.restore();
}
// What the colours and patterns mean, with a number each.
function legend(entries) {
  return el('ul', {class: 'legend'}, entries.map(([kind, text]) => {
    const canvas = el('canvas', {width: 44, height: 28, 'aria-hidden': 'true'});
    const paint = () => {
      const styles = getComputedStyle(document.documentElement);
      const ink = canvas.getContext('2d');
      const low = kind === 'wait' ? [9, 10] : [0, 28];
      ink.clearRect(0, 0, 44, 28);
      ink.fillStyle = styles.getPropertyValue('--kind-' + kind).trim();
      ink.fillRect(0, low[0], 44, low[1]);
      ink.scale(2, 2);
      drawPattern(
          ink, kind, 0, low[0] / 2, 22, low[1] / 2, styles.getPropertyValue('--pattern').trim());
      ink.scale(0.5, 0.5);
    };
    paint();
    window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', paint);
    return el('li', {}, canvas, ' ', text);
  }));
}
