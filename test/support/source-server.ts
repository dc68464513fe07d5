/** A server of files and git repositories, honest ones and others, on a port of its own. */
import { execFileSync, spawn } from 'node:child_process';
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

const HEAD_END = '\r\n\r\n';

/** git has no settings of the machine, and does not begin to tidy up after each commit. */
const BARE_CONFIGURATION = {
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_CONFIG_COUNT: '1',
  GIT_CONFIG_KEY_0: 'maintenance.auto',
  GIT_CONFIG_VALUE_0: 'false',
};

export class SourceServer {
  readonly directory = mkdtempSync(join(tmpdir(), 'source-server-'));
  /** Lines such as `GET /path`, and the values of the headers that log in. */
  readonly asked: string[] = [];
  readonly logins: string[] = [];
  /** By which name the server was called, with which login. */
  readonly visitors: { readonly host: string | undefined; readonly login: string }[] = [];
  /** Repositories want this header. */
  wantedLogin = '';
  readonly #pages = new Map<string, Handler>();
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((request, response) => this.#answer(request, response));
  }

  static async start(): Promise<SourceServer> {
    const server = new SourceServer();
    await new Promise<void>((resolve) => server.#server.listen(0, '127.0.0.1', resolve));
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  page(path: string, handler: Handler): void {
    this.#pages.set(path, handler);
  }

  /** Serves bytes. */
  file(path: string, content: string | Buffer, headers: Readonly<Record<string, string>> = {}): void {
    this.page(path, (_request, response) => {
      response.writeHead(200, { ...headers, 'content-length': Buffer.byteLength(content) });
      response.end(content);
    });
  }

  /** Makes a commit of a repository, which is made first; `name@` is a link. Returns its name. */
  commit(repository: string, files: Readonly<Record<string, string>>, branch = 'main'): string {
    const directory = join(this.directory, repository);
    mkdirSync(directory, { recursive: true });
    // A program for it would take as long as the commit.
    if (existsSync(join(directory, '.git'))) writeFileSync(join(directory, '.git/HEAD'), `ref: refs/heads/${branch}\n`);
    else this.git(directory, 'init', '--quiet', '--template=', '--initial-branch', branch);
    for (const [name, text] of Object.entries(files)) {
      mkdirSync(join(directory, dirname(name)), { recursive: true });
      if (name.endsWith('@')) symlinkSync(text, join(directory, name.slice(0, -1)));
      else writeFileSync(join(directory, name), text);
    }
    this.git(directory, 'add', '--all');
    this.git(directory, 'commit', '--quiet', '--message', 'a commit');
    return readFileSync(join(directory, '.git/refs/heads', branch), 'utf8').trim();
  }

  /** Adds a submodule without looking at its address. */
  addModule(repository: string, path: string, url: string, commit: string): void {
    const directory = join(this.directory, repository);
    // git forgets a module whose place is missing.
    mkdirSync(join(directory, path), { recursive: true });
    appendFileSync(join(directory, '.gitmodules'), `[submodule "${path}"]\n\tpath = ${path}\n\turl = ${url}\n`);
    this.git(directory, 'add', '--all');
    this.git(directory, 'update-index', '--add', '--cacheinfo', `160000,${commit},${path}`);
    this.git(directory, 'commit', '--quiet', '--message', 'a module');
  }

  git(directory: string, ...args: readonly string[]): string {
    const names = {
      GIT_AUTHOR_NAME: 'a',
      GIT_AUTHOR_EMAIL: 'a@b',
      GIT_COMMITTER_NAME: 'a',
      GIT_COMMITTER_EMAIL: 'a@b',
    };
    return execFileSync('git', args, {
      cwd: directory,
      env: { ...process.env, ...names, ...BARE_CONFIGURATION },
      encoding: 'utf8',
    });
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
    rmSync(this.directory, { recursive: true, force: true });
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const { pathname } = new URL(request.url ?? '/', this.url);
    this.asked.push(`${request.method} ${pathname}`);
    const login = request.headers.authorization ?? '';
    this.logins.push(login);
    this.visitors.push({ host: request.headers.host, login });
    const page = this.#pages.get(pathname);
    if (page !== undefined) page(request, response);
    else if (!pathname.startsWith('/git/')) response.writeHead(404).end('nothing is here');
    else if (this.wantedLogin !== '' && login !== this.wantedLogin)
      response.writeHead(401, { 'www-authenticate': 'Basic realm="git"' }).end();
    else this.#repository(request, response);
  }

  /** `/git/name.git/…` is the repository `name`. */
  #repository(request: IncomingMessage, response: ServerResponse): void {
    const { pathname, search } = new URL(request.url ?? '/', this.url);
    const { headers, method = 'GET' } = request;
    const backend = spawn('git', ['http-backend'], {
      env: {
        ...process.env,
        GIT_PROJECT_ROOT: this.directory,
        GIT_HTTP_EXPORT_ALL: '1',
        PATH_INFO: pathname.replace(/^\/git\/([^/]+)\.git/, '/$1/.git'),
        QUERY_STRING: search.slice(1),
        REQUEST_METHOD: method,
        CONTENT_TYPE: headers['content-type'] ?? '',
        HTTP_CONTENT_ENCODING: headers['content-encoding'] ?? '',
        GIT_PROTOCOL: [headers['git-protocol']].flat().join(''),
        GIT_CONFIG_COUNT: '1',
        GIT_CONFIG_KEY_0: 'safe.directory',
        GIT_CONFIG_VALUE_0: '*',
      },
    });
    backend.stdin.on('error', () => undefined);
    request.pipe(backend.stdin);
    const chunks: Buffer[] = [];
    backend.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
    backend.stdout.on('end', () => {
      const all = Buffer.concat(chunks);
      const end = all.indexOf(HEAD_END);
      const head = all
        .toString('latin1', 0, end)
        .split('\r\n')
        .map((line) => line.split(': ') as [string, string]);
      const status = head.find(([name]) => name === 'Status')?.[1] ?? '200';
      response.writeHead(Number(status.slice(0, 3)), Object.fromEntries(head.filter(([name]) => name !== 'Status')));
      response.end(all.subarray(end + HEAD_END.length));
    });
  }
}
