/**
 * Requests with values that make no sense, one at a time: who takes them, and what is left of those that are refused.
 */
import { messageOf } from '../../src/errors/engine-error.js';
import type { Engine } from '../support/engine.js';
import { call, callJson, type Reply } from '../support/http.js';
import { BODIES, WRONG, withField } from './bad-fields.js';
import { QUERIES } from './bad-queries.js';
import { CONFIG_VALUES, ENDPOINT_VALUES, HOST_VALUES, type Values } from './bad-values.js';

export interface Trial {
  /** `POST /containers/create HostConfig.Memory="1"`. */
  readonly label: string;
  readonly method: string;
  readonly path: string;
  readonly json?: Readonly<Record<string, unknown>>;
  /** Created containers are started, too: some engines see some values only then. */
  readonly starts: boolean;
}

export interface Outcome {
  readonly verdict: 'taken' | 'refused' | 'failed';
  /** Statuses and messages. */
  readonly text: string;
}

const CREATE = '/containers/create';

/** Every field of every body with every wrong JSON type. */
export const FIELD_TRIALS: readonly Trial[] = BODIES.flatMap(({ path, valid, fields }) =>
  Object.entries(fields).flatMap(([kind, names]) =>
    names.flatMap((name) =>
      WRONG[kind as keyof typeof WRONG].map((value): Trial => ({
        label: `POST ${path} ${name}=${JSON.stringify(value)}`,
        method: 'POST',
        path,
        json: withField(valid, name, value),
        starts: false,
      })),
    ),
  ),
);

export const QUERY_TRIALS: readonly Trial[] = QUERIES.map((request): Trial => {
  const [method = '', path = ''] = request.split(' ');
  return { label: `${method} ${decodeURIComponentOr(path)}`, method, path, starts: false };
});

export const VALUE_TRIALS: readonly Trial[] = [
  ...combinations(HOST_VALUES).map((part) =>
    creation(`HostConfig ${JSON.stringify(part)}`, { HostConfig: { NetworkMode: 'none', ...part } }),
  ),
  ...combinations(CONFIG_VALUES).map((part) =>
    creation(`Config ${JSON.stringify(part)}`, {
      HostConfig: { NetworkMode: 'MacAddress' in part ? 'bridge' : 'none' },
      ...part,
    }),
  ),
  ...Object.entries(ENDPOINT_VALUES).flatMap(([network, values]) =>
    values.map((value) =>
      creation(`EndpointsConfig ${JSON.stringify({ [network]: value })}`, {
        HostConfig: { NetworkMode: network },
        NetworkingConfig: { EndpointsConfig: { [network]: value } },
      }),
    ),
  ),
];

function creation(label: string, json: Readonly<Record<string, unknown>>): Trial {
  return {
    label: `POST ${CREATE} ${label}`,
    method: 'POST',
    path: CREATE,
    json: { Image: '{image}', Cmd: ['true'], ...json },
    starts: true,
  };
}

/** `A: [1]` and `A,B: [[1, 2]]` as objects. */
function combinations(table: Values): Record<string, unknown>[] {
  return Object.entries(table).flatMap(([names, values]) => {
    const keys = names.split(',');
    return values.map((value) =>
      Object.fromEntries(
        keys.map((key, index) => [key, keys.length === 1 ? value : (value as readonly unknown[])[index]]),
      ),
    );
  });
}

function decodeURIComponentOr(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export class Sweep {
  constructor(
    private readonly engine: Engine,
    private readonly image: string,
    /** `/v1.51`. */
    private readonly base: string,
  ) {}

  /** Makes what trials refer to: containers `target` (running) and `still`, networks `own` and `user`. */
  async prepare(): Promise<void> {
    const create = (path: string, json: unknown): Promise<unknown> =>
      callJson(this.engine.socketPath, 'POST', `${this.base}${path}`, { json });
    await create(`${CREATE}?name=still`, { Image: this.image, Cmd: ['true'] });
    await create(`${CREATE}?name=target`, {
      Image: this.image,
      Cmd: ['sleep', '100000'],
      HostConfig: { IpcMode: 'shareable' },
    });
    await callJson(this.engine.socketPath, 'POST', `${this.base}/containers/target/start`);
    await create('/networks/create', { Name: 'own', IPAM: { Config: [{ Subnet: '10.231.7.0/24' }] } });
    await create('/networks/create', { Name: 'user' });
  }

  /** Takes away what was made. */
  async attempt({ method, path, json, starts }: Trial): Promise<Outcome> {
    const filled = json && (JSON.parse(JSON.stringify(json).replaceAll('{image}', this.image)) as unknown);
    const reply = await this.#call(method, path.replace('{image}', this.image), filled);
    const outcome = judge(reply.status, reply.text);
    if (outcome.verdict !== 'taken') return outcome;
    if (path === CREATE) {
      const { Id } = JSON.parse(reply.text) as { Id: string };
      const started = starts ? await this.#call('POST', `/containers/${Id}/start`) : undefined;
      await this.#call('DELETE', `/containers/${Id}?force=1&v=1`);
      if (started) return judge(started.status, started.text);
    } else if (path === '/networks/create')
      await this.#call('DELETE', `/networks/${(JSON.parse(reply.text) as { Id: string }).Id}`);
    else if (path === '/volumes/create')
      await this.#call('DELETE', `/volumes/${(JSON.parse(reply.text) as { Name: string }).Name}`);
    else if (path === '/networks/own/connect')
      await this.#call('POST', '/networks/own/disconnect', { Container: 'still', Force: true });
    return outcome;
  }

  /** How many containers and networks there are. Named volumes stay, as they should. */
  async count(): Promise<string> {
    const sizes = await Promise.all(
      ['/containers/json?all=1', '/networks'].map(
        async (path) => (JSON.parse((await this.#call('GET', path)).text) as readonly unknown[]).length,
      ),
    );
    return sizes.join();
  }

  /** An engine that drops the connection has answered with status 0. */
  #call(method: string, path: string, json?: unknown): Promise<Pick<Reply, 'status' | 'text'>> {
    return call(this.engine.socketPath, method, `${this.base}${path}`, json === undefined ? {} : { json }).catch(
      (error: unknown) => ({ status: 0, text: messageOf(error) }),
    );
  }
}

function judge(status: number, text: string): Outcome {
  return {
    verdict:
      status === 0
        ? 'failed'
        : status < 400
          ? 'taken'
          : status < 500 || status === 501 || status === 503
            ? 'refused'
            : 'failed',
    text: `${status} ${text.trim().slice(0, 300)}`,
  };
}
