// The timeline of the program: calls of the host, copies and kernels.

// Rows of the trace, without those of the SM, which the block over time shows.
function timelineRows(events) {
  const names = new Map(), rows = new Map();
  const key = (event) => event.pid + '/' + event.tid;
  for (const event of events) {
    if (event.ph === 'M' && (event.name === 'process_name' || event.name === 'thread_name')) {
      names.set(
          event.name + (event.name === 'process_name' ? event.pid : key(event)),
          object(event.args).name);
    }
  }
  for (const event of events) {
    const process = String(names.get('process_name' + event.pid) || '');
    if (event.ph !== 'X' || /^SM \d+/.test(process) || event.cat === 'warp') continue;
    if (!isNumber(event.ts) || !isNumber(event.dur)) continue;
    if (!rows.has(key(event))) {
      rows.set(
          key(event),
          {label: names.get('thread_name' + key(event)) || process || 'row', segments: []});
    }
    rows.get(key(event)).segments.push({
      begin: event.ts,
      end: event.ts + event.dur,
      kind: timelineKind(event),
      label: String(event.name),
      args: object(event.args)
    });
  }
  const all = [...rows.values()];
  for (const row of all) row.segments.sort((a, b) => a.begin - b.begin);
  return all;
}
function timelineKind(event) {
  return {call: 'call', copy: 'copy', engine: 'copy', fill: 'copy', kernel: 'kernel'}[event.cat] ||
      'other';
}
function timelineWords(row, i) {
  const {begin, end, label, kind, args} = row.segments[i];
  const parts = [`${label}: ${time(end - begin)}, from ${time(begin)} to ${time(end)}`];
  if (kind === 'kernel' && args.duration)
    parts.push(`duration ${args.duration === 'limit' ? 'a lower bound' : args.duration}`);
  if (isNumber(args.bytes)) parts.push(bytes(args.bytes));
  if (args.grid) parts.push('grid ' + args.grid);
  if (args.block) parts.push('block ' + args.block);
  return parts.join('; ');
}
function drawTimeline() {
  const rows = LOOK.timeline ? timelineRows(LOOK.timeline.traceEvents) : [];
  if (!rows.length) return sentence('There is no timeline in this page.');
  const chart = new LaneChart({
    rows,
    label: 'Timeline. Arrow keys step through calls, copies and kernels.',
    wideLabels: 130,
    words: (row, i) => timelineWords(rows[row], i),
    place: (t) => time(t),
  });
  chart.element.id = 'timeline-chart';
  byTimeline.chart = chart;
  return el(
      'div', {},
      legend([['call', 'call of the host'], ['copy', 'copy or fill'], ['kernel', 'kernel']]),
      chart.element, el('p', {
        class: 'note',
        text:
            'Every duration is modelled: kernels as predicted, copies at the peak rate, calls of the host with fixed times.' +
            (LOOK.timeline.left_out > 0 ?
                 ` ${plural(LOOK.timeline.left_out, 'event is', 'events are')} left out.` :
                 '')
      }));
}
const byTimeline = {
  chart: null
};
