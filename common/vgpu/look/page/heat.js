// The heat column: one number a line, chosen by state.heat, with a bar as long as its share of the largest.

const HEATS = [
  ['time', 'Time', TERMS.time],
  ['instructions', 'Instructions', TERMS.instructions],
  ['sectors', 'Sectors', TERMS.sectors],
  ['conflicts', 'Conflicts', TERMS.conflicts],
  ['stalls', 'Stalls', TERMS.stalls],
];

const sumOf = (stalls, without) =>
    Object.entries(object(stalls))
        .reduce((sum, [reason, clocks]) => sum + (reason === without ? 0 : clocks || 0), 0);
function mainStall(stalls) {
  let best = null;
  for (const [reason, clocks] of Object.entries(object(stalls))) {
    if (reason !== 'selected' && clocks > 0 && (!best || clocks > best[1])) best = [reason, clocks];
  }
  return best ? best[0] : null;
}

// What is hot about a line: {value, text, tip}; value is what bars compare; null where there is nothing.
function heatOf(costs, mode, total) {
  if (!costs) return null;
  switch (mode) {
    case 'time': {
      if (!isNumber(costs.time)) return null;
      const share = total.time > 0 ? costs.time / total.time : 0;
      return {
        value: costs.time,
        text: percent(share),
        tip: `${compact(costs.time)} clocks of the simulated warps, ${
            percent(share)} of the kernel's, predicted`
      };
    }
    case 'instructions':
      if (!isNumber(costs.executed)) return null;
      return {
        value: costs.executed,
        text: compact(costs.executed),
        tip: `${count(costs.executed)} warp instructions` +
            (isNumber(costs.threads) && costs.executed > 0 ?
                 `, ${digits(costs.threads / costs.executed)} lanes active on average` :
                 '')
      };
    case 'sectors': {
      if (!costs.sectors) return null;
      const ideal = costs.ideal || 0;
      return {
        value: Math.max(0, costs.sectors - ideal),
        text: ideal > 0 ? (costs.sectors / ideal).toFixed(1) + '×' : UNKNOWN,
        tip: `${count(costs.sectors)} sectors moved, ${ideal > 0 ? count(ideal) : UNKNOWN} needed`
      };
    }
    case 'conflicts':
      if (!costs.wavefronts) return null;
      return {
        value: costs.conflicts || 0,
        text: compact(costs.conflicts || 0),
        tip: `${count(costs.wavefronts)} wavefronts, ${
            count(costs.conflicts || 0)} of them conflicts`
      };
    default:
      return stallHeat(costs, total);
  }
}
function stallHeat(costs, total) {
  const reason = mainStall(costs.stalls);
  if (!reason) return null;
  const waited = sumOf(costs.stalls, 'selected');
  const all = sumOf(total.stalls, 'selected');
  const parts = Object.entries(costs.stalls)
                    .filter(([name, clocks]) => name !== 'selected' && clocks > 0)
                    .sort((a, b) => b[1] - a[1])
                    .slice(0, 5)
                    .map(([name, clocks]) => `${name} ${percent(clocks / waited, 0)}`);
  return {
    value: waited,
    text: `${percent(all > 0 ? waited / all : 0)} ${stallWord(reason)}`,
    tip: `${compact(waited)} clocks of warps waited here, ${
        percent(all > 0 ? waited / all : 0)} of all waiting: ${parts.join(', ')}`
  };
}

// Machine code has times of its own; what it moves is counted by its PTX.
function sassCosts(m, instruction) {
  const own = object(instruction.c);
  const moves = /^(@\S+\s+)?(LD|ST|ATOM|RED|CP)/.test(String(instruction.t || ''));
  const of = moves && m.ptx[instruction.p] ? object(m.ptx[instruction.p].c) : {};
  return {
    ...own,
    sectors: of.sectors,
    ideal: of.ideal,
    wavefronts: of.wavefronts,
    conflicts: of.conflicts
  };
}
function paneCosts(m, pane, file) {
  if (pane === 'ptx') return m.ptx.map((instruction) => instruction.c || null);
  if (pane === 'sass') return list(m.sass).map((instruction) => sassCosts(m, instruction));
  return list(object(LOOK.sources[file]).lines)
      .map((_, i) => m.costsOfLine.get(lineKey(file, i + 1)) || null);
}
function paneTotal(m, pane) {
  if (pane !== 'sass') return m.total;
  if (!m.sassTotal)
    m.sassTotal =
        list(m.sass).reduce((sum, instruction) => addCosts(sum, object(instruction.c)), {});
  return m.sassTotal;
}
// Heats of all rows, with share = value / largest.
function heats(m, pane, file, mode) {
  const total = paneTotal(m, pane);
  const all = paneCosts(m, pane, file).map((costs) => heatOf(costs, mode, total));
  let most = 0;
  for (const heat of all)
    if (heat && heat.value > most) most = heat.value;
  for (const heat of all)
    if (heat) heat.share = most > 0 ? heat.value / most : 0;
  return all;
}
// (A bar is drawn by the style sheet, as long as --share says.)
function setHeatCell(cell, heat) {
  cell.textContent = heat ? heat.text : '';
  cell.style.setProperty('--share', heat ? heat.share.toFixed(3) : '0');
  cell.title = heat ? heat.tip : '';
}
