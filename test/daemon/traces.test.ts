/** Traces of requests, as a collector of OpenTelemetry gets them. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Agent, createServer, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { callJson } from '../support/http.js';
import { waitFor } from '../support/wait.js';

interface Span {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly attributes: readonly { readonly key: string; readonly value: Readonly<Record<string, unknown>> }[];
}

interface Export {
  readonly resourceSpans: readonly { readonly scopeSpans: readonly { readonly spans: readonly Span[] }[] }[];
}

const TRACE = '0af7651916cd43dd8448eb211c80319c';
const PARENT = 'b7ad6b7169203331';
const SECRET = 'hunter2';
/** More spans than wait for the collector (2048) and than go with a request to it that fails (512). */
const REQUESTS = 3500;

const cleanup = new Cleanup();
const spans: Span[] = [];
/** Whether the collector answers. */
let isAnswering = true;
let collector: Server;
let engine: Engine;
let image: string;

before(async () => {
  collector = createServer((request, response) => {
    if (!isAnswering) return;
    void json(request).then((body) => {
      for (const { scopeSpans } of (body as Export).resourceSpans)
        for (const scope of scopeSpans) spans.push(...scope.spans);
      response.setHeader('Content-Type', 'application/json').end('{}');
    });
  }).listen(0, '127.0.0.1');
  await once(collector, 'listening');
  cleanup.add(async () => {
    collector.closeAllConnections();
    collector.close();
  });
  const { port } = collector.address() as AddressInfo;
  const env = { OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}` };
  ({ engine, image } = await startEngineWithImage(cleanup, engined({ env })));
});

after(() => cleanup.run());

/** Spans of a trace whose root was sent; the root is sent last. */
function traceOf(name: string): Promise<{ root: Span; all: Span[] }> {
  return waitFor(
    () => `the trace of ${name}; there are ${[...new Set(spans.map((span) => span.name))].join(', ')}`,
    () => {
      const root = spans.find((span) => span.name === name);
      return root && { root, all: spans.filter(({ traceId }) => traceId === root.traceId) };
    },
  );
}

/** The names of the spans from the root down to a span. */
function pathTo(span: Span, all: readonly Span[]): string[] {
  const parent = all.find(({ spanId }) => spanId === span.parentSpanId);
  return [...(parent === undefined ? [] : pathTo(parent, all)), span.name];
}

/** Resolves with the status of the answer. */
function ping(agent: Agent): Promise<number> {
  return new Promise((resolve, reject) => {
    const outgoing = request({ socketPath: engine.socketPath, path: '/_ping', agent }, (reply) =>
      reply.resume().once('end', () => resolve(reply.statusCode ?? 0)),
    );
    outgoing.once('error', reject).end();
  });
}

test('a start is one trace, from the request to the calls of containerd', async () => {
  const body = { Image: image, Cmd: ['sleep', '1000'], Env: [`PASSWORD=${SECRET}`] };
  await callJson(engine.socketPath, 'POST', `/containers/create?name=traced`, { json: body });
  const headers = { traceparent: `00-${TRACE}-${PARENT}-01` };
  await callJson(engine.socketPath, 'POST', '/containers/traced/start', { headers });
  const { root, all } = await traceOf('POST /containers/{name...}/start');
  assert.deepEqual([root.traceId, root.parentSpanId], [TRACE, PARENT], 'the trace of the client goes on');
  for (const name of ['actor.start', 'layers.mount', 'containerd.tasks.create', 'containerd.tasks.start']) {
    const span = all.find((candidate) => candidate.name === name);
    assert.ok(span, `${name} is not among ${all.map((each) => each.name).join(', ')}`);
    assert.equal(pathTo(span, all)[0], root.name, pathTo(span, all).join(' > '));
  }
  await callJson(engine.socketPath, 'GET', '/containers/traced/stats?stream=0');
  const stats = await traceOf('GET /containers/{name...}/stats');
  assert.ok(stats.all.some(({ name }) => name === 'worker.read-stats'));
  await engineOk(engine, ['rm', '-f', 'traced']);
  await traceOf('DELETE /containers/{name...}');
  assert.ok(!JSON.stringify(spans).includes(SECRET));
  assert.ok(!JSON.stringify(spans).includes('traced'), 'nothing of the path is sent');
});

test('a collector that does not answer holds no request up, and spans are dropped rather than kept', async () => {
  isAnswering = false;
  const began = performance.now();
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  for (let index = 0; index < REQUESTS; index++) assert.equal(await ping(agent), 200);
  agent.destroy();
  // The exporter waits five seconds for an answer; a request that waited for it would take longer than all of these.
  const eachMs = (performance.now() - began) / REQUESTS;
  assert.ok(eachMs < 100, `${eachMs} ms`);
  await waitFor('the complaint', () => /collector of traces does not take spans/.test(engine.log), 60_000);
  const before = spans.length;
  isAnswering = true;
  // The queue may still be full, so the first one may be dropped as well.
  await waitFor('spans to be taken again', async () => {
    await callJson(engine.socketPath, 'GET', '/version');
    return spans.some(({ name }) => name === 'GET /version');
  });
  assert.ok(spans.length - before < 2300, `${spans.length - before} spans were kept`);
});
