/** The Dockerfile instructions that a commit may apply to an image configuration. */
import { invalid, type EngineError } from '../errors/engine-error.js';
import type { HealthConfig } from '../ports/container.js';
import type { ImageRuntimeConfig } from '../ports/images.js';
import { expandVariables } from './expand-variables.js';
import { signalNumber } from '../text/signals.js';
import { ownMember } from '../text/own-member.js';

const bad = (message: string): EngineError => invalid(message, { code: 'INVALID_CHANGE' });

/**
 * A part of an instruction's arguments: it is in quotes, behind a backslash, or plain. A quote that is not closed is
 * `stray`.
 */
interface Piece {
  readonly kind: 'plain' | 'taken' | 'stray';
  readonly text: string;
}

function piecesOf(text: string): Piece[] {
  const pieces: Piece[] = [];
  for (let at = 0; at < text.length;) {
    const char = text.charAt(at);
    const end = char === '"' ? closingQuote(text, at) : char === "'" ? text.indexOf("'", at + 1) : at + 1;
    if (char === '"' && end > 0)
      pieces.push({ kind: 'taken', text: text.slice(at + 1, end).replaceAll(/\\(["\\$])/g, '$1') });
    else if (char === "'" && end > 0) pieces.push({ kind: 'taken', text: text.slice(at + 1, end) });
    else if (char === '\\' && end < text.length) pieces.push({ kind: 'taken', text: text.charAt(end) });
    else {
      pieces.push({ kind: '"\'\\'.includes(char) ? 'stray' : 'plain', text: char });
      at++;
      continue;
    }
    at = end + 1;
  }
  return pieces;
}

function closingQuote(text: string, start: number): number {
  let at = start + 1;
  while (at < text.length && text[at] !== '"') at += text[at] === '\\' ? 2 : 1;
  return at < text.length ? at : -1;
}

/**
 * Splits an instruction's arguments by shell-like rules: quotes group, and a backslash takes the next character as it
 * is.
 */
function words(text: string): string[] {
  const found: string[] = [];
  let word: string | undefined;
  const end = (): void => {
    if (word !== undefined) found.push(word);
    word = undefined;
  };
  for (const piece of piecesOf(text)) {
    if (piece.kind === 'stray' || (piece.kind === 'plain' && piece.text.trim() === '')) end();
    else word = (word ?? '') + piece.text;
  }
  end();
  return found;
}

function unquoted(text: string): string {
  return piecesOf(text)
    .map((piece) => piece.text)
    .join('');
}

/** Parses `["a","b"]`; returns undefined when the text is not in that form. */
function jsonList(text: string): string[] | undefined {
  if (!text.startsWith('[')) return undefined;
  try {
    const parsed: unknown = JSON.parse(text);
    return Array.isArray(parsed) && parsed.every((item) => typeof item === 'string') ? parsed : undefined;
  } catch {
    return undefined; // then it is the shell form
  }
}

const DEFAULT_SHELL = ['/bin/sh', '-c'];

function commandOf(text: string, config: ImageRuntimeConfig): string[] {
  return jsonList(text) ?? (text === '' ? [] : [...(config.Shell ?? DEFAULT_SHELL), text]);
}

/** Parses `K=V K2="V 2"`, or the old `K V`. */
function pairs(instruction: string, text: string): [string, string][] {
  const first = /^\S+/.exec(text)?.[0] ?? '';
  if (text !== '' && !first.includes('=')) {
    const value = text.slice(first.length).trim();
    if (value === '') throw bad(`${instruction} must have two arguments`);
    return [[first, unquoted(value)]];
  }
  return words(text).map((word): [string, string] => {
    const equals = word.indexOf('=');
    if (equals < 0)
      throw bad(`Syntax error - can't find = in ${JSON.stringify(word)}. Must be of the form: name=value`);
    if (equals === 0) throw bad(`${instruction} names can not be blank`);
    return [word.slice(0, equals), word.slice(equals + 1)];
  });
}

function withVariables(
  env: readonly string[],
  variables: readonly (readonly [name: string, value: string])[],
): string[] {
  const result = [...env];
  const places = new Map(env.map((entry, index) => [entry.split('=', 1)[0] ?? '', index] as const).reverse());
  for (const [name, value] of variables) {
    const place = places.get(name) ?? result.length;
    places.set(name, place);
    result[place] = `${name}=${value}`;
  }
  return result;
}

const UNITS: Readonly<Record<string, number>> = { ns: 1, us: 1e3, '\u00b5s': 1e3, ms: 1e6, s: 1e9, m: 60e9, h: 3600e9 };

/** Returns the nanoseconds of a Go duration such as `1m30s`. */
function duration(flag: string, text: string): number {
  if (!/^(?:\d+(?:\.\d+)?(?:ns|us|\u00b5s|ms|s|m|h))+$/.test(text))
    throw bad(`time: invalid duration ${JSON.stringify(text)} for ${flag}`);
  let total = 0;
  for (const [, amount = '0', unit = 's'] of text.matchAll(/(\d+(?:\.\d+)?)(ns|us|\u00b5s|ms|s|m|h)/gy))
    total += Number(amount) * (UNITS[unit] ?? 0);
  if (total < 1e6) throw bad(`Interval "${flag}" cannot be less than 1ms`);
  return total;
}

function healthcheck(text: string, config: ImageRuntimeConfig): HealthConfig {
  const flags = /^(?:--\S+\s+)*/.exec(text)?.[0] ?? '';
  const rest = text.slice(flags.length).trim();
  const [type = '', ...remaining] = rest.split(/\s+/);
  if (type.toUpperCase() === 'NONE') {
    if (remaining.length > 0) throw bad('HEALTHCHECK NONE takes no arguments');
    return { Test: ['NONE'] };
  }
  if (type.toUpperCase() !== 'CMD') throw bad(`Unknown type ${JSON.stringify(type)} in HEALTHCHECK (try CMD)`);
  const command = rest.slice(type.length).trim();
  if (command === '') throw bad('Missing command after HEALTHCHECK CMD');
  const list = jsonList(command);
  const health: HealthConfig = {
    Test: list ? ['CMD', ...list] : config.Shell ? ['CMD', ...config.Shell, command] : ['CMD-SHELL', command],
  };
  for (const flag of flags.split(/\s+/).filter((item) => item !== '')) {
    const [name = '', value = ''] = flag.slice(2).split('=', 2);
    if (name === 'interval') health.Interval = duration(name, value);
    else if (name === 'timeout') health.Timeout = duration(name, value);
    else if (name === 'start-period') health.StartPeriod = duration(name, value);
    else if (name === 'start-interval') health.StartInterval = duration(name, value);
    else if (name === 'retries') {
      if (!/^\d+$/.test(value)) throw bad(`--retries must be at least 1 (not ${value})`);
      health.Retries = Number(value);
    } else throw bad(`Unknown flag: ${name}`);
  }
  return health;
}

const joinPath = (base: string | undefined, path: string): string => {
  const parts: string[] = [];
  for (const part of (path.startsWith('/') ? path : `${base ?? ''}/${path}`).split('/')) {
    if (part === '..') parts.pop();
    else if (part !== '' && part !== '.') parts.push(part);
  }
  return `/${parts.join('/')}`;
};

const keys = (names: readonly string[]): Record<string, Record<string, never>> =>
  Object.fromEntries(names.map((name) => [name, {}]));

function port(text: string): string[] {
  const match = /^(\d+)(?:-(\d+))?(?:\/(tcp|udp|sctp))?$/i.exec(text);
  const [from, to] = [Number(match?.[1]), Number(match?.[2] ?? match?.[1])];
  if (!match || from > to || to > 65_535) throw bad(`invalid containerPort: ${text}`);
  const protocol = (match[3] ?? 'tcp').toLowerCase();
  return Array.from({ length: to - from + 1 }, (_, index) => `${from + index}/${protocol}`);
}

type Apply = (config: ImageRuntimeConfig, text: string) => ImageRuntimeConfig;

function need(instruction: string, apply: Apply): Apply {
  return (config, text) => {
    if (text === '') throw bad(`${instruction} requires at least one argument`);
    return apply(config, text);
  };
}

function needOne(instruction: string, apply: Apply): Apply {
  return (config, text) => {
    if (text === '') throw bad(`${instruction} requires exactly one argument`);
    return apply(config, text);
  };
}

/** Wraps an instruction so that variables in its arguments are replaced by their values in the environment so far. */
function expanded(apply: Apply): Apply {
  return (config, text) => apply(config, text.startsWith('[') ? text : expandVariables(text, config.Env ?? []));
}

const INSTRUCTIONS: Readonly<Record<string, Apply>> = {
  CMD: (config, text) => ({ ...config, Cmd: commandOf(text, config) }),
  ENTRYPOINT: (config, text) => ({ ...config, Entrypoint: commandOf(text, config) }),
  ENV: need(
    'ENV',
    expanded((config, text) => ({ ...config, Env: withVariables(config.Env ?? [], pairs('ENV', text)) })),
  ),
  EXPOSE: need(
    'EXPOSE',
    expanded((config, text) => ({
      ...config,
      ExposedPorts: { ...config.ExposedPorts, ...keys(words(text).flatMap(port)) },
    })),
  ),
  HEALTHCHECK: need('HEALTHCHECK', (config, text) => ({ ...config, Healthcheck: healthcheck(text, config) })),
  LABEL: need(
    'LABEL',
    expanded((config, text) => ({
      ...config,
      Labels: { ...config.Labels, ...Object.fromEntries(pairs('LABEL', text)) },
    })),
  ),
  ONBUILD: need('ONBUILD', (config, text) => {
    const trigger = text.split(/\s/, 1)[0]?.toUpperCase() ?? '';
    if (trigger === 'ONBUILD') throw bad("Chaining ONBUILD via `ONBUILD ONBUILD` isn't allowed");
    if (trigger === 'MAINTAINER' || trigger === 'FROM') throw bad(`${trigger} isn't allowed as an ONBUILD trigger`);
    return { ...config, OnBuild: [...(config.OnBuild ?? []), text] };
  }),
  SHELL: need('SHELL', (config, text) => {
    const shell = jsonList(text);
    if (!shell || shell.length === 0) throw bad('SHELL requires the arguments to be in JSON form');
    return { ...config, Shell: shell };
  }),
  STOPSIGNAL: needOne(
    'STOPSIGNAL',
    expanded((config, text) => {
      if (signalNumber(text) === undefined) throw bad(`invalid signal: ${text}`);
      return { ...config, StopSignal: text };
    }),
  ),
  USER: needOne(
    'USER',
    expanded((config, text) => ({ ...config, User: words(text)[0] ?? '' })),
  ),
  VOLUME: need(
    'VOLUME',
    expanded((config, text) => ({ ...config, Volumes: { ...config.Volumes, ...keys(jsonList(text) ?? words(text)) } })),
  ),
  WORKDIR: need(
    'WORKDIR',
    expanded((config, text) => ({ ...config, WorkingDir: joinPath(config.WorkingDir, unquoted(text)) })),
  ),
};

/**
 * Applies the instructions in order to a copy. Throws `invalid` naming the instruction that cannot be applied, or when
 * changes are given and none of them is an instruction: they were meant to change something.
 */
export function applyChanges(config: ImageRuntimeConfig, changes: readonly string[]): ImageRuntimeConfig {
  let result = config;
  const applied = new Set<string>();
  for (const line of changes.flatMap((change) => change.split('\n'))) {
    const [, name = '', text = ''] = /^\s*(\S+)\s*(.*)$/s.exec(line.trimEnd()) ?? [];
    if (name === '' || name.startsWith('#')) continue;
    const apply = ownMember(INSTRUCTIONS, name.toUpperCase());
    if (!apply) throw bad(`${name.toUpperCase()} is not a valid change command`);
    result = apply(result, text);
    applied.add(name.toUpperCase());
  }
  if (changes.length > 0 && applied.size === 0) throw bad('file with no instructions');
  if (!applied.has('ENTRYPOINT') || applied.has('CMD')) return result;
  // The old command was made for another entrypoint.
  const { Cmd: _old, ...rest } = result;
  return rest;
}
