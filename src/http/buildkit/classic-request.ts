/** Translates `POST /build` with `version=2` into an order for BuildKit. */
import { create } from '@bufbuild/protobuf';
import { internal, invalid } from '../../errors/engine-error.js';
import { parsePlatform } from '../../registry/platform.js';
import {
  buildArgs,
  buildOutputs,
  cacheImages,
  imageNames,
  labels,
  ulimits,
  type QueryOutput,
} from '../api/build-query.js';
import type { Query } from '../query.js';
import { isExporter, isImage, noExporter } from './exporters.js';
import { type SolveRequest, SolveRequestSchema } from './proto/gen/control_pb.js';

const CLIENT = 'client-session';
const FRONTEND = 'dockerfile.v0';
const NETWORKS: ReadonlySet<string> = new Set(['', 'default', 'host', 'none']);

export interface Order {
  readonly ref: string;
  /** Where the context is, when it came with the request; undefined: where the parameters say. */
  readonly context: string | undefined;
}

/** @throws EngineError invalid for what cannot be read; internal for an output that cannot be had. */
export function solveRequest(query: Query, { ref, context }: Order): SolveRequest {
  const output = outputOf(query);
  for (const platform of query.text('platform').split(',')) if (platform !== '') parsePlatform(platform);
  const { type, attrs } = output ?? { type: 'moby', attrs: {} };
  const names = imageNames(query);
  const named = isImage(type) && names.length > 0 ? { name: names.join(',') } : {};
  return create(SolveRequestSchema, {
    ref,
    frontend: FRONTEND,
    frontendAttrs: Object.fromEntries(frontendAttrs(query, context)),
    session: query.text('session'),
    exporters: type === 'cacheonly' ? [] : [{ type, attrs: { ...attrs, ...named } }],
    entitlements: query.text('networkmode') === 'host' ? ['network.host'] : [],
  });
}

/** Returns whether the result is an image in the store, whose ID is told. */
export function makesImage(query: Query): boolean {
  return isImage(outputOf(query)?.type ?? 'moby');
}

function* frontendAttrs(query: Query, context: string | undefined): Generator<[string, string]> {
  const remote = query.text('remote');
  const place = context ?? (remote === CLIENT ? '' : remote);
  if (place !== '') yield ['context', place];
  for (const [name, parameter] of [
    ['target', 'target'],
    ['filename', 'dockerfile'],
    ['platform', 'platform'],
    ['cgroup-parent', 'cgroupparent'],
  ] as const) {
    const value = query.text(parameter);
    if (value !== '' && !(name === 'filename' && value === '.')) yield [name, value];
  }
  const images = cacheImages(query).filter((name) => name !== '');
  if (images.length > 0) yield ['cache-from', images.map(csvField).join(',')];
  for (const [key, value] of buildArgs(query)) if (value !== undefined) yield [`build-arg:${key}`, value];
  for (const [key, value] of labels(query)) yield [`label:${key}`, value];
  if (query.flag('nocache')) yield ['no-cache', ''];
  yield ['image-resolve-mode', query.flag('pull') ? 'pull' : 'default'];
  const network = query.text('networkmode');
  if (!NETWORKS.has(network)) throw invalid(`network mode ${JSON.stringify(network)} not supported by buildkit`);
  if (network === 'host' || network === 'none') yield ['force-network-mode', network];
  const hosts = query.all('extrahosts').filter((host) => host !== '');
  if (hosts.length > 0) yield ['add-hosts', hosts.map(hostField).join(',')];
  const limits = ulimits(query).map(({ Name, Soft, Hard }) => csvField(`${Name}=${Soft}:${Hard}`));
  if (limits.length > 0) yield ['ulimit', limits.join(',')];
  const shmSize = query.integer('shmsize') ?? 0;
  if (shmSize > 0) yield ['shm-size', String(shmSize)];
}

/** Docker's form is `host:address`, the attribute's is `host=address`. */
function hostField(written: string): string {
  const mark = written.search(/[:=]/);
  if (mark < 1 || mark === written.length - 1) throw invalid(`invalid host ${written}`);
  return csvField(`${written.slice(0, mark)}=${written.slice(mark + 1)}`);
}

function csvField(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/**
 * Returns what the client wants of the build; undefined: an image in the store.
 * @throws EngineError internal for what this version of the builder cannot give, in dockerd's words.
 */
function outputOf(query: Query): QueryOutput | undefined {
  const [output, ...others] = buildOutputs(query);
  if (others.length > 0) throw internal('multiple outputs not supported');
  if (output !== undefined && output.type !== 'cacheonly' && !isExporter(output.type)) throw noExporter(output.type);
  return output;
}
