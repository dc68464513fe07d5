/** The process of authorization-plugin.ts. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { rmSync } from 'node:fs';
import type { DenyRule, FromPlugin, PluginSettings, Question, ToPlugin } from './authorization-plugin.js';

let settings: PluginSettings = { behaviour: 'decide', deny: [] };
let questions: Question[] = [];

const server = createServer((request, response) => {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => answer(request, response, Buffer.concat(chunks).toString()));
});

function answer(request: IncomingMessage, response: ServerResponse, text: string): void {
  const reply = (value: unknown): void => {
    response.setHeader('Content-Type', 'application/vnd.docker.plugins.v1.2+json');
    response.end(JSON.stringify(value));
  };
  if (request.url === '/Plugin.Activate') return reply({ Implements: ['authz'] });
  const phase = request.url === '/AuthZPlugin.AuthZReq' ? 'request' : 'reply';
  const fields = JSON.parse(text) as Record<string, unknown>;
  for (const name of ['RequestBody', 'ResponseBody'])
    if (typeof fields[name] === 'string') fields[name] = Buffer.from(fields[name], 'base64').toString('latin1');
  questions.push({ phase, fields, headers: request.headers });
  switch (settings.behaviour) {
    case 'decide': {
      const denied = settings.deny.find((rule) => matches(rule, phase, fields));
      return reply(denied === undefined ? { Allow: true } : { Allow: false, Msg: 'not for you' });
    }
    case 'hang':
      return undefined;
    case 'die':
      return process.exit(1);
    case 'cut':
      response.socket?.destroy();
      return undefined;
    case 'rubbish':
      response.end('<html>{"Allow": true}');
      return undefined;
    case 'fail':
      response.statusCode = 500;
      return reply({ Allow: true, Err: 'out of order' });
    case 'err':
      return reply({ Allow: true, Err: 'cannot say' });
    case 'maybe':
      return reply({ Allow: 'true' });
  }
}

function matches(rule: DenyRule, phase: string, fields: Record<string, unknown>): boolean {
  const fits = (pattern: string | undefined, value: unknown): boolean =>
    pattern === undefined || (typeof value === 'string' && new RegExp(pattern).test(value));
  return (
    (rule.phase ?? 'request') === phase &&
    fits(rule.method, fields['RequestMethod']) &&
    fits(rule.uri, fields['RequestUri']) &&
    fits(rule.body, fields['RequestBody']) &&
    fits(rule.replyBody, fields['ResponseBody']) &&
    fits(rule.user, fields['User'])
  );
}

const send = (message: FromPlugin): void => void process.send?.(message);

process.on('message', (message: ToPlugin) => {
  switch (message.kind) {
    case 'listen':
      rmSync(message.path, { force: true });
      server.listen(message.path, () => send({ kind: 'done' }));
      break;
    case 'set':
      settings = message.settings;
      questions = [];
      send({ kind: 'done' });
      break;
    case 'questions':
      send({ kind: 'questions', questions });
      break;
  }
});
// The test is gone.
process.on('disconnect', () => process.exit());
