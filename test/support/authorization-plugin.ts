/**
 * An authorization plugin in a process of its own, as operators install them: listens on a socket, decides by rules.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

/** Denies what matches all of its members, which are regular expressions. */
export interface DenyRule {
  readonly phase?: 'request' | 'reply';
  readonly method?: string;
  readonly uri?: string;
  readonly body?: string;
  readonly replyBody?: string;
  readonly user?: string;
}

export type Behaviour = 'decide' | 'hang' | 'die' | 'rubbish' | 'fail' | 'err' | 'maybe' | 'cut';

export interface PluginSettings {
  readonly behaviour: Behaviour;
  readonly deny: readonly DenyRule[];
}

/** A question to a plugin: the fields of the protocol, bodies decoded. */
export interface Question {
  readonly phase: 'request' | 'reply';
  readonly fields: Readonly<Record<string, unknown>>;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
}

export type ToPlugin =
  | { readonly kind: 'listen'; readonly path: string }
  | { readonly kind: 'set'; readonly settings: PluginSettings }
  | { readonly kind: 'questions' };
export type FromPlugin =
  | { readonly kind: 'done' }
  | { readonly kind: 'questions'; readonly questions: readonly Question[] };

const SCRIPT = fileURLToPath(new URL('./authorization-plugin-process.js', import.meta.url));

export class AuthorizationPlugin {
  readonly socketPath: string;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, socketPath: string) {
    this.#child = child;
    this.socketPath = socketPath;
  }

  static async start(socketPath: string, settings: Partial<PluginSettings> = {}): Promise<AuthorizationPlugin> {
    const child = fork(SCRIPT);
    const plugin = new AuthorizationPlugin(child, socketPath);
    await plugin.set(settings);
    await plugin.#ask({ kind: 'listen', path: socketPath });
    return plugin;
  }

  /** Everything that is not said is back to deciding, and to allowing. Forgets the questions so far. */
  async set(settings: Partial<PluginSettings>): Promise<void> {
    await this.#ask({ kind: 'set', settings: { behaviour: 'decide', deny: [], ...settings } });
  }

  /** Since the last `set`. */
  async questions(): Promise<readonly Question[]> {
    const answer = await this.#ask({ kind: 'questions' });
    return answer.kind === 'questions' ? answer.questions : [];
  }

  /** The questions without headers. */
  async asked(): Promise<readonly Pick<Question, 'phase' | 'fields'>[]> {
    return (await this.questions()).map(({ phase, fields }) => ({ phase, fields }));
  }

  /** The body of a reply that this plugin denied. */
  get denial(): string {
    return `{"message":"authorization denied by plugin ${this.socketPath}: not for you"}\n`;
  }

  get isRunning(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  async stop(): Promise<void> {
    if (!this.isRunning) return;
    const exit = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await exit;
  }

  async #ask(message: ToPlugin): Promise<FromPlugin> {
    const reply = once(this.#child, 'message') as Promise<[FromPlugin]>;
    this.#child.send(message);
    return (await reply)[0];
  }
}
