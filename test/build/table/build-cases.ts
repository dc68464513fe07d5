/** Builds the cases of the table with the engine that is asked, and tells what came out of it. */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { buildxProgram, SHORT_LIVED } from '../../support/dockerd.js';
import { call, callJson } from '../../support/http.js';
import { BASE, type TableCase } from './case.js';
import { tarOf, writeFiles } from './contexts.js';
import { emptyRecord, type ImageRecord, type InspectedImage, readImages } from './image-record.js';

export type CaseRecord = ImageRecord | { readonly error: string };

export interface Target {
  readonly socketPath: string;
  /** For DOCKER_HOST. */
  readonly host: string;
}

/** So many builds of one client run at once. */
const GROUP = 40;
/** So many clients run at once, for builds that fail. */
const ALONE = 4;

/** Tells one definition of a case from another one. */
export function digestOf(one: TableCase): string {
  return createHash('sha256').update(JSON.stringify(one)).digest('hex').slice(0, 8);
}

const tagOf = (index: number): string => `table/case${index}:latest`;

/** An image, or what was said. */
type Outcome = { readonly tag: string } | { readonly error: string };

/** By the name of each case that was built. */
export type Outcomes = ReadonlyMap<string, Outcome>;

/**
 * Builds with buildx, many at once; those that fail alone, because one that fails cancels those beside it.
 * `expected` names further ones that may fail.
 */
export async function buildWithBuildx(
  target: Target,
  cases: readonly TableCase[],
  expected: ReadonlySet<string> = new Set(),
): Promise<Outcomes> {
  const directory = mkdtempSync(join(tmpdir(), 'table-'));
  const outcomes = new Map<string, Outcome>();
  try {
    const all = cases.map((one, index) => ({ one, index, target: bakeTarget(directory, one, index) }));
    for (const { one, index } of all) outcomes.set(one.name, { tag: tagOf(index) });
    const isAlone = ({ one }: { readonly one: TableCase }): boolean => one.fails === true || expected.has(one.name);
    const alone = all.filter(isAlone);
    const together = all.filter((build) => !isAlone(build));
    while (together.length > 0) {
      const group = together.splice(0, GROUP);
      const said = await bake(target, directory, group);
      if (said === undefined) continue;
      // One that fails here and not with dockerd is named by the client; the others are built again without it.
      const failed = group.filter(({ index }) => said.includes(`target case${index}: `));
      alone.push(...(failed.length > 0 ? failed : group));
      if (failed.length > 0) together.unshift(...group.filter((build) => !failed.includes(build)));
    }
    const next = async (): Promise<void> => {
      for (let build = alone.shift(); build !== undefined; build = alone.shift()) {
        const said = await bake(target, directory, [build]);
        if (said !== undefined) outcomes.set(build.one.name, { error: plain(said) });
      }
    };
    await Promise.all(Array.from({ length: ALONE }, next));
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
  return outcomes;
}

/** Builds by `POST /build` of a builder, one after the other. */
export async function buildByPost(target: Target, cases: readonly TableCase[], version: 1 | 2): Promise<Outcomes> {
  const outcomes = new Map<string, Outcome>();
  for (const [index, one] of cases.entries()) {
    const tag = `table/posted${index}:latest`;
    const error = await post(target, one, tag, version);
    outcomes.set(one.name, error === undefined ? { tag } : { error });
  }
  return outcomes;
}

/** Returns what is said when a build fails, and nothing when the image was made. */
async function post(target: Target, one: TableCase, tag: string, version: 1 | 2): Promise<string | undefined> {
  const query = new URLSearchParams({ t: tag, rm: '1', forcerm: '1', version: String(version) });
  if (one.args) query.set('buildargs', JSON.stringify(one.args));
  if (one.labels) query.set('labels', JSON.stringify(one.labels));
  if (one.target !== undefined) query.set('target', one.target);
  const reply = await call(target.socketPath, 'POST', `/build?${query.toString()}`, {
    headers: { 'Content-Type': 'application/x-tar' },
    body: await tarOf({ ...one.files, Dockerfile: one.dockerfile }),
  });
  const failed = reply.status === 200 ? /"error":("(?:[^"\\]|\\.)*")/.exec(reply.text)?.[1] : reply.text;
  if (failed === undefined) return undefined;
  const said = JSON.parse(failed) as string | { readonly message: string };
  return plain(typeof said === 'string' ? said : said.message);
}

