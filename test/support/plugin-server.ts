/** A plugin in the process of the test, found by daemons as operators install them: by its socket's name. */
import { once } from 'node:events';
import { mkdirSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { join } from 'node:path';

/** Where both engines look. */
const DIR = '/run/docker/plugins';

export interface PluginCall {
  readonly method: string;
  readonly argument: Readonly<Record<string, unknown>>;
}

/** Answers a call with what it returns; what it throws becomes the `Err` of the answer. */
export type Handler = (argument: Readonly<Record<string, unknown>>) => unknown;

export class PluginServer {
  readonly name: string;
  readonly #kinds: readonly string[];
  readonly #handlers: Readonly<Record<string, Handler>>;
  /** In their order, without the greetings. */
  calls: PluginCall[] = [];
  /**
   * Methods that are answered by something else than their handler: text as it is; `hang` and `cut` by nothing, as
   * `mute`, which does the work.
   */
  readonly faults = new Map<string, string>();
  #server: Server | undefined;

  constructor(name: string, kinds: readonly string[], handlers: Readonly<Record<string, Handler>>) {
    this.name = name;
    this.#kinds = kinds;
    this.#handlers = handlers;
  }

  get #path(): string {
    return join(DIR, `${this.name}.sock`);
  }

  async start(): Promise<void> {
    mkdirSync(DIR, { recursive: true });
    rmSync(this.#path, { force: true });
    this.#server = createServer((request, response) => void this.#serve(request, response)).listen(this.#path);
    await once(this.#server, 'listening');
  }

  async stop(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    rmSync(this.#path, { force: true });
    if (!server) return;
    const closed = once(server, 'close');
    server.close();
    server.closeAllConnections();
    await closed;
  }

  /** Names of the methods that were called since the last time, without the driver's name. */
  take(): string[] {
    const names = this.calls.map(({ method }) => method.replace(/^.*\./, ''));
    this.calls = [];
    return names;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
    const method = (request.url ?? '').slice(1);
    const reply = (value: unknown): void =>
      void response.setHeader('Content-Type', 'application/vnd.docker.plugins.v1.2+json').end(JSON.stringify(value));
    if (method === 'Plugin.Activate') return reply({ Implements: this.#kinds });
    const text = Buffer.concat(chunks).toString();
    const argument = (text === '' ? {} : JSON.parse(text)) as PluginCall['argument'];
    this.calls.push({ method, argument });
    const fault = this.faults.get(method);
    if (fault === 'hang') return;
    if (fault === 'cut') return void response.destroy();
    if (fault !== undefined && fault !== 'mute') return void response.end(fault);
    const handler = this.#handlers[method];
    if (!handler) return void response.writeHead(404).end('404 page not found\n');
    try {
      const answer = (await handler(argument)) ?? {};
      if (fault !== 'mute') reply(answer);
    } catch (error) {
      reply({ Err: error instanceof Error ? error.message : String(error) });
    }
  }
}
