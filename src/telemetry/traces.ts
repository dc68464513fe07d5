/**
 * Traces of requests, sent by the SDK of OpenTelemetry to a collector. A trace has the request as its root, and in it
 * the steps that it needed. Spans have names of rooms, methods and routes only: no paths, settings or messages, because
 * these may have secrets in them.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { ROOT_CONTEXT, SpanKind, SpanStatusCode, trace, type Context, type Span } from '@opentelemetry/api';
import { parseTraceParent, type ExportResult } from '@opentelemetry/core';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { resourceFromAttributes } from '@opentelemetry/resources';
import {
  BasicTracerProvider,
  BatchSpanProcessor,
  type ReadableSpan,
  type SpanExporter,
} from '@opentelemetry/sdk-trace-base';
import type { Logger } from '../ports/logger.js';
import type { TracedRequest, Tracer } from '../text/steps.js';

export interface TraceOptions {
  /** Base URL of the collector, to which `/v1/traces` is added. */
  readonly endpoint: string;
  readonly version: string;
  readonly log: Logger;
}

export interface Traces extends Tracer {
  /** Sends what is left, for a few seconds at most. */
  close(): Promise<void>;
}

/** Spans that wait for the collector, about 1 KB each. Further ones are dropped. */
const MAX_WAITING = 2048;
const SEND_INTERVAL_MS = 1000;
const SEND_TIMEOUT_MS = 5000;
/** A collector that is away is logged once in this time. */
const COMPLAINT_INTERVAL_MS = 60_000;
const FIRST_SERVER_ERROR = 500;

/** The place in a trace where work is done. Work that goes on after the request is no part of it any more. */
interface Place {
  readonly context: Context;
  readonly request: { isOver: boolean };
}

/** Begins to trace. Nothing is sent before the first request. */
export function openTraces({ endpoint, version, log }: TraceOptions): Traces {
  const exporter = new LoggedExporter(
    new OTLPTraceExporter({ url: `${endpoint.replace(/\/$/, '')}/v1/traces`, timeoutMillis: SEND_TIMEOUT_MS }),
    log,
  );
  const provider = new BasicTracerProvider({
    resource: resourceFromAttributes({ 'service.name': 'engined', 'service.version': version }),
    spanProcessors: [
      new BatchSpanProcessor(exporter, {
        maxQueueSize: MAX_WAITING,
        scheduledDelayMillis: SEND_INTERVAL_MS,
        exportTimeoutMillis: SEND_TIMEOUT_MS,
      }),
    ],
  });
  const tracer = provider.getTracer('engined', version);
  const places = new AsyncLocalStorage<Place>();
  return {
    request(method, pattern, traceparent) {
      const span = tracer.startSpan(
        `${method} ${pattern}`,
        { kind: SpanKind.SERVER, attributes: { 'http.request.method': method, 'http.route': pattern } },
        contextOf(traceparent),
      );
      return tracedRequest(span, places);
    },
    run(name, work) {
      const place = places.getStore();
      if (place === undefined || place.request.isOver) return work();
      const span = tracer.startSpan(name, { kind: kindOf(name) }, place.context);
      const { request } = place;
      return ending(span, () => places.run({ context: trace.setSpan(place.context, span), request }, work));
    },
    close: () => provider.shutdown(),
  };
}

function contextOf(traceparent: string | undefined): Context {
  const remote = traceparent === undefined ? null : parseTraceParent(traceparent);
  return remote === null ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, { ...remote, isRemote: true });
}

function tracedRequest(span: Span, places: AsyncLocalStorage<Place>): TracedRequest {
  const place: Place = { context: trace.setSpan(ROOT_CONTEXT, span), request: { isOver: false } };
  return {
    run: (work) => places.run(place, work),
    end(status) {
      place.request.isOver = true;
      span.setAttribute('http.response.status_code', status);
      if (status >= FIRST_SERVER_ERROR) span.setStatus({ code: SpanStatusCode.ERROR });
      span.end();
    },
  };
}

/** Calls of containerd are those of a client. */
function kindOf(name: string): SpanKind {
  return name.startsWith('containerd.') ? SpanKind.CLIENT : SpanKind.INTERNAL;
}

/** Runs `work` and ends the span with it, also when it is a promise. */
function ending<T>(span: Span, work: () => T): T {
  const fail = (): void => {
    span.setStatus({ code: SpanStatusCode.ERROR });
    span.end();
  };
  try {
    const result = work();
    if (result instanceof Promise) result.then(() => span.end(), fail);
    else span.end();
    return result;
  } catch (error) {
    fail();
    throw error;
  }
}

/** Says in the log when spans are lost because the collector does not take them. */
class LoggedExporter implements SpanExporter {
  #lost = 0;
  #complainedMs = -Infinity;

  constructor(
    private readonly exporter: SpanExporter,
    private readonly log: Logger,
  ) {}

  export(spans: ReadableSpan[], done: (result: ExportResult) => void): void {
    this.exporter.export(spans, (result) => {
      if (result.error !== undefined) this.#complain(spans.length, result.error);
      done(result);
    });
  }

  shutdown(): Promise<void> {
    return this.exporter.shutdown();
  }

  #complain(lost: number, error: Error): void {
    this.#lost += lost;
    if (performance.now() - this.#complainedMs < COMPLAINT_INTERVAL_MS) return;
    this.log.warn({ err: error.message, spans: this.#lost }, 'the collector of traces does not take spans');
    this.#complainedMs = performance.now();
    this.#lost = 0;
  }
}
