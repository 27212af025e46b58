'use strict';
// What the page's words mean. A key is a word as the data or the page has it.

const TERMS = {
  launch:
      'One start of a kernel. Starts of the same kernel with the same grid, block and shared memory stand in one row.',
  'predicted time':
      'How long this GPU would take, from a simulation of one SM. It is a prediction, not a measurement; its error says how far such predictions are off on kernels whose times others have published.',
  limit:
      'The time that the busiest part of the GPU needs at its peak rate. It leaves out all waiting, so it is a lower bound and not a running time.',
  binds:
      'The part of the GPU with the largest limit: no change elsewhere makes the kernel faster than that.',
  occupancy:
      'Warps that an SM can hold at a time for this kernel, as a share of the most it can hold. More warps hide more waiting.',
  waves: 'Blocks of the grid, divided by the blocks that all SMs hold at a time.',
  'speed of light':
      'Each part of the GPU at its peak rate: how much of the predicted time that part would need alone.',
  stalls: 'Why warps did not issue an instruction, as shares of the clocks of all warps.',
  roofline:
      'Work a second over work a byte. No launch can stand above the roofs: the slope is the bandwidth of DRAM, the flat lines are the peaks of arithmetic.',
  sm: 'Streaming multiprocessor: one of the GPU\'s processors. A block runs on one of them from its start to its end.',
  warp:
      '32 threads of a block that execute the same instruction together. Each of the 32 is a lane.',
  lane: 'One of the 32 threads of a warp.',
  sector:
      '32 bytes, the smallest piece that global memory moves. Needed are the fewest sectors that hold the bytes asked for.',
  bank: 'Shared memory has 32 banks, each 4 bytes wide. A bank serves one word a clock.',
  wavefront:
      'One turn of shared memory. An access whose lanes want different words of one bank takes several.',
  conflict:
      'A wavefront more than the access needs, because lanes want different words of the same bank.',
  ptx: 'The instructions that nvcc makes of the source, before the machine code of one GPU.',
  sass: 'The machine code that the GPU executes, made of the PTX by ptxas.',
  time:
      'Clocks that warps spend at this line: issuing it and waiting for it, as a share of the kernel\'s. Predicted, for the blocks that are simulated.',
  instructions:
      'Warp instructions executed: one for each warp, whatever number of its lanes is active.',
  sectors: 'Sectors moved, divided by the fewest that hold the bytes asked for. 1.0 is ideal.',
  conflicts: 'Wavefronts of shared memory beyond those that the accesses need.',
  DRAM: 'The GPU\'s own memory outside the chip.',
  L2: 'The cache that all SMs share.',
  'L1/shared': 'The memory inside an SM: cache and shared memory in one.',
  'distributed shared memory': 'Shared memory of other blocks of the same cluster.',
  fp32: 'Arithmetic on 32-bit floating-point numbers.',
  fp16: 'Arithmetic on 16-bit floating-point numbers.',
  fp64: 'Arithmetic on 64-bit floating-point numbers.',
  'special functions': 'The unit for exponential, sine, reciprocal and square root.',
  tensor: 'Tensor cores: multiply and add small matrices.',
  issue: 'The schedulers: each starts at most one warp instruction a clock.',
  'machine instructions': 'Counted in machine code, as the GPU executes them.',
};

// Why a warp waits: [short word for a narrow column, what it means].
const STALLS = {
  selected: ['issues', 'The warp issues an instruction. This is work, not waiting.'],
  not_selected: ['others', 'The warp could issue, but another warp did.'],
  wait: ['latency', 'The fixed latency of the warp\'s last instruction has to pass.'],
  math_pipe_throttle: ['arithmetic', 'The arithmetic unit is busy.'],
  short_scoreboard:
      ['shared', 'The warp waits for shared memory, a special function or a shuffle.'],
  mio_throttle:
      ['MIO queue', 'The queue to shared memory, special functions and shuffles is full.'],
  long_scoreboard: ['memory', 'The warp waits for global or local memory.'],
  lg_throttle: ['LG queue', 'The queue to global and local memory is full.'],
  tex_throttle: ['TEX queue', 'The queue to the texture unit is full.'],
  barrier: ['barrier', 'The warp waits for the other warps of its block.'],
  membar: ['fence', 'The warp waits for a memory fence.'],
  branch_resolving: ['branch', 'The warp has branched, and the next instruction is not known yet.'],
  no_instructions: ['fetch', 'The warp waits until its instructions are fetched.'],
  imc_miss: ['constant', 'The warp waits for a constant.'],
  drain: ['stores', 'The warp has ended and its stores are under way.'],
  sleeping: ['sleep', 'The warp sleeps, as it asked to.'],
  dispatch: ['dispatch', 'The warp waits for the dispatch unit.'],
  misc: ['other', 'Another reason.'],
};

const PHASES = {
  load: 'loads: issues a read of memory',
  wait: 'waits',
  compute: 'computes',
  tensor: 'uses tensor cores',
  store: 'stores',
  barrier: 'waits at a barrier',
};

// What the keys do: [keys, effect].
const KEYS = [
  ['1 2 3 4', 'Summary, source, block over time, compare'],
  ['[ ]', 'launch before, next launch'],
  ['h', 'next heat column: time, instructions, sectors, conflicts, stalls'],
  ['↑ ↓', 'in a pane: line before, next line; in a chart: row above, row below'],
  ['Home End', 'first and last line of a pane, begin and end of a chart'],
  ['n p', 'in a pane: next and previous hot line'],
  [
    '← →',
    'in a pane: the pane beside it; in a chart: step before, next step; among lanes: lane before, next lane'
  ],
  ['Enter', 'in a pane: to the lanes of its access'],
  ['a', 'in the block over time: to the next access of memory'],
  ['+ −', 'in a chart: closer, farther'],
  ['?', 'this list'],
  ['Esc', 'closes it'],
];
