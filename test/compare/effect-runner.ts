/** Runs containers whose output tells what their settings do. */
import { readdirSync } from 'node:fs';
import { hostname } from 'node:os';
import type { Engine } from '../support/engine.js';
import { call, callJson } from '../support/http.js';
import type { Effect } from './effects.js';

const disk = readdirSync('/sys/block').find((name) => !/^(loop|ram|zram)/.test(name)) ?? 'loop0';

/** The containers that others share something with, and a network. */
const DONOR = {
  Cmd: ['sh', '-c', 'echo shared > /dev/shm/of-donor; trap exit TERM; while :; do sleep 0.2; done'],
  Hostname: 'donor-host',
  Volumes: { '/donated': {} },
  ExposedPorts: { '80/tcp': {} },
  Env: ['SAID=1'],
  HostConfig: { IpcMode: 'shareable', ShmSize: 2_097_152, Sysctls: { 'kernel.msgmax': '9001' } },
};

export class EffectRunner {
  /** @param dir of the host, for binds. @param base `/v1.51`. */
  constructor(
    private readonly engine: Engine,
    private readonly image: string,
    private readonly dir: string,
    private readonly base: string,
  ) {}

  /** Makes what effects refer to by name. */
  async prepare(): Promise<void> {
    await callJson(this.engine.socketPath, 'POST', `${this.base}/networks/create`, {
      json: { Name: 'own', IPAM: { Config: [{ Subnet: '10.231.7.0/24' }] } },
    });
    await callJson(this.engine.socketPath, 'POST', `${this.base}/containers/create?name=donor`, {
      json: { Image: this.image, ...DONOR },
    });
    await callJson(this.engine.socketPath, 'POST', `${this.base}/containers/donor/start`);
  }

  /** The output of the script, or how the engine refused. Names that differ from engine to engine are left out. */
  async run({ host = {}, config = {}, update, script }: Effect): Promise<string> {
    const wait = update ? 'while [ ! -e /go ]; do sleep 0.05; done; ' : '';
    const json = {
      Image: this.image,
      Cmd: ['sh', '-c', this.#fill(wait + script)],
      ...this.#fill(config),
      HostConfig: { NetworkMode: 'none', ...this.#fill(host) },
    };
    const created = await this.#call('POST', '/containers/create', json);
    if (created.status !== 201) return this.#neutral(created.text);
    const { Id } = JSON.parse(created.text) as { Id: string };
    try {
      const started = await this.#call('POST', `/containers/${Id}/start`);
      if (started.status !== 204) return this.#neutral(started.text);
      if (update) {
        const updated = await this.#call('POST', `/containers/${Id}/update`, this.#fill(update));
        if (updated.status !== 200) return this.#neutral(updated.text);
        const exec = JSON.parse(
          (await this.#call('POST', `/containers/${Id}/exec`, { Cmd: ['touch', '/go'] })).text,
        ) as { Id: string };
        await this.#call('POST', `/exec/${exec.Id}/start`, { Detach: true });
      }
      await this.#call('POST', `/containers/${Id}/wait`);
      const { body } = await this.#call('GET', `/containers/${Id}/logs?stdout=1&stderr=1`);
      return this.#neutral(config['Tty'] === true ? body.toString() : plainText(body));
    } finally {
      await this.#call('DELETE', `/containers/${Id}?force=1&v=1`);
    }
  }

  #call(method: string, path: string, json?: unknown): ReturnType<typeof call> {
    return call(this.engine.socketPath, method, `${this.base}${path}`, json === undefined ? {} : { json });
  }

  #fill<T>(value: T): T {
    const filled = JSON.stringify(value)
      .replaceAll('{dir}', this.dir)
      .replaceAll('{hostname}', hostname())
      .replaceAll('{disk}', `/dev/${disk}`);
    return JSON.parse(filled) as T;
  }

  #neutral(text: string): string {
    return text
      .replaceAll(/[0-9a-f]{64}/g, 'ID')
      .replaceAll(this.engine.dir, 'DIR')
      .replaceAll('\r\n', '\n')
      .trimEnd();
  }
}

/** Both streams of a log without their frames. */
function plainText(body: Buffer): string {
  let text = '';
  for (let at = 0; at + 8 <= body.length; at += 8 + body.readUInt32BE(at + 4))
    text += body.toString('utf8', at + 8, at + 8 + body.readUInt32BE(at + 4));
  return text;
}
