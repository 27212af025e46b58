// Elements, numbers with units, and the one tooltip. Text goes in as text only, never as HTML.

const SVG_SPACE = 'http://www.w3.org/2000/svg';

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on'))
      element.addEventListener(name.slice(2), value);
    else if (name === 'text')
      element.textContent = value;
    else if (name === 'tip')
      addTip(element, value);
    else
      element.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}
const el = (tag, attributes, ...children) =>
    fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
    fill(document.createElementNS(SVG_SPACE, tag), attributes, children);
const byId = (id) => document.getElementById(id);

// ---- numbers ----------------------------------------------------------------------------------

const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);
const UNKNOWN = 'unknown';

// Three significant digits, no exponent: 0.0912, 7.25, 48.3, 1,230.
function digits(value) {
  if (value === 0) return '0';
  const size = Math.abs(value);
  const decimals = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : size >= 0.1 ? 3 : 4;
  return value.toLocaleString('en-US', {maximumFractionDigits: decimals});
}
function count(value) {
  return isNumber(value) ? Math.round(value).toLocaleString('en-US') : UNKNOWN;
}
// For a narrow column: 980, 12.3k, 1.6M.
function compact(value) {
  if (!isNumber(value)) return UNKNOWN;
  for (const [size, unit] of [[1e9, 'G'], [1e6, 'M'], [1e4, 'k']]) {
    if (value >= size) return digits(value / (unit === 'k' ? 1e3 : size)) + unit;
  }
  return Number.isInteger(value) ? count(value) : digits(value);
}
function time(us) {
  if (!isNumber(us)) return UNKNOWN;
  if (us >= 1e6) return digits(us / 1e6) + ' s';
  if (us >= 1e3) return digits(us / 1e3) + ' ms';
  return digits(us) + ' µs';
}
function percent(share, decimals) {
  if (!isNumber(share)) return UNKNOWN;
  const value = share * 100;
  if (value === 0) return '0 %';
  const places = decimals !== undefined ? decimals : value < 10 ? 1 : 0;
  if (value > 0 && value < 0.05) return '<0.1 %';
  return value.toFixed(places) + ' %';
}
function bytes(value) {
  if (!isNumber(value)) return UNKNOWN;
  for (const [size, unit] of [[1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB']]) {
    if (value >= size) return digits(value / size) + ' ' + unit;
  }
  return count(value) + (value === 1 ? ' byte' : ' bytes');
}
function rate(value, unit) {
  if (!isNumber(value)) return UNKNOWN;
  for (const [size, prefix] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']]) {
    if (value >= size) return digits(value / size) + ' ' + prefix + unit;
  }
  return digits(value) + ' ' + unit;
}
const times = (ratio) => (isNumber(ratio) ? digits(ratio) + '×' : UNKNOWN);
const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : many || one + 's'}`;

// ---- the tooltip ------------------------------------------------------------------------------

function showTip(target, text) {
  const tip = byId('tip');
  tip.textContent = text;
  tip.hidden = false;
  const at = target.getBoundingClientRect(), size = tip.getBoundingClientRect();
  const room = document.documentElement.clientWidth;
  const left = Math.max(8, Math.min(at.left, room - size.width - 8));
  const below = at.bottom + 6 + size.height < window.innerHeight;
  tip.style.left = left + 'px';
  tip.style.top = Math.max(4, below ? at.bottom + 6 : at.top - size.height - 6) + 'px';
}
function hideTip() { byId('tip').hidden = true; }
// The text, or a function that gives it, shows while the pointer or the focus is there.
function addTip(element, text) {
  const show = () => {
    const now = typeof text === 'function' ? text() : text;
    if (now) showTip(element, now);
  };
  element.addEventListener('mouseenter', show);
  element.addEventListener('mouseleave', hideTip);
  element.addEventListener('focus', show);
  element.addEventListener('blur', hideTip);
  element.addEventListener('click', show);
}
// A word with its definition; a word without one is only text.
function term(key, label) {
  const text = label || key;
  if (!Object.hasOwn(TERMS, key)) return el('span', {text});
  return el('span', {class: 'term', tabindex: '0', tip: TERMS[key], text});
}
// A reason why warps wait, likewise.
function stallTerm(reason, label) {
  const known =
      Object.hasOwn(STALLS, reason) ? STALLS[reason][1] : 'A reason without a definition here.';
  return el('span', {class: 'term mono', tabindex: '0', tip: known, text: label || reason});
}
const stallWord = (reason) => (Object.hasOwn(STALLS, reason) ? STALLS[reason][0] : reason);
const sentence = (text) => el('p', {class: 'none', text});

// A row of choices of which one holds; arrow keys go through them.
function choiceRow(label, choices, chosen, choose) {
  const buttons = choices.map(([value, text, tip]) => el('button', {
                                role: 'radio',
                                'aria-checked': String(value === chosen),
                                'data-value': value,
                                text,
                                tip,
                                tabindex: value === chosen ? '0' : '-1',
                                onclick: () => mark(value),
                              }));
  const mark = (value) => {
    setChoice(row, value);
    choose(value);
  };
  const row =
      el('div', {
        role: 'radiogroup',
        class: 'choice-row',
        'aria-label': label,
        onkeydown: (event) => {
          const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
          const at = buttons.indexOf(document.activeElement);
          if (!step || at < 0) return;
          event.preventDefault();
          event.stopPropagation();
          const next = buttons[(at + step + buttons.length) % buttons.length];
          next.focus();
          mark(next.dataset.value);
        }
      },
         buttons);
  return row;
}
function setChoice(row, value) {
  for (const button of row.children) {
    const on = button.dataset.value === value;
    button.setAttribute('aria-checked', String(on));
    button.tabIndex = on ? 0 : -1;
  }
}
// Makes a table of heads (text or element) and rows of cells (text, element, or {text, class}).
function table(className, heads, rows, rowAttributes) {
  const cell = (value, i) => {
    if (value instanceof Node) return el('td', {}, value);
    if (value && typeof value === 'object')
      return el('td', {class: value.class}, value.node || value.text);
    return el(
        i === 0 ? 'th' : 'td', i === 0 ? {scope: 'row'} : {},
        value === null || value === undefined ? UNKNOWN : String(value));
  };
  return el(
      'table', {class: className},
      el('thead', {},
         el('tr', {},
            heads.map((head) => el('th', {scope: 'col', class: head.class}, head.node || head)))),
      el('tbody', {},
         rows.map((row, i) => el('tr', rowAttributes ? rowAttributes(i) : {}, row.map(cell)))));
}
