/** Runs a script against one engine, in one version of the API, and says how the answers of two differ. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Engine } from '../support/engine.js';
import { call } from '../support/http.js';
import { shapeOf, type Shape } from './shape.js';
import type { Step } from './script.js';

export interface Answer {
  readonly status: number;
  readonly headers: ReadonlySet<string>;
  readonly contentType: string;
  readonly shape: Shape | undefined;
  readonly text: string;
}

/** Those that say nothing about the API. */
const TRANSPORT = new Set(['date', 'content-length', 'transfer-encoding', 'connection', 'keep-alive']);

export async function play(
  engine: Engine,
  script: readonly Step[],
  variables: Readonly<Record<string, string>>,
  version: string,
): Promise<Answer[]> {
  const values = new Map(Object.entries(variables));
  const fill = (text: string): string =>
    text.replaceAll(/\{(\w+)\}/g, (whole, name: string) => values.get(name) ?? whole);
  const answers: Answer[] = [];
  for (const { method, path, json, body, headers = {}, capture } of script) {
    const reply = await call(engine.socketPath, method, `/v${version}${fill(path)}`, {
      headers,
      ...(json === undefined ? {} : { json: JSON.parse(fill(JSON.stringify(json))) as unknown }),
      ...(body === undefined ? {} : { body }),
    });
    if (capture && reply.status < 300)
      values.set(capture[0], String((JSON.parse(reply.text) as Record<string, unknown>)[capture[1]]));
    const contentType = String(reply.headers['content-type'] ?? '');
    const isJson = contentType.includes('json') || (contentType === '' && /^\s*[[{]/.test(reply.text));
    answers.push({
      status: reply.status,
      headers: new Set(Object.keys(reply.headers).filter((name) => !TRANSPORT.has(name))),
      contentType,
      shape: isJson ? shapeOf(reply.text) : undefined,
      text: reply.text,
    });
    // A reply that ends by itself gets the moment it needs.
    if (path.endsWith('/start')) await sleep(300);
  }
  return answers;
}

/** One line per difference: `status 404, not 400`, `$.State.Health: missing`, … as seen from `theirs`. */
export function differences(theirs: Answer, ours: Answer): string[] {
  const found: string[] = [];
  if (theirs.status !== ours.status) return [`status ${ours.status}, not ${theirs.status}`];
  for (const name of theirs.headers) if (!ours.headers.has(name)) found.push(`header ${name}: missing`);
  for (const name of ours.headers) if (!theirs.headers.has(name)) found.push(`header ${name}: added`);
  if (theirs.contentType !== ours.contentType)
    found.push(`content type ${ours.contentType}, not ${theirs.contentType}`);
  if (!theirs.shape || !ours.shape) return found;
  for (const [path, types] of theirs.shape) {
    const there = ours.shape.get(path);
    if (!there) {
      if (!parentDiffers(path, ours.shape)) found.push(`$${path}: missing`);
    } else if (String([...types].sort()) !== String([...there].sort()))
      found.push(`$${path}: ${[...there].sort().join(' or ')}, not ${[...types].sort().join(' or ')}`);
  }
  for (const path of ours.shape.keys())
    if (!theirs.shape.has(path) && !parentDiffers(path, theirs.shape)) found.push(`$${path}: added`);
  return found;
}

/** The members of a part that is not there, or of an empty list, are not told again. */
function parentDiffers(path: string, shape: Shape): boolean {
  const parent = path.endsWith('[]') ? path.slice(0, -2) : path.slice(0, path.lastIndexOf('.'));
  const types = shape.get(parent);
  if (!types) return true;
  return path.endsWith('[]') || path.endsWith('.*') || !types.has('object');
}
