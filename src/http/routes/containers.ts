/** Container operations of the Engine API: requests become messages, views become answers. */
import { setImmediate } from 'node:timers/promises';
import { conflict, EngineError, invalid, isEngineError, messageOf, notImplemented } from '../../errors/engine-error.js';
import type { ContainerDirectory } from '../../actors/container/directory.js';
import type { EarlierTold } from '../../actors/engine/told-events.js';
import type { StopOptions, WaitCondition } from '../../actors/container/container.messages.js';
import { isRunning, type ContainerRecord } from '../../actors/container/container.record.js';
import { isLong } from '../../text/json-pieces.js';
import { parseSignal } from '../../text/signals.js';
import type { ContainerServices } from '../../actors/container/services.js';
import { changesJson } from '../api/changes.js';
import { decodeCreate } from '../api/container-create.js';
import { selectContainers } from '../api/container-filters.js';
import { asOf, inspectJson, listItemJson, type ViewContext } from '../api/container-view.js';
import { parseFilters } from '../api/filters.js';
import { decodeUpdate } from '../api/container-update.js';
import { untilOf } from '../api/until.js';
import { processesJson } from '../api/processes.js';
import type { Exchange } from '../exchange.js';
import { listPieces, sendJsonParts, WHOLE_LIST_CHARS } from '../parts-reply.js';
import { ONCE, route, type Route } from '../route.js';

export interface ContainerRouteDeps {
  readonly containers: ContainerDirectory;
  readonly services: ContainerServices;
  readonly view: ViewContext;
  readonly earlier: EarlierTold;
  /** Returns the image id of a reference, undefined when there is none. */
  imageId(reference: string): string | undefined;
  /** Returns true when `ancestor` is the image itself or one that it was built on. */
  isAncestor(image: string, ancestor: string): boolean;
  isExperimental(): boolean;
}

/** Returns the error of a start from a checkpoint that does not exist, in the words of the known engine. */
function noCheckpoint(isExperimental: boolean): EngineError {
  if (!isExperimental) return invalid('checkpoint is only supported in experimental mode');
  return notImplemented('checkpoint: this engine has no checkpoints');
}

