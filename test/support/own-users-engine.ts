/** A daemon that has ids for containers with users of their own, and such containers. */
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before } from 'node:test';
import { Cleanup } from './cleanup.js';
import { removeContainers } from './container-removal.js';
import { Engine, type EngineKind } from './engine.js';
import { engined } from './engined.js';
import { call, callJson } from './http.js';
import { archiveOf, load, oldArchive } from './image-archives.js';
import { enterOwnEtc } from './own-etc.js';
import { IMAGE, image } from './users-image.js';

export const FIRST = 1_500_000_000;

export interface OwnInspection {
  readonly Id: string;
  readonly State: { readonly Pid: number; readonly Health?: { readonly Status: string } };
  readonly HostConfig: { readonly UsernsMode: string };
  readonly GraphDriver: { readonly Data: { readonly UpperDir: string; readonly MergedDir: string } };
}

/** To be made once, at the top of a test file. `count` ids are for containers. */
export class OwnUsersEngine {
  engine!: Engine;
  /** More flags of the daemon, from its next start on. */
  readonly args = ['--live-restore'];
  readonly temp = mkdtempSync(join(tmpdir(), 'userns-auto-'));
  readonly #cleanup = new Cleanup();

  constructor(readonly count: number) {
    before(() => this.#start());
    after(() => this.#cleanup.run());
  }

  async #start(): Promise<void> {
    this.#cleanup.add(async () => rmSync(this.temp, { recursive: true, force: true }));
    const etc = join(this.temp, 'etc');
    mkdirSync(etc);
    enterOwnEtc(etc);
    this.#cleanup.add(async () => void execFileSync('umount', ['-l', '/etc', etc]));
    this.setRanges(`somebody:100000:65536\nengined:${FIRST}:${this.count}\n`);
    this.engine = await Engine.start(passable(engined({ args: this.args })));
    this.#cleanup.add(() => this.engine.close());
    this.#cleanup.add(() => removeContainers(this.engine));
    await load(this.engine, archiveOf(oldArchive(image, [IMAGE])));
  }

  /** Writes /etc/subuid and /etc/subgid, as the daemon sees them. */
  setRanges(text: string): void {
    for (const name of ['subuid', 'subgid']) writeFileSync(`/etc/${name}`, text);
  }

  /** Creates a container, with `--userns=auto` unless `host` says otherwise; returns its ID. */
  async create(command: string, host: object = {}, config: object = {}): Promise<string> {
    const json = { Image: IMAGE, Cmd: ['sh', '-c', command], HostConfig: { UsernsMode: 'auto', ...host }, ...config };
    return (await this.json<{ Id: string }>('POST', '/containers/create', json)).Id;
  }

  async start(...args: Parameters<OwnUsersEngine['create']>): Promise<string> {
    const id = await this.create(...args);
    await this.json('POST', `/containers/${id}/start`);
    return id;
  }

  /** Runs a container to its end, and returns its output. */
  async run(...args: Parameters<OwnUsersEngine['create']>): Promise<string> {
    const id = await this.start(...args);
    await this.json('POST', `/containers/${id}/wait`);
    const output = await this.output(id);
    await this.json('DELETE', `/containers/${id}?v=1`);
    return output;
  }

  async output(id: string): Promise<string> {
    const { body } = await call(this.engine.socketPath, 'GET', `/containers/${id}/logs?stdout=1&stderr=1`);
    const parts: string[] = [];
    for (let at = 0; at + 8 <= body.length; at += 8 + body.readUInt32BE(at + 4))
      parts.push(body.subarray(at + 8, at + 8 + body.readUInt32BE(at + 4)).toString());
    return parts.join('').trimEnd();
  }

  inspect(id: string): Promise<OwnInspection> {
    return this.json('GET', `/containers/${id}/json`);
  }

  /** Asks, and throws unless it succeeds. */
  json<T>(method: string, path: string, json?: object): Promise<T> {
    return callJson<T>(this.engine.socketPath, method, path, json ? { json } : {});
  }
}

/** Its directory lets users pass, which those of `mkdtemp` do not. */
function passable(kind: EngineKind): EngineKind {
  return {
    ...kind,
    command: (dir, socketPath) => {
      chmodSync(dir, 0o711);
      return kind.command(dir, socketPath);
    },
  };
}

/** The first id on this host of a process's user namespace, and how many there are. */
export function idMap(pid: number, kind: 'uid' | 'gid'): readonly [first: number, count: number] {
  const lines = readFileSync(`/proc/${pid}/${kind}_map`, 'utf8').trim().split('\n');
  const [inside, first = 0, count = 0] = (lines[0] ?? '').trim().split(/ +/).map(Number);
  if (lines.length !== 1 || inside !== 0) throw new Error(`${pid} has other ids: ${lines.join(', ')}`);
  return [first, count];
}
