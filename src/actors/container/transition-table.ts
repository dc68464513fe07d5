/**
 * The answer of a container to every event in every state, by the names in `transition-cases.ts`: the next state (`=`:
 * the same) and the acts in their order, some with the number of the request. An event that is not here changes nothing
 * but what the machine knows. `invoke` and `end` are about effects; `postpone`, `cancel` (the limit of its patience)
 * and `take up` about a command that has to wait.
 */

/** These are the first states of an actor, by where its container was. */
export const BEGINNINGS = {
  new: 'creating: invoke create',
  idle: 'idle',
  ended: 'releasing: invoke release',
  removing: 'removing: publish removing, invoke remove',
  running: 'adopting: invoke adopt',
  exited: 'draining: invoke drain',
} as const;

/** An effect runs, and every command but a wait is held back until it has ended. */
const HELD = {
  'settled, start, stop, shutdown, restart, signal, kill, pause, unpause': '=: postpone 9',
  'remove, force remove, rewire, amend, bad amend': '=: postpone 9',
} as const;

/** Here waits are held back, too. */
const HELD_WITH_WAITS = {
  ...HELD,
  'wait, wait for next': '=: postpone 9',
} as const;

/** There is nothing left to signal. */
const DRAINING = {
  'settled, start, stop, shutdown, restart, pause, unpause, remove, force remove, rewire, amend, bad amend':
    '=: postpone 9',
  'signal, kill': '=: reject 9 conflict',
} as const;

/** The end is known, so some are answered at once. */
const RELEASING = {
  'settled, start, shutdown, restart, pause, unpause, remove, force remove, rewire, amend, bad amend': '=: postpone 9',
  stop: '=: reject 9 not-modified',
  'signal, kill': '=: reject 9 conflict',
  wait: '=: settle 9',
} as const;

/** A change of the record can begin. */
const AMENDABLE = { amend: '=: writeAmend', 'bad amend': '=: reject 9 conflict' } as const;

/** One change is being written, and another one waits for it. */
const amendsUnderWay = (status: string) => ({
  saved: `=: confirmAmend, publish ${status}, settle 4, writeAmend`,
  'saved too late': '=: writeAmend',
  'not saved': '=: reject 4 internal, writeAmend',
});

const IDLE = {
  'settled, wait': '=: settle 9',
  'start, restart': 'starting: invoke start',
  'stop, shutdown': '=: reject 9 not-modified',
  'signal, kill, pause': '=: reject 9 conflict',
  unpause: '=: reject 9 internal',
  'remove, force remove': 'removing: publish removing, invoke remove',
  rewire: 'rewiring: invoke rewire',
  oom: '=: emit oom, publish exited',
  hung: '=: crash',
} as const;

const ACTIVE = {
  settled: '=: settle 9',
  start: '=: reject 9 not-modified',
  'stop, restart, force remove': 'running.stopping: saveLater, invoke stop',
  shutdown: 'running.stopping: invoke stop',
  'signal, kill': '=: sendSignal',
  pause: 'running.pausing: invoke pause',
  unpause: '=: reject 9 internal',
  remove: '=: reject 9 conflict',
  rewire: 'rewiring: invoke rewire',
  paused: 'running.paused: publish paused, saveLater, emit pause',
  exited: 'draining: invoke drain',
  oom: '=: emit oom, publish running',
  probed: '=: publish running, saveLater, emit health_status: healthy',
  hung: '=: crash',
} as const;

const BACKOFF = {
  settled: '=: settle 9',
  'start, restart, delay': 'starting: cancel, invoke start',
  'stop, signal, kill': 'idle: cancel, publish exited, emit stop, settleWhenSaved',
  shutdown: 'idle: cancel, publish exited, settleWhenSaved',
  'pause, remove': '=: reject 9 conflict',
  unpause: '=: reject 9 internal',
  'force remove': 'removing: cancel, publish removing, invoke remove',
  rewire: 'rewiring: cancel, invoke rewire',
  oom: '=: emit oom, publish restarting',
  hung: '=: crash',
} as const;

const DEAD = {
  'settled, wait': '=: settle 9',
  'start, shutdown, restart, signal, kill, pause, unpause, rewire': '=: reject 9 conflict',
  stop: '=: reject 9 not-modified',
  'remove, force remove': 'removing: publish removing, invoke remove',
  oom: '=: emit oom, publish dead',
  hung: '=: crash',
} as const;

