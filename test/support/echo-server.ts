/** A program for a network namespace that tells every client which address it was seen with. */
import { once } from 'node:events';
import { endProcess, outputInside, startInside } from './host-networks.js';

export type Protocol = 'tcp' | 'udp';

/** Listens in the namespace on all addresses of both families; resolves when it does. Returns what ends it. */
export async function startEchoServer(
  netnsPath: string,
  tcpPorts: readonly number[],
  udpPorts: readonly number[],
): Promise<() => Promise<void>> {
  const program = `
    let open = 0; const ready = () => { if (++open === ${tcpPorts.length + udpPorts.length}) console.log('ready'); };
    for (const port of ${JSON.stringify(tcpPorts)}) require('node:net').createServer((client) => { 
      client.on('error', () => 0); client.end(port + ' ' + client.remoteAddress); }).listen(port, '::', ready);
    for (const port of ${JSON.stringify(udpPorts)}) { const socket = require('node:dgram').createSocket('udp6'); 
      socket.on('message', (_, peer) => socket.send(port + ' ' + peer.address, peer.port, peer.address)); 
      socket.bind(port, '::', ready); }`;
  const child = startInside(netnsPath, process.execPath, '-e', program);
  await once(child.stdout, 'data');
  return () => endProcess(child);
}

export interface Question {
  readonly protocol: Protocol;
  readonly host: string;
  readonly port: number;
}

/**
 * Returns what the servers at these addresses say, or why there is no answer: `ECONNREFUSED`, `timeout`. All are asked
 * at once.
 */
export async function askEcho(
  netnsPath: string | undefined,
  questions: readonly Question[],
  timeoutMs = 2500,
): Promise<string[]> {
  const program = `
    const ask = ({ protocol, host, port }) => new Promise((done) => {
      setTimeout(done, ${timeoutMs}, 'timeout');
      if (protocol === 'tcp') require('node:net').connect(port, host).on('error', (error) => done(error.code))
      .on('data', (data) => done(String(data))).on('end', () => done('closed'));
      else { const socket = require('node:dgram').createSocket(host.includes(':') ? 'udp6' : 'udp4'); 
      socket.on('error', (error) => done(error.code)); socket.on('message', (data) => done(String(data))); 
      socket.connect(port, host, () => socket.send('?')); }
    });
    Promise.all(${JSON.stringify(questions)}.map(ask)).then((answers) => { 
      console.log(JSON.stringify(answers)); process.exit(); });`;
  const answers = JSON.parse(
    await outputInside(netnsPath ?? '/proc/self/ns/net', process.execPath, '-e', program),
  ) as string[];
  return answers.map((answer) => answer.replace('::ffff:', ''));
}
