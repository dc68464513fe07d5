/**
 * The things that a daemon does at build time, so that V8's code of them is kept (scripts/compile-program.mjs): it
 * answers what clients ask first, and has a container live, with the programs of this machine for its files. A step
 * that fails, as where no runtime is installed, only has less code kept.
 */
import { request } from 'node:http';

/** All steps take some seconds. */
const ALL_STEPS_MS = 60_000;
const NAME = 'rehearsal';
/** An archive without files: its end. */
const NO_FILES = Buffer.alloc(1024);
const PROGRAMS = ['/bin', '/lib', '/lib64', '/usr'].map((path) => `${path}:${path}:ro`);
/** A namespace that knows one user only cannot make terminals for a container, so it has those that are there. */
const CONTAINER = {
  Image: NAME,
  Cmd: ['/bin/sh', '-c', 'echo hello; sleep 1000 & wait'],
  HostConfig: { Binds: [...PROGRAMS, '/dev/pts:/dev/pts'] },
};
/** Method, path and body of each request. `EXEC` stands for the command in the container. */
const STEPS = [
  ['GET', '/version'],
  ['GET', '/info'],
  ['GET', '/containers/json?all=1'],
  ['GET', '/images/json'],
  ['GET', '/networks'],
  ['GET', '/volumes'],
  ['POST', `/images/create?fromSrc=-&repo=${NAME}`, NO_FILES],
  ['GET', `/images/${NAME}/json`],
  ['POST', '/volumes/create', { Name: NAME }],
  ['POST', '/networks/create', { Name: NAME }],
  ['POST', `/containers/create?name=${NAME}`, CONTAINER],
  ['POST', `/containers/${NAME}/start`],
  ['GET', `/containers/${NAME}/json`],
  ['POST', `/containers/${NAME}/exec`, { Cmd: ['/bin/true'], AttachStdout: true }],
  ['POST', '/exec/EXEC/start', {}],
  ['GET', '/exec/EXEC/json'],
  ['PUT', `/containers/${NAME}/archive?path=/`, NO_FILES],
  ['GET', `/containers/${NAME}/logs?stdout=1`],
  ['GET', `/containers/json`],
  ['POST', `/containers/${NAME}/stop?t=0`],
  ['POST', `/containers/${NAME}/wait`],
  ['DELETE', `/containers/${NAME}?force=1`],
  ['DELETE', `/networks/${NAME}`],
  ['DELETE', `/volumes/${NAME}`],
  ['DELETE', `/images/${NAME}`],
  ['GET', '/events?since=1&until=2'],
];

/** Resolves when the daemon behind the socket has answered all steps, or the time for them is over. */
export async function rehearseSteps(socketPath) {
  const signal = AbortSignal.timeout(ALL_STEPS_MS);
  let exec = '';
  for (const [method, path, body] of STEPS) {
    const reply = await ask({ socketPath, method, path: path.replace('EXEC', exec), signal }, body);
    if (path.endsWith('/exec')) exec = JSON.parse(reply || '{}').Id;
  }
}

/** Resolves with the text of the reply, and with none when there is no reply. */
export function ask(options, body) {
  const isArchive = body instanceof Buffer;
  const headers = body && { 'content-type': isArchive ? 'application/x-tar' : 'application/json' };
  return new Promise((resolve) => {
    request({ ...options, ...(headers && { headers }) }, (reply) => {
      let text = '';
      reply.setEncoding('utf8');
      reply.on('data', (piece) => (text += piece)).on('error', () => resolve(''));
      reply.on('end', () => resolve(text));
    })
      .on('error', () => resolve(''))
      .end(isArchive || body === undefined ? body : JSON.stringify(body));
  });
}