export const TRANSITIONS: Record<string, Readonly<Record<string, string>>> = {
  creating: {
    ...HELD,
    oom: '=: emit oom, publish created',
    hung: '=: crash',
    done: 'idle: end, publish created, emit create',
    'failed, task gone': 'gone: end, withdraw',
  },
  'creating, with commands': {
    ...HELD,
    oom: '=: emit oom, publish created',
    'patience over': '=: reject 4 deadline',
    hung: '=: crash',
    done:
      'starting: end, publish created, emit create, cancel, take up 4, cancel, take up 5, reject 4 conflict, ' +
      'invoke start',
    'failed, task gone': 'gone: end, withdraw, reject 4 5 internal',
  },
  adopting: {
    ...HELD,
    oom: '=: emit oom, publish running',
    hung: '=: crash',
    'done, failed': 'running.active: end, publish running',
    'task gone': 'draining: end, invoke drain',
  },
  'adopting, paused': {
    ...HELD,
    oom: '=: emit oom, publish paused',
    hung: '=: crash',
    'done, failed': 'running.paused: end, publish paused',
    'task gone': 'draining: end, invoke drain',
  },
  'adopting, ended': {
    ...HELD,
    oom: '=: emit oom, publish running',
    hung: '=: crash',
    done: 'draining: end, publish running, invoke drain',
    'failed, task gone': 'draining: end, invoke drain',
  },
  idle: { ...IDLE, ...AMENDABLE },
  'idle, amending': { ...IDLE, ...amendsUnderWay('exited') },
  starting: {
    ...HELD,
    oom: '=: emit oom, publish created',
    hung: '=: crash',
    done: 'running.active: end, publish running, emit start, emit restart, settle 1 2',
    'failed, task gone': 'idle: end, reject 1 2 internal, publish created, saveLater, settle 5, settle 6',
  },
  'starting, ended': {
    ...HELD,
    oom: '=: emit oom, publish created',
    hung: '=: crash',
    done: 'draining: end, publish running, emit start, invoke drain',
    'failed, task gone': 'idle: end, publish created, saveLater',
  },
  'starting, with commands': {
    ...HELD,
    oom: '=: emit oom, publish created',
    'saved, saved too late': '=: postpone 4, postpone 5',
    'not saved': '=: reject 4 internal, postpone 5',
    'patience over': '=: reject 4 deadline',
    hung: '=: crash',
    done:
      'running.pausing: end, publish running, emit start, cancel, take up 4, cancel, take up 5, ' +
      'invoke pause, postpone 5',
    'failed, task gone':
      '=: end, publish created, saveLater, cancel, take up 4, cancel, take up 5, reject 4 conflict, invoke start',
  },
  'starting, with a stop': {
    ...HELD,
    oom: '=: emit oom, publish created',
    'patience over, hung': '=: crash',
    done: 'running.stopping: end, publish running, emit start, cancel, take up 4, saveLater, invoke stop',
    'failed, task gone': 'idle: end, publish created, saveLater, cancel, take up 4, reject 4 not-modified',
  },
  'starting, never to stay': {
    ...HELD,
    oom: '=: emit oom, publish running',
    hung: '=: crash',
    done: 'running.active: end, publish running, emit start',
    'failed, task gone': 'removing: end, publish exited, saveLater, publish removing, invoke remove',
  },
  'running.active': { ...ACTIVE, ...AMENDABLE },
  'running.active, amending': { ...ACTIVE, ...amendsUnderWay('running') },
  'running.pausing': {
    ...HELD_WITH_WAITS,
    exited: 'draining: end, invoke drain',
    oom: '=: emit oom, publish running',
    probed: '=: publish running, saveLater, emit health_status: healthy',
    hung: '=: crash',
    done: 'running.paused: end, publish paused, saveLater, emit pause, settle 1',
    'failed, task gone': 'running.active: end, reject 1 internal',
  },
  'running.paused': {
    settled: '=: settle 9',
    'start, pause, remove, bad amend': '=: reject 9 conflict',
    'stop, restart, force remove': 'running.stopping: saveLater, invoke stop',
    shutdown: 'running.stopping: invoke stop',
    'signal, kill': '=: sendSignal',
    unpause: 'running.unpausing: invoke unpause',
    rewire: 'rewiring: invoke rewire',
    amend: '=: writeAmend',
    exited: 'draining: invoke drain',
    oom: '=: emit oom, publish paused',
    resumed: 'running.active: publish running, saveLater, emit unpause',
    probed: '=: publish paused',
    hung: '=: crash',
  },
  'running.unpausing': {
    ...HELD_WITH_WAITS,
    exited: 'draining: end, invoke drain',
    oom: '=: emit oom, publish paused',
    probed: '=: publish paused',
    hung: '=: crash',
    done: 'running.active: end, publish running, saveLater, emit unpause, settle 1',
    'failed, task gone': 'running.paused: end, reject 1 internal',
  },
  'running.stopping': {
    settled: '=: settle 9',
    start: '=: reject 9 not-modified',
    'stop, restart, force remove': '=: end, saveLater, invoke stop',
    shutdown: '=: end, invoke stop',
    'signal, kill': '=: sendSignal',
    'pause, unpause, remove, rewire': '=: postpone 9',
    amend: '=: writeAmend',
    'bad amend': '=: reject 9 conflict',
    'exited, done': 'draining: end, invoke drain',
    oom: '=: emit oom, publish running',
    probed: '=: publish running, saveLater, emit health_status: healthy',
    hung: '=: crash',
    'failed, task gone': 'running.active: end, reject 1 2 6 internal',
  },
  rewiring: {
    ...HELD,
    oom: '=: emit oom, publish exited',
    hung: '=: crash',
    done: 'idle: end, publish exited, settle 1',
    'failed, task gone': 'idle: end, reject 1 internal',
  },
  'rewiring, running': {
    ...HELD,
    oom: '=: emit oom, publish running',
    hung: '=: crash',
    done: 'running.active: end, publish running, settle 1',
    'failed, task gone': 'running.active: end, reject 1 internal',
  },
  'rewiring, paused': {
    ...HELD,
    oom: '=: emit oom, publish paused',
    hung: '=: crash',
    done: 'running.paused: end, publish paused, settle 1',
    'failed, task gone': 'running.paused: end, reject 1 internal',
  },
  'rewiring, coming back': {
    ...HELD,
    oom: '=: emit oom, publish restarting',
    hung: '=: crash',
    done: 'backoff: end, publish restarting, settle 1, delay 300',
    'failed, task gone': 'backoff: end, reject 1 internal, delay 300',
  },
  'rewiring, ended': {
    ...HELD,
    oom: '=: emit oom, publish running',
    hung: '=: crash',
    done: 'draining: end, publish running, settle 1, invoke drain',
    'failed, task gone': 'draining: end, reject 1 internal, invoke drain',
  },
  draining: {
    ...DRAINING,
    oom: '=: emit oom, publish running',
    hung: '=: crash',
    'done, failed, task gone':
      'releasing: end, publish exited, partStreams, emit stop, emit die, settle 1, reject 2 conflict, ' +
      'settle 5, settle 6, invoke release',
  },
  'draining, coming back': {
    ...DRAINING,
    oom: '=: emit oom, publish running',
    hung: '=: crash',
    'done, failed, task gone': 'releasing: end, publish restarting, partStreams, emit die, invoke release',
  },
  'draining, restarted': {
    ...DRAINING,
    oom: '=: emit oom, publish running',
    hung: '=: crash',
    'done, failed, task gone': 'releasing: end, publish restarting, partStreams, emit stop, emit die, invoke release',
  },
  'draining, removed': {
    ...DRAINING,
    oom: '=: emit oom, publish running',
    hung: '=: crash',
    'done, failed, task gone': 'releasing: end, publish exited, partStreams, emit stop, emit die, invoke release',
  },
  releasing: {
    ...RELEASING,
    oom: '=: emit oom, publish exited',
    hung: '=: crash',
    done: 'idle: end, publish exited, endStreams',
    'failed, task gone': '=: end, invoke release',
  },
  'releasing, given up': {
    ...RELEASING,
    oom: '=: emit oom, publish exited',
    hung: '=: crash',
    'done, failed, task gone': 'idle: end, publish exited, endStreams',
  },
  'releasing, coming back': {
    ...HELD,
    oom: '=: emit oom, publish restarting',
    hung: '=: crash',
    done: 'backoff: end, publish restarting, endStreams, delay 800',
    'failed, task gone': '=: end, invoke release',
  },
  'releasing, restarted': {
    ...HELD,
    oom: '=: emit oom, publish restarting',
    hung: '=: crash',
    done: 'starting: end, publish restarting, endStreams, invoke start',
    'failed, task gone': '=: end, invoke release',
  },
  'releasing, removed': {
    ...RELEASING,
    oom: '=: emit oom, publish exited',
    hung: '=: crash',
    done: 'removing: end, publish exited, endStreams, publish removing, reject 2 conflict, invoke remove',
    'failed, task gone': '=: end, invoke release',
  },
  backoff: {
    ...BACKOFF,
    ...AMENDABLE,
    'stop, signal, kill': 'idle: cancel, publish exited, emit stop, settleWhenSaved, settle 5, settle 6',
  },
  'backoff, amending': { ...BACKOFF, ...amendsUnderWay('restarting') },
  removing: {
    settled: '=: postpone 9',
    'start, restart, signal, kill, pause, unpause, remove, force remove, rewire, amend, bad amend':
      '=: reject 9 conflict',
    'stop, shutdown': '=: reject 9 not-modified',
    wait: '=: settle 9',
    oom: '=: emit oom, publish removing',
    hung: '=: crash',
    done: 'gone: end, withdraw, settle 5, settle 6, settle 7, emit destroy, forget, settle 6',
    'failed, task gone': 'dead: end, publish dead, reject 6 internal, saveLater, settle 5 6 7',
  },
  'removing, with commands': {
    settled: '=: postpone 9',
    'start, restart, signal, kill, pause, unpause, remove, force remove, rewire, amend, bad amend':
      '=: reject 9 conflict',
    'stop, shutdown': '=: reject 9 not-modified',
    wait: '=: settle 9',
    oom: '=: emit oom, publish removing',
    'saved, saved too late': '=: postpone 4, postpone 5',
    'not saved': '=: reject 4 internal, postpone 5',
    'patience over': '=: reject 4 deadline',
    hung: '=: crash',
    done: 'gone: end, withdraw, emit destroy, forget, settle 6, reject 4 5 4 5 not-found',
    'failed, task gone':
      'dead: end, publish dead, reject 6 internal, saveLater, cancel, take up 4, cancel, take up 5, ' +
      'reject 4 conflict, reject 5 conflict',
  },
  dead: { ...DEAD, ...AMENDABLE },
  'dead, amending': { ...DEAD, ...amendsUnderWay('dead') },
};
