/**
 * The commands that look at what there is, done by requests: they print objects as JSON, a field of each, or IDs. What
 * has a form of the CLI's own, as tables have, is left to it.
 */
import { ask, type Command, type Flags } from './container-commands.js';
import type { Engine } from './engine.js';
import { call, type Reply } from './http.js';
import { PAIR, split } from './pairs.js';

/** The value of a field, and what it is as JSON. */
const FIELD = /\{\{(?<json>json )?(?<path>(?:\.[A-Za-z]+)+)\}\}/;
/** Fields, with text between them. */
const TEMPLATE = new RegExp(`^[^{}]*(?:${FIELD.source.replaceAll(/\?<\w+>/g, '?:')}[^{}]*)+$`);
/** These can be printed of containers in a list. */
const COLUMN = /^\{\{\.(?:Names|Status)\}\}$/;
const SHORT_ID = 12;
const FIELDS = { '-f': TEMPLATE, '--format': TEMPLATE };

export const LOOKS: readonly (readonly [words: string, command: Command])[] = [
  // It looks for containers and images only, of all kinds of objects.
  [
    'inspect',
    inspecting(
      (name) => `/containers/${name}/json`,
      (name) => `/images/${name}/json`,
    ),
  ],
  ['network inspect', inspecting((name) => `/networks/${name}`)],
  ['image inspect', inspecting((name) => `/images/${name}/json`)],
  ['volume inspect', inspecting((name) => `/volumes/${name}`)],
  ['plugin inspect', inspecting((name) => `/plugins/${name}/json`)],
  ['info', { flags: FIELDS, run: info }],
  [
    'ps',
    {
      flags: {
        '-a': 'alone',
        '-q': 'alone',
        '-aq': 'alone',
        '--no-trunc': 'alone',
        '--format': COLUMN,
        '--filter': PAIR,
      },
      run: containers,
    },
  ],
  ['images', { flags: { '-q': 'alone', '--no-trunc': 'alone' }, run: images }],
  ['volume ls', { flags: { '-q': 'alone' }, run: volumes }],
  ['plugin ls', { flags: { '-q': 'alone' }, run: plugins }],
];

/** Returns what the template prints of a value. Structures need `json` to be printed here. */
function printed(value: unknown, flags: Flags): string | undefined {
  const template = [...flags.values()].flat().at(-1) ?? '';
  const fields = [...template.matchAll(new RegExp(FIELD, 'g'))].map(({ groups = {} }) => fieldOf(value, groups));
  if (fields.includes(undefined)) return undefined;
  return template.replaceAll(new RegExp(FIELD, 'g'), () => fields.shift() ?? '');
}

function fieldOf(
  value: unknown,
  { json, path = '' }: Readonly<Record<string, string | undefined>>,
): string | undefined {
  let field = value;
  for (const key of path.split('.').slice(1)) field = (field as Record<string, unknown> | null)?.[key];
  const isWord = ['string', 'number', 'boolean'].includes(typeof field);
  if (field === undefined || (json === undefined && !isWord)) return undefined;
  return json === undefined && typeof field === 'string' ? field : JSON.stringify(field);
}

function inspecting(...paths: readonly ((name: string) => string)[]): Command {
  return {
    flags: FIELDS,
    async run(engine, names, flags) {
      const found: unknown[] = [];
      for (const name of names) {
        let reply: Reply | undefined;
        for (const path of paths) {
          reply = await call(engine.socketPath, 'GET', path(encodeURIComponent(name)));
          if (reply.status !== 404) break;
        }
        if (reply?.status !== 200) return undefined;
        found.push(JSON.parse(reply.text));
      }
      if (flags.size === 0) return JSON.stringify(found, undefined, 4);
      const rows = found.map((value) => printed(value, flags));
      return rows.includes(undefined) ? undefined : rows.join('\n');
    },
  };
}

/** Without a template it is a text for people. */
async function info(engine: Engine, _: readonly string[], flags: Flags): Promise<string | undefined> {
  return flags.size === 0 ? undefined : printed(await ask(engine, 'GET', '/info'), flags);
}

interface ListedContainer {
  readonly Id: string;
  readonly Names: readonly string[];
  readonly Status: string;
}

async function containers(engine: Engine, _: readonly string[], flags: Flags): Promise<string | undefined> {
  const [isQuiet, format] = [flags.has('-q') || flags.has('-aq'), flags.get('--format')?.[0]];
  if (isQuiet === (format !== undefined)) return undefined;
  const all = flags.has('-a') || flags.has('-aq');
  const filters: Record<string, string[]> = {};
  for (const [key, value] of (flags.get('--filter') ?? []).map(split)) (filters[key] ??= []).push(value);
  const query = new URLSearchParams({ filters: JSON.stringify(filters), ...(all && { all: '1' }) });
  const listed = await ask<readonly ListedContainer[]>(engine, 'GET', `/containers/json?${query.toString()}`);
  const rows = listed.map(({ Id, Names, Status }) => {
    if (isQuiet) return flags.has('--no-trunc') ? Id : Id.slice(0, SHORT_ID);
    // A name within another container is that of a link.
    return format?.includes('Status')
      ? Status
      : Names.map((name) => name.slice(1))
          .filter((name) => !name.includes('/'))
          .join(',');
  });
  return rows.join('\n');
}

interface ListedImage {
  readonly Id: string;
  readonly RepoTags: readonly string[] | null;
}

/** The CLI prints a line for each name of an image, and has its own order. */
async function images(engine: Engine, [name]: readonly string[], flags: Flags): Promise<string | undefined> {
  const filters = name === undefined ? '' : `?filters=${encodeURIComponent(JSON.stringify({ reference: [name] }))}`;
  const listed = await ask<readonly ListedImage[]>(engine, 'GET', `/images/json${filters}`);
  const [image, ...others] = listed;
  const isNamedOnce = image === undefined || image.RepoTags?.length === 1;
  if (!flags.has('-q') || others.length > 0 || !isNamedOnce) return undefined;
  const { Id = '' } = image ?? {};
  return flags.has('--no-trunc') ? Id : Id.replace(/^sha256:/, '').slice(0, SHORT_ID);
}

/** More than one are in an order of the CLI. */
async function volumes(engine: Engine, _: readonly string[], flags: Flags): Promise<string | undefined> {
  const { Volumes } = await ask<{ Volumes: readonly { Name: string }[] | null }>(engine, 'GET', '/volumes');
  const [volume, ...others] = Volumes ?? [];
  return flags.has('-q') && others.length === 0 ? (volume?.Name ?? '') : undefined;
}

async function plugins(engine: Engine, _: readonly string[], flags: Flags): Promise<string | undefined> {
  const listed = await ask<readonly unknown[]>(engine, 'GET', '/plugins');
  return flags.has('-q') && listed.length === 0 ? '' : undefined;
}