export function containerRoutes(deps: ContainerRouteDeps): Route[] {
  const { containers, services, view } = deps;
  const named = (x: Exchange): ContainerRecord => containers.find(x.param('name'));

  return [
    route('GET', '/containers/json', (x) => listContainers(x, deps)),

    route('POST', '/containers/create', (x) => create(x, deps), { retry: ONCE }),

    route('GET', '/containers/{name...}/json', async (x) => {
      const record = named(x);
      const size = x.query.flag('size') ? await services.sizes(record) : undefined;
      const shown = inspectJson(
        asOf(record, (major, minor) => x.atLeast(major, minor)),
        view,
        size,
      );
      if (typeof shown === 'string') x.sendRenderedJson(200, `${shown}\n`);
      else await sendJsonParts(x, shown);
    }),

    ...lifeRoutes(deps),

    route('POST', '/containers/{name...}/rename', async (x) => {
      const { record, oldName } = await containers.rename(x.param('name'), x.query.text('name') ?? '');
      services.emit('rename', record, { oldName });
      x.sendEmpty(204);
    }),

    route('POST', '/containers/{name...}/update', async (x) => {
      const change = decodeUpdate(await x.json<unknown>(), (major, minor) => x.atLeast(major, minor));
      x.sendJson(200, { Warnings: await services.update(named(x), change) });
    }),

    route('POST', '/containers/{name...}/resize', async (x) => {
      const size = dimensions(x);
      await services.resize(running(named(x)), size);
      x.sendEmpty(200);
    }),

    route('GET', '/containers/{name...}/top', async (x) => {
      const record = running(named(x));
      await sendJsonParts(x, processesJson(await services.top(record, x.query.text('ps_args') || '-ef')));
    }),

    route('GET', '/containers/{name...}/changes', async (x) => {
      await sendJsonParts(x, changesJson(await services.changes(named(x))));
    }),

    route('DELETE', '/containers/{name...}', async (x) => {
      if (x.query.flag('link')) {
        const [parent = '', alias = ''] = x.param('name').replace(/^\//, '').split('/');
        await services.unlink(containers.find(parent), alias);
        return x.sendEmpty(204);
      }
      return done(x, containers.remove(named(x).id, { force: x.query.flag('force'), volumes: x.query.flag('v') }));
    }),

    route('POST', '/containers/prune', (x) => prune(x, deps)),
  ];
}

type Sizes = Awaited<ReturnType<ContainerServices['sizes']>>;

/** Measures containers; leaves out those that are removed while they are measured. */
async function measured(
  records: readonly ContainerRecord[],
  sizesOf: (record: ContainerRecord) => Promise<Sizes>,
): Promise<Map<ContainerRecord, Sizes>> {
  const all = new Map<ContainerRecord, Sizes>();
  const measure = async (record: ContainerRecord): Promise<void> => {
    try {
      all.set(record, await sizesOf(record));
    } catch (error) {
      if (!isEngineError(error, 'not-found')) throw error;
    }
  };
  await Promise.all(records.map(measure));
  return all;
}

async function create(x: Exchange, { containers }: ContainerRouteDeps): Promise<void> {
  const request = decodeCreate(
    await x.optionalJson<unknown>(),
    { name: x.query.text('name'), platform: x.query.text('platform') },
    (major, minor) => x.atLeast(major, minor),
  );
  // Decoding a long request takes some milliseconds, and drafting the container as many.
  if (isLong(request)) await setImmediate();
  const { record, warnings } = await containers.create(request, x.attempt);
  x.sendJson(201, { Id: record.id, Warnings: warnings });
}

function running(record: ContainerRecord): ContainerRecord {
  if (!isRunning(record)) throw conflict(`container ${record.id} is not running`, { code: 'CONTAINER_NOT_RUNNING' });
  return record;
}

function stopOptions(x: Exchange): StopOptions {
  const signal = x.atLeast(1, 42) ? x.query.text('signal') : undefined;
  const timeoutSeconds = x.query.integer('t');
  return {
    ...(signal ? { signal: parseSignal(signal) } : {}),
    ...(timeoutSeconds === undefined ? {} : { timeoutSeconds }),
  };
}

function waitCondition(text: string | undefined): WaitCondition {
  switch (text) {
    case undefined:
    case '':
    case 'not-running':
      return 'not-running';
    case 'next-exit':
    case 'removed':
      return text;
    default:
      throw invalid(`invalid condition: "${text}"`);
  }
}

function waitBody(result: { readonly exitCode: number; readonly error?: string }): unknown {
  return { StatusCode: result.exitCode, ...(result.error === undefined ? {} : { Error: { Message: result.error } }) };
}

/** Returns `h` and `w` of a resize. Throws invalid for anything but whole numbers. */
export function dimensions(x: Exchange): { height: number; width: number } {
  return { height: dimension(x, 'h'), width: dimension(x, 'w') };
}

function dimension(x: Exchange, name: 'h' | 'w'): number {
  const text = x.query.text(name) ?? '';
  const value = Number(text);
  const fault = !/^[+-]?\d+$/.test(text)
    ? 'invalid syntax'
    : value < 0 || value > 0xffff_ffff
      ? 'value out of range'
      : undefined;
  if (fault !== undefined) throw invalid(`invalid resize ${name === 'h' ? 'height' : 'width'} "${text}": ${fault}`);
  return value;
}

/** Routes that start, end and pause the processes of containers, and wait for their end. */
function lifeRoutes(deps: ContainerRouteDeps): Route[] {
  const { containers } = deps;
  const named = (x: Exchange): ContainerRecord => containers.find(x.param('name'));
  return [
    route('POST', '/containers/{name...}/start', (x) => start(x, deps), { retry: ONCE }),

    route('POST', '/containers/{name...}/stop', (x) => done(x, containers.stop(named(x).id, stopOptions(x))), {
      waitsForOthers: true,
    }),

    route(
      'POST',
      '/containers/{name...}/restart',
      async (x) => {
        const record = named(x);
        try {
          await containers.restart(record.id, stopOptions(x));
        } catch (error) {
          throw new EngineError('internal', `Cannot restart container ${x.param('name')}: ${messageOf(error)}`, {
            cause: error,
          });
        }
        x.sendEmpty(204);
      },
      { waitsForOthers: true },
    ),

    route('POST', '/containers/{name...}/kill', (x) => kill(x, deps), { retry: ONCE }),

    route('POST', '/containers/{name...}/pause', (x) => done(x, containers.pause(named(x).id))),
    route('POST', '/containers/{name...}/unpause', (x) => done(x, containers.unpause(named(x).id))),

    route('POST', '/containers/{name...}/wait', (x) => wait(x, deps), { waitsForOthers: true }),
  ];
}

function start(x: Exchange, deps: ContainerRouteDeps): void | Promise<void> {
  if (x.bodyLength > 7 || x.bodyLength < 0) {
    throw invalid('starting container with non-empty request body was deprecated since API v1.22 and removed in v1.24');
  }
  if (x.query.text('checkpoint')) throw noCheckpoint(deps.isExperimental());
  const { containers } = deps;
  const { id, state } = containers.find(x.param('name'));
  // The time is written down before the process runs; an error says that it never did.
  const hasRun = state.error === '' && wasDone(x, state.startedAt);
  return hasRun ? x.sendEmpty(204) : done(x, containers.start(id));
}

async function kill(x: Exchange, { containers, earlier }: ContainerRouteDeps): Promise<void> {
  const name = x.param('name');
  try {
    const signal = parseSignal(x.query.text('signal') || 'SIGKILL');
    const record = containers.find(name);
    if (!isRunning(record) && wasDone(x, record.state.finishedAt)) return x.sendEmpty(204);
    // The event comes before the signal, so the signal may not have been sent. It is sent again, but not told again.
    const wasTold = await earlier.has(x.attempt, ['container', 'kill', record.id], { signal: String(signal) });
    await done(x, containers.kill(record.id, signal, wasTold));
  } catch (error) {
    throw isEngineError(error)
      ? new EngineError(error.kind, `cannot kill container: ${name}: ${error.message}`, { cause: error })
      : error;
  }
}

/** True when a daemon that is gone had begun the request, and this has happened since. @param time as in records. */
function wasDone({ attempt }: Exchange, time: string): boolean {
  return attempt?.isInterrupted === true && Date.parse(time) >= attempt.begunMs;
}

async function done(x: Exchange, work: Promise<unknown>): Promise<void> {
  await work;
  x.sendEmpty(204);
}

async function listContainers(x: Exchange, deps: ContainerRouteDeps): Promise<void> {
  const { containers, services, view } = deps;
  const size = x.query.flag('size');
  const records = selectContainers(
    containers.list(),
    {
      all: x.query.flag('all'),
      limit: x.query.integer('limit') ?? 0,
      filters: parseFilters(x.query.text('filters')),
    },
    {
      find: (reference) => containers.find(reference),
      imageId: (reference) => deps.imageId(reference),
      isAncestor: (image, ancestor) => deps.isAncestor(image, ancestor),
    },
  );
  const nowMs = Date.now();
  const members = x.atLeast(1, 48) ? 'full' : x.atLeast(1, 46) ? 'annotated' : 'plain';
  const sizes = size ? await measured(records, (record) => services.sizes(record)) : undefined;
  const shown = sizes ? records.filter((record) => sizes.has(record)) : records;
  const write = (record: ContainerRecord): string => listItemJson(record, view, members, nowMs, sizes?.get(record));
  await sendJsonParts(x, listPieces(shown, write), WHOLE_LIST_CHARS);
}

async function wait(x: Exchange, { containers, services }: ContainerRouteDeps): Promise<void> {
  const reference = x.param('name');
  // Before 1.30 the condition was not known, and headers came together with the body.
  const early = x.atLeast(1, 30);
  await containers.knows(reference);
  const result = services.wait(reference, early ? waitCondition(x.query.text('condition')) : 'not-running', x.signal);
  if (!early) {
    x.sendJson(200, waitBody(await result));
    return;
  }
  // The Go client does not call start before it has these headers.
  const stream = x.stream(200, { 'Content-Type': 'application/json' });
  try {
    stream.write(`${JSON.stringify(waitBody(await result))}\n`);
  } finally {
    stream.end();
  }
}

async function prune(x: Exchange, { services }: ContainerRouteDeps): Promise<void> {
  const filters = parseFilters(x.query.text('filters')).allow(['label', 'label!', 'until']);
  const untilMs = untilOf(filters, Date.now());
  const { ids, reclaimedBytes } = await services.prune(
    (record) =>
      !isRunning(record) &&
      (untilMs === undefined || Date.parse(record.created) < untilMs) &&
      filters.matchesLabels(record.config.Labels) &&
      !(filters.has('label!') && filters.matchesLabels(record.config.Labels, 'label!')),
  );
  x.sendJson(200, { ContainersDeleted: ids.length === 0 ? null : ids, SpaceReclaimed: reclaimedBytes });
}
