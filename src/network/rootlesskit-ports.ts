/**
 * Opens ports of the machine through RootlessKit, whose parent process listens outside and whose child connects from
 * the daemon's network namespace. Its API is HTTP on a socket in its state directory, which is the user's alone.
 */
import { lstat } from 'node:fs/promises';
import { request } from 'node:http';
import { isIPv4 } from 'node:net';
import { internal, invalid, messageOf } from '../errors/engine-error.js';
import type { Logger } from '../ports/logger.js';
import type { PublishedPort } from '../ports/network.js';
import type { OuterPort, OuterPorts } from './outer-ports.js';

/** It answers at once, a busy machine may take seconds for that: one that does not for so long has hung. */
const ANSWER_MS = 60_000;
const MAX_ANSWER_BYTES = 4 << 20;
/** These drivers let every port of the namespace appear on the machine, or none, without being told. */
const SILENT = new Set(['', 'none', 'implicit']);

interface Info {
  readonly networkDriver?: { readonly childIP?: string } | null;
  readonly portDriver?: {
    readonly driver?: string;
    readonly protos?: readonly string[];
    /** Connections can only be led to the address of the namespace itself. */
    readonly disallowLoopbackChildIP?: boolean;
  } | null;
}

interface Spec {
  readonly proto: string;
  readonly parentIP: string;
  readonly parentPort: number;
  readonly childIP: string;
  readonly childPort: number;
}

interface Status {
  readonly id: number;
  readonly spec: Spec;
}

export class RootlessKitPorts implements OuterPorts {
  #info: Info = {};
  /** Ports that were open before this run. */
  #found: Status[] = [];
  /** A port that is being closed would be in the way of the next container that has its number. */
  readonly #closing = new Set<Promise<void>>();

  constructor(
    private readonly socketPath: string,
    private readonly log: Logger,
  ) {}

  async start(): Promise<void> {
    await this.#checkOwner();
    this.#info = (await this.#call('GET', '/v1/info')) as Info;
    if (this.#isSilent) return;
    this.#found = ((await this.#call('GET', '/v1/ports')) as Status[] | null) ?? [];
  }

  /** A socket that another user made could lead ports of containers anywhere. @throws EngineError invalid. */
  async #checkOwner(): Promise<void> {
    const { uid } = await lstat(this.socketPath).catch((error: unknown) => {
      throw invalid(`the socket of rootlesskit cannot be used: ${messageOf(error)}`, { cause: error });
    });
    if (uid !== process.geteuid?.())
      throw invalid(`the socket of rootlesskit (${this.socketPath}) does not belong to the user of the daemon`);
  }

  get #isSilent(): boolean {
    return SILENT.has(this.#info.portDriver?.driver ?? '');
  }

  async open(port: PublishedPort, containerIp: string): Promise<OuterPort | undefined> {
    if (this.#isSilent) return undefined;
    const spec = this.#specOf(port, containerIp);
    const known = this.#found.find((one) => isSame(one.spec, spec));
    if (known) {
      this.#found = this.#found.filter((one) => one !== known);
      return this.#opened(known.id);
    }
    await this.#makeRoom(spec);
    await Promise.all(this.#closing);
    try {
      const { id } = (await this.#call('POST', '/v1/ports', spec)) as Status;
      return this.#opened(id);
    } catch (error) {
      throw explained(error, port);
    }
  }

  async settle(): Promise<void> {
    const left = this.#found;
    this.#found = [];
    await Promise.all(left.map(({ id }) => this.#close(id)));
  }

  #specOf({ protocol, hostIp, hostPort, containerPort }: PublishedPort, containerIp: string): Spec {
    const proto = `${protocol}${isIPv4(hostIp) ? 4 : 6}`;
    const { driver = '', protos = [], disallowLoopbackChildIP = false } = this.#info.portDriver ?? {};
    if (!protos.includes(proto))
      throw internal(`the port driver ${driver} of rootlesskit cannot publish ${protocol} ports of ${hostIp}`);
    const child = disallowLoopbackChildIP
      ? { childIP: this.#info.networkDriver?.childIP ?? '', childPort: hostPort }
      : { childIP: containerIp, childPort: containerPort };
    return { proto, parentIP: hostIp, parentPort: hostPort, ...child };
  }

  /** Closes a port of an earlier run that has the number, and whose container has ended meanwhile. */
  async #makeRoom({ proto, parentIP, parentPort }: Spec): Promise<void> {
    const inTheWay = this.#found.filter(
      ({ spec }) => spec.proto === proto && spec.parentIP === parentIP && spec.parentPort === parentPort,
    );
    this.#found = this.#found.filter((one) => !inTheWay.includes(one));
    await Promise.all(inTheWay.map(({ id }) => this.#close(id)));
  }

  #opened(id: number): OuterPort {
    return { close: () => this.#close(id) };
  }

  async #close(id: number): Promise<void> {
    const closing = this.#call('DELETE', `/v1/ports/${id}`).then(
      () => undefined,
      (error: unknown) => this.log.error({ err: error, port: id }, 'rootlesskit does not close a published port'),
    );
    this.#closing.add(closing);
    await closing;
    this.#closing.delete(closing);
  }

  /** @throws EngineError internal with what rootlesskit says. */
  #call(method: string, path: string, body?: unknown): Promise<unknown> {
    const text = body === undefined ? '' : JSON.stringify(body);
    return new Promise((resolve, reject) => {
      const fail = (reason: string): void => reject(internal(`rootlesskit: ${reason}`));
      const sent = request(
        {
          socketPath: this.socketPath,
          method,
          path,
          headers: { 'Content-Type': 'application/json' },
          timeout: ANSWER_MS,
        },
        (answer) => {
          const pieces: Buffer[] = [];
          let bytes = 0;
          answer.on('data', (piece: Buffer) => {
            bytes += piece.length;
            if (bytes > MAX_ANSWER_BYTES) sent.destroy(new Error('its answer is too long'));
            else pieces.push(piece);
          });
          answer.on('error', (error) => fail(messageOf(error)));
          answer.on('end', () => {
            try {
              const content = Buffer.concat(pieces).toString('utf8');
              const value: unknown = content.trim() === '' ? undefined : JSON.parse(content);
              if ((answer.statusCode ?? 500) < 300) resolve(value);
              else fail((value as { message?: string } | undefined)?.message ?? `status ${answer.statusCode}`);
            } catch (error) {
              fail(messageOf(error));
            }
          });
        },
      );
      sent.on('timeout', () => sent.destroy(new Error(`no answer within ${ANSWER_MS / 1000} s`)));
      sent.on('error', (error) => fail(messageOf(error)));
      sent.end(text);
    });
  }
}

function isSame(a: Spec, b: Spec): boolean {
  return (['proto', 'parentIP', 'parentPort', 'childIP', 'childPort'] as const).every((name) => a[name] === b[name]);
}

/** Tells clients of a taken port in the words that they know; other refusals name their remedy themselves. */
function explained(error: unknown, { hostIp, hostPort }: PublishedPort): Error {
  const reason = messageOf(error);
  const place = `${isIPv4(hostIp) ? hostIp : `[${hostIp}]`}:${hostPort}`;
  if (/address already in use|conflict with ID/.test(reason))
    return internal(`Bind for ${place} failed: port is already allocated`, { code: 'PORT_IN_USE', cause: error });
  const hasNoFamily = reason.includes('address family not supported');
  return internal(`failed to bind host port for ${place}: ${reason}`, {
    code: hasNoFamily ? 'NO_FAMILY' : 'PORT_UNAVAILABLE',
    cause: error,
  });
}