function bakeTarget(directory: string, one: TableCase, index: number): Record<string, unknown> {
  // Builders keep files of contexts by the last part of their paths.
  const at = (name: string): string => join(directory, name, `case${index}`);
  const { dockerfile, files, args, labels, target, platform, secrets = {}, contexts = {}, references = {} } = one;
  writeFiles(at('context'), { ...files, Dockerfile: dockerfile });
  for (const [name, entries] of Object.entries(contexts)) writeFiles(`${at('named')}-${name}`, entries);
  mkdirSync(at('secrets'), { recursive: true });
  for (const [id, value] of Object.entries(secrets)) writeFileSync(join(at('secrets'), id), value);
  const named = Object.keys(contexts).map((name): [string, string] => [name, `${at('named')}-${name}`]);
  const options: Record<string, unknown> = {
    context: at('context'),
    tags: [tagOf(index)],
    args,
    labels,
    target,
    platforms: platform === undefined ? undefined : [platform],
    contexts: Object.fromEntries([...named, ...Object.entries(references)]),
    secret: Object.keys(secrets).map((id) => `id=${id},src=${join(at('secrets'), id)}`),
    ...one.options,
  };
  // Bake reads `${` and `%{` as its own.
  return JSON.parse(JSON.stringify(options).replaceAll('${', '$${').replaceAll('%{', '%%{')) as Record<string, unknown>;
}

/**
 * Returns what the client says when a build fails, and nothing when all were built. The client is given a file of these
 * builds alone, because it takes four times as long to read that of all.
 */
async function bake(
  target: Target,
  directory: string,
  builds: readonly { readonly index: number; readonly target: object }[],
): Promise<string | undefined> {
  const targets = Object.fromEntries(builds.map((build) => [`case${build.index}`, build.target]));
  const file = `bake-${builds[0]?.index}.json`;
  writeFileSync(join(directory, file), JSON.stringify({ target: targets }));
  const args = ['bake', '--progress', 'quiet', '--allow', 'network.host', '-f', file, ...Object.keys(targets)];
  const child = spawn(buildxProgram(), args, {
    cwd: directory,
    stdio: ['ignore', 'ignore', 'pipe'],
    env: {
      ...SHORT_LIVED,
      PATH: process.env['PATH'],
      HOME: directory,
      DOCKER_HOST: target.host,
      DOCKER_CONFIG: join(directory, 'cli'),
      BUILDX_BAKE_ENTITLEMENTS_FS: '0',
    },
  });
  const [said] = await Promise.all([text(child.stderr), once(child, 'close')]);
  return child.exitCode === 0 ? undefined : said;
}

/** Leaves out of an error what is another one in each build. */
function plain(said: string): string {
  // The lines of the Dockerfile are shown before it.
  return said
    .trim()
    .replace(/^[^]*\bERROR: /, '')
    .replace(/^(?:target case\d+: )?(?:failed to solve: )?(?:failed to run Build function: )?/, '')
    .replace(/\bfailed to calculate checksum of ref \S+:/, 'failed to calculate checksum of ref REF:')
    .replaceAll(/\/[^\s:"]*\/(?:overlay2|buildkit|tmp)\/[^\s:"]*?\/(?:merged|diff|fs)(?=\/)/g, '')
    .replace(/\.pivot_root\d+/, '.pivot_root')
    .replaceAll(/\b[a-z0-9]{25}\b/g, 'ID');
}

/** Tells what is in the images that were made. */
export async function recordsOf(target: Target, outcomes: Outcomes): Promise<Map<string, CaseRecord>> {
  const found = new Map<string, CaseRecord>();
  const saved: { readonly name: string; readonly tag: string }[] = [];
  for (const [name, outcome] of outcomes) {
    if ('error' in outcome) {
      found.set(name, outcome);
      continue;
    }
    const { tag } = outcome;
    const image = await callJson<InspectedImage>(target.socketPath, 'GET', `/images/${tag}/json`);
    if (image.RootFS.Layers?.length) saved.push({ name, tag });
    // dockerd cannot save it.
    else found.set(name, emptyRecord(image, await callJson(target.socketPath, 'GET', `/images/${tag}/history`)));
  }
  const names = [BASE, ...saved.map(({ tag }) => tag)].map((tag) => `names=${encodeURIComponent(tag)}`);
  const archive = await call(target.socketPath, 'GET', `/images/get?${names.join('&')}`);
  if (archive.status !== 200) throw new Error(`save gave ${archive.status}: ${archive.text}`);
  const images = await readImages(archive.body, BASE);
  for (const { name, tag } of saved) {
    const image = images.get(tag);
    if (image === undefined) throw new Error(`${tag} of '${name}' was not saved`);
    found.set(name, image);
  }
  return found;
}
